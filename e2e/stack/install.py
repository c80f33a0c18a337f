"""The demo's installation, made as a user makes it: two charts by Helm, then resources by `kubectl apply`."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.core.epochs import target_name
from cachescope.core.keys import KeyRing
from cachescope.core.labels import COMPONENT_LABEL, PART_OF_LABEL, POOL_LABEL, ROOT_KEYS_SECRET
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger
from cachescope.core.types import Epoch, TargetKind, TargetName
from cachescope.gateway.authorizations import Authorization, PoolState
from cachescope.gateway.keys import GatewayKeys, parse_keys
from e2e.stack import built_images, helm, kubectl, shown
from e2e.stack.credentials import Credentials, load
from e2e.stack.forging import Forger
from e2e.stack.kubectl import NAMESPACE
from e2e.stack.paths import CHARTS, EXAMPLES, STATE
from e2e.stack.tenancy import object_of
from e2e.stack.waiting import until

RELEASE, CRDS_RELEASE = "cachescope", "cachescope-crds"
GATEWAY, OPERATOR, POOL = "cachescope-gateway", "cachescope-operator", "tiny"
GATEWAY_PODS = f"{PART_OF_LABEL}=cachescope,{COMPONENT_LABEL}=gateway"
OPERATOR_PODS = f"{PART_OF_LABEL}=cachescope,{COMPONENT_LABEL}=operator"
ENGINE_PODS = f"{POOL_LABEL}={POOL}"
GATEWAY_PORT, GATEWAY_METRICS_PORT = 8080, 9090
MONITORING = "monitoring"
EXAMPLE_IMAGE = "localhost/cachescope/vllm-cpu:demo"
READY_SECONDS = 600


@dataclass(frozen=True)
class Stack:
    """An installation on the cluster.

    Attributes:
        images: Images that were built, by name.
        credentials: Its people's secrets.
        pool_name: The pool that is meant; the demo's by default.
    """

    images: dict[str, str]
    credentials: Credentials
    pool_name: str = POOL

    def with_pool(self, name: str) -> Stack:
        """The same installation, where another pool is meant."""
        return replace(self, pool_name=name)

    @cached_property
    def pool(self) -> ServingPool:
        """The pool, as the API server has it."""
        return parse(ServingPool, kubectl.get("servingpool", self.pool_name), "the API server")

    @property
    def ledger(self) -> Ledger:
        """What stands for the pool."""
        return _ledger(self.pool_name)

    @property
    def authorization(self) -> Ledger:
        """What changed lately for tenants and principals."""
        return _ledger(AUTHORIZATION_HEAD)

    @property
    def state(self) -> PoolState:
        """What stands for requests to the pool, as gateways know it."""
        head = self.authorization
        return PoolState(self.ledger, Authorization(head, {name: _ledger(name) for name in head.shards}))

    @property
    def pool_target(self) -> TargetName:
        """Name of the pool's epoch target."""
        return target_name(self.keys.targets, TargetKind.POOL, self.pool.uid)

    @cached_property
    def keys(self) -> GatewayKeys:
        """The gateways' keys, which no client has and no engine: for the positive control of an attack."""
        data = kubectl.get("secret", ROOT_KEYS_SECRET)["data"]
        return parse_keys({name: base64.b64decode(text).decode() for name, text in data.items()})

    @property
    def root_keys(self) -> KeyRing:
        """The root keys among them."""
        return self.keys.root

    def forger(self) -> Forger:
        """Makes salts of the pool, by what stands for it now."""
        return Forger(self.keys, self.pool, self.state)

    def pool_epoch(self) -> Epoch:
        """The pool's epoch that stands."""
        return self.ledger.epoch(self.pool_target)

    def raise_pool_epoch(self) -> Ledger:
        """Roll the pool's epoch forward, by an incident that was not there before."""
        before = self.pool_epoch()
        kubectl.apply([incident(secrets.token_hex(8), pool=self.pool_name)])
        until(lambda: self.pool_epoch() > before, "the ledger has the incident's epoch")
        return self.ledger

    def quickstart(self) -> str:
        """The example that users apply, with the engine's image that was built here."""
        text = (EXAMPLES / "quickstart.yaml").read_text()
        if EXAMPLE_IMAGE not in text:
            raise ValueError(f"examples/quickstart.yaml does not name {EXAMPLE_IMAGE}; correct one of the two")
        return text.replace(EXAMPLE_IMAGE, self.images["vllm-cpu"])

    def values(self) -> list[str]:
        """Helm's options: the images that were built here, and the demo's identity providers."""
        return ["-f", str(EXAMPLES / "demo-values.yaml"), *built_images.options(self.images)]


def prepare() -> Stack:
    """Read the images that were built, and the credentials of earlier runs."""
    return Stack(built_images.references(), load(STATE / "credentials.json"))


def install(stack: Stack) -> None:
    """Bring the installation to its declared state, and wait until the pool is ready."""
    namespace(NAMESPACE)
    install_crds()
    kubectl.apply(stack.credentials.secrets(NAMESPACE))
    helm.upgrade(RELEASE, CHARTS / "cachescope", "--force-conflicts", *stack.values())
    apply_quickstart(stack)
    kubectl.rolled_out(OPERATOR)
    kubectl.rolled_out(GATEWAY)
    until(pool_is_ready, f"the pool {POOL} is Ready; see `kubectl describe servingpool {POOL}`", READY_SECONDS)


def install_crds() -> None:
    """Bring the CRDs to the present version; those that somebody applied without Helm become the release's."""
    namespace(NAMESPACE)  # where the release is recorded
    helm.upgrade(CRDS_RELEASE, CHARTS / "cachescope-crds", "--take-ownership", "--force-conflicts")


def apply_quickstart(stack: Stack) -> str:
    """What the user does: `kubectl apply -f examples/quickstart.yaml`; returns what kubectl printed."""
    return kubectl.run("apply", "-f", "-", stdin=stack.quickstart())


def pool_is_ready() -> bool:
    """Whether the pool is ready, and its reuse on; see `shown.is_ready`."""
    return shown.is_ready(POOL, NAMESPACE)


def namespace(name: str, **labels: str) -> None:
    """A namespace in which only restricted pods run."""
    marks = {"pod-security.kubernetes.io/enforce": "restricted", **labels}
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}])


def _ledger(name: str) -> Ledger:
    return parse_ledger(kubectl.get("epochledger", name)["spec"])


def incident(incident_id: str, name: str = "end-to-end", *, pool: str = POOL) -> dict[str, Any]:
    """A CacheEpoch that rolls a pool forward once."""
    spec = {"target": {"kind": "ServingPool", "name": pool}, "incident": {"id": incident_id, "reason": "end-to-end test"}}
    return object_of("CacheEpoch", name, spec)
