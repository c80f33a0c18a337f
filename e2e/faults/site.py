"""An installation for fault tests: two gateways, two operators, one pool of two engines, and short rights everywhere.

The host reaches it without the API server, since its node is this machine: the gateways by their Service's address, each engine's
metrics by its pod's.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import httpx2 as httpx
import openai

from cachescope.core.labels import GUARD_METRICS_PORT
from e2e.faults.declarations import FENCED, POOL, denial_of, is_true
from e2e.faults.engines import ENGINE
from e2e.faults.history import LOST, SERVED
from e2e.stack import api, built_images, helm, kubectl, shown, stub_pool, tenancy
from e2e.stack.credentials import api_key_secret, new_key
from e2e.stack.install import GATEWAY, OPERATOR, RELEASE, install_crds, namespace
from e2e.stack.paths import CHARTS, EXAMPLES, LAYOUT
from e2e.stack.waiting import until

FIRST = "0"
LEASE_SECONDS, FRESH_SECONDS, STALE_SECONDS = 3, 2, 5
OPERATORS, ENGINES = 2, 2
CPU = "10m"
"""What a container asks for: the scheduler has to find place for several installations on a node of two cores."""
TENANTS = ("blue", "red")
WELL_SECONDS = 90 + ENGINE.start_seconds
"""Until all is well again; an engine may have to be started for it."""
_LOAD = re.compile(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", re.MULTILINE)

_ROUNDS = re.compile(r'^cachescope_guard_rounds_total\{outcome="done"\} (\d+)$', re.MULTILINE)


@dataclass(frozen=True)
class Site:
    """The installation.

    Attributes:
        namespace: Where everything of it is.
        images: Images that were built, by name.
    """

    namespace: str
    images: dict[str, str]

    @cached_property
    def keys(self) -> dict[str, str]:
        """An API key by tenant; `add_tenant` adds one."""
        return {}

    @cached_property
    def gateway(self) -> str:
        """`address:port` of the gateways, which outlives everything but the Service."""
        spec = kubectl.get("service", GATEWAY, namespace=self.namespace)["spec"]
        return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"

    def add_tenant(self, name: str) -> None:
        """A Tenant with an API key."""
        key = self.keys.setdefault(name, new_key())
        kubectl.apply([api_key_secret(key, self.namespace, name, name), tenancy.tenant(name, name)], self.namespace)

    def add_principal(self, tenant: str, name: str) -> None:
        """One more API key of a Tenant, for a principal of its own; `client` takes its name."""
        key = self.keys.setdefault(name, new_key())
        kubectl.apply([api_key_secret(key, self.namespace, name, name), tenancy.tenant(tenant, tenant, name)], self.namespace)

    def client(self, tenant: str) -> openai.OpenAI:
        """A client of a tenant that tries nothing twice: every answer is part of the history."""
        patience = httpx.Timeout(20, connect=3)
        return openai.OpenAI(base_url=f"http://{self.gateway}/v1", api_key=self.keys[tenant], max_retries=0, timeout=patience)

    def pods(self, labels: str = stub_pool.pods(POOL)) -> list[dict[str, Any]]:
        """Pods that stay; by default the engines."""
        return kubectl.staying_pods(labels, self.namespace)

    def busiest(self) -> dict[str, Any]:
        """The engine that has most to do; waits until one has something."""
        found: list[tuple[float, dict[str, Any]]] = []

        def look() -> bool:
            found[:] = sorted(((load_of(pod), pod) for pod in self.pods()), key=lambda item: item[0])
            return found[-1][0] > 0

        until(look, "requests are in an engine")
        return found[-1][1]

    def load(self) -> float:
        """Requests that run or wait in the engines."""
        return sum(load_of(pod) for pod in self.pods())

    def rounds(self) -> dict[str, int]:
        """Lease rounds that each engine's guard has made, by its pod's name; 0 of one that does not answer."""
        return {pod["metadata"]["name"]: rounds_of(pod) for pod in self.pods()}

    def logs(self) -> str:
        """What everybody has logged, processes that were ended included as far as the kubelet keeps it."""
        files = sorted((LAYOUT.cluster / "pod-logs").glob(f"{self.namespace}_*/*/*.log"))
        return "".join(f"== {path.parent.parent.name}/{path.parent.name}/{path.name}\n{path.read_text()}" for path in files)

    def is_well(self) -> bool:
        """Whether every engine is routed to, so each guard has its right, and each tenant is served."""
        pool = api.get("servingpools", POOL, self.namespace)
        whole = len(self.pods()) == (pool.get("status") or {}).get("routable") == ENGINES
        return whole and shown.is_ready(POOL, self.namespace) and all(map(self.serves, TENANTS))

    def serves(self, tenant: str) -> bool:
        """Whether a request of a tenant is answered now."""
        return self.outcome(tenant) == SERVED

    def outcome(self, tenant: str) -> str:
        """How a request of a tenant ends now: `SERVED`, `LOST`, or the code of its refusal."""
        return self.outcome_of(tenant, POOL)

    def outcome_of(self, tenant: str, model: str) -> str:
        """The same, of a request for another pool's model."""
        try:
            with self.client(tenant) as who:
                who.chat.completions.create(model=model, messages=[{"role": "user", "content": "is anybody there?"}], max_tokens=2)
        except openai.APIStatusError as error:
            return str(error.code or error.status_code)
        except openai.OpenAIError:
            return LOST
        return SERVED


def load_of(pod: dict[str, Any]) -> float:
    """Requests that run or wait in one engine, by its guard's metrics port."""
    answer = httpx.get(f"http://{pod['status']['podIP']}:{GUARD_METRICS_PORT}/metrics", timeout=5)
    found = _LOAD.findall(answer.text)
    if not found:
        raise ValueError("the metrics port shows no load of the engine; see cachescope.guard.metrics_port")
    return sum(map(float, found))


def rounds_of(pod: dict[str, Any]) -> int:
    """Lease rounds that a guard has made since its process began: in each it read its ledgers."""
    try:
        answer = httpx.get(f"http://{pod['status']['podIP']}:{GUARD_METRICS_PORT}/metrics", timeout=5)
    except httpx.HTTPError:
        return 0
    return sum(map(int, _ROUNDS.findall(answer.text)))


def pool_document(image: str, **fence: object) -> dict[str, Any]:
    """The pool."""
    document = stub_pool.document(POOL, image=image, replicas=ENGINES, lease_seconds=LEASE_SECONDS)
    document["spec"]["engine"] |= ENGINE.spec
    document["spec"]["resources"] = {**ENGINE.resources, "requests": {**ENGINE.resources["requests"], "cpu": CPU}}
    document["spec"]["fence"] |= {"freshSeconds": FRESH_SECONDS, **fence}
    return document


@contextmanager
def shared(which: str = FIRST) -> Iterator[Site]:
    """An installation of a session, for a fixture of that scope; whichever module asks first makes it."""
    name = _namespace(which)
    try:
        yield _installed(name)
    finally:
        kubectl.run("delete", "servingpool", "--all", "--wait=true", "--timeout=30s", namespace=name)
        helm.run("uninstall", RELEASE, "--ignore-not-found", namespace=name)
        kubectl.run("delete", "namespace", name, "--ignore-not-found", "--wait=false")


@cache
def _namespace(which: str) -> str:
    return f"cachescope-fence-{which}-{secrets.token_hex(4)}"


@cache
def _installed(name: str) -> Site:
    site = Site(name, built_images.references())
    namespace(name)
    install_crds()
    helm.upgrade(RELEASE, CHARTS / "cachescope", *_values(site), namespace=name)
    for tenant in TENANTS:
        site.add_tenant(tenant)
    kubectl.apply([pool_document(site.images[ENGINE.image])], name)
    for deployment in (OPERATOR, GATEWAY):
        kubectl.rolled_out(deployment, namespace=name)
    until(site.is_well, "the pool is ready, and serves every tenant", 2 * WELL_SECONDS)
    settled(site)
    return site


def settled(site: Site) -> None:
    """Wait until the operator has seen everybody for as long as anybody may act unseen: before that it completes no fence."""
    nobody = f"nobody-{secrets.token_hex(4)}"
    site.add_tenant(nobody)
    kubectl.apply([denial_of(nobody, nobody)], site.namespace)
    until(lambda: is_true(site.namespace, nobody, FENCED), "a first denial is fenced", WELL_SECONDS)
    kubectl.run("delete", "cacheepoch,tenant,secret", nobody, namespace=site.namespace)


def _values(site: Site) -> list[str]:
    numbers = {"settings.leaseSeconds": LEASE_SECONDS, "settings.maxStaleSeconds": STALE_SECONDS, "operator.replicas": OPERATORS}
    numbered = [part for name, value in numbers.items() for part in ("--set", f"{name}={value}")]
    settings = ["-f", str(EXAMPLES / "demo-values.yaml"), "--set-json", "settings.identityProviders=[]"]
    requests = {f"{part}.resources.requests.cpu": CPU for part in ("operator", "gateway.processor", "gateway.envoy")}
    return [*settings, *built_images.options(site.images), *helm.set_options(requests), *numbered]
