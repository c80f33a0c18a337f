"""An installation of real processes, none of which runs in a pod: operator, Envoy, processor, and a stub engine with its guard.

The tests are the kubelet (`kubelet`), so that they say when a process gets what a Secret holds by now, and the endpoint controller.
All that a gateway sends to the engine passes a wire tap in between.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cachescope.core.labels import COMPONENT_LABEL, ENGINE, POOL_LABEL, ROOT_KEYS_SECRET
from cachescope.kube.rest import Document
from e2e.stack import kubectl
from e2e.stack.credentials import api_key_secret, new_key
from e2e.stack.paths import KUBECONFIG, ROOT
from tests.integration import operator_process
from tests.integration.certificates import FOR_SERVERS, Authority
from tests.integration.kubelet import mount, mount_account, mount_secret
from tests.integration.operator_process import pool, resource, until
from tests.integration.ports import free_port
from tests.integration.tls_client import Answer, Client
from tests.integration.wire_tap import WireTap, tapping

POOL = "tiny"
AUDIENCE = "cachescope"
TRUST_DOMAIN = "corp"
REUSED_WORDS = 64
"""Some full blocks: to the stub a word is a token."""
LEASE_SECONDS = 60
"""Long enough for a machine that does much else; nothing here waits for the end of a right."""
SETTINGS = {
    "leaseSeconds": LEASE_SECONDS,
    "tls": {"secretName": "door", "clientCa": {"secretName": "clients", "trustDomains": [{"name": TRUST_DOMAIN}]}},
    "serviceAccounts": {"audience": AUDIENCE},
}
MODEL = ROOT / "images/stub-engine/model"
_ENGINE = "from e2e.stub_engine.server import main; main()"
_CACHESCOPE = """
import sys, time
ahead, sys.argv[1:] = float(sys.argv[1]), sys.argv[2:]
clock = time.time
time.time = lambda: clock() + ahead
from cachescope.cli.main import main
main()
"""


@dataclass
class Process:
    """A process of the installation.

    Attributes:
        command: What it runs.
        environment: Its variables, beside those of the tests.
        log: Where it writes.
        folder: Where it runs.
    """

    command: list[str]
    environment: Mapping[str, str]
    log: Path
    folder: Path
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as output:
            environment = {**os.environ, **self.environment}
            self.running = subprocess.Popen(self.command, env=environment, cwd=self.folder, stdout=output, stderr=output)

    def stop(self) -> None:
        """End it at once, if it runs."""
        if self.running is not None:
            self.running.send_signal(signal.SIGKILL)
            self.running.wait(timeout=30)
            self.running = None


@dataclass
class Whole:
    """The installation.

    Attributes:
        namespace: Its namespace.
        folder: A folder of its own.
        tap: What stands between gateway and engine.
        ours: Who signs certificates of workloads and of the door, to begin with.
        key: The API key of the tenant `red`.
    """

    namespace: str
    folder: Path
    tap: WireTap
    ours: Authority = field(default_factory=lambda: Authority.made("ours"))
    key: str = field(default_factory=new_key)
    port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)
    probe_port: int = field(default_factory=free_port)
    pod_uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def mounted(self) -> Path:
        """What is mounted into the gateway."""
        return self.folder / "mounted"

    @property
    def permit_keys(self) -> Path:
        """Where the pool's permit keys are mounted into the engine's pod."""
        return self.folder / "permit-keys"

    @property
    def client(self) -> Client:
        """A client that presents no certificate."""
        return Client(self.port)

    def get(self, kind: str, name: str) -> Document:
        """An object as it is now."""
        found: Document = kubectl.get(kind, name, namespace=self.namespace)
        return found

    def apply(self, *documents: Document) -> None:
        """Apply resources as people do."""
        kubectl.apply(list(documents), namespace=self.namespace)

    def tenant(self, name: str, **identities: Any) -> None:
        """Apply a Tenant, and wait until the operator accepted all of its identities."""
        self.apply(resource("Tenant", name, {"identities": identities}))
        wanted = sum(map(len, identities.values()))
        until(lambda: len((self.get("tenant", name).get("status") or {}).get("accepted") or ()) == wanted, why=self.logs)

    def chat(self, text: str = "hello", client: Client | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a chat request; without anything else with the key of `red`."""
        found = {"authorization": f"Bearer {self.key}"} if headers is None and client is None else headers or {}
        return (client or self.client).chat(text, found)

    def served(self) -> bool:
        """Whether the tenant `red` is served now."""
        return self.chat().status == 200

    def reuses(self) -> bool:
        """Whether the tenant `red` finds its own prompt again, so that it was shown that it may."""
        text = " ".join(uuid.uuid4().hex for _ in range(REUSED_WORDS))
        return self.chat(text).status == 200 and self.chat(text).cached > 0

    def until(self, holds: Any) -> None:
        """Wait for a condition; in vain, the logs say why."""
        until(holds, why=self.logs)

    def mount_root_keys(self) -> None:
        """Bring the root keys to the gateway, as the API has them now."""
        mount_secret(self.mounted / "root-keys", self.namespace, ROOT_KEYS_SECRET)

    def mount_permit_keys(self) -> None:
        """Bring the pool's permit keys to the guard, as the API has them now."""
        mount_secret(self.permit_keys, self.namespace, f"{POOL}-permit-keys")

    def trust(self, *authorities: Authority) -> None:
        """Bring the authorities of clients to Envoy."""
        mount(self.mounted / "client-ca", {"ca.crt": b"".join(authority.pem for authority in authorities)})

    def open_door(self, authority: Authority) -> None:
        """Bring Envoy a certificate of its own."""
        pair = authority.issue(self.folder / uuid.uuid4().hex, ["https://gateway"], usage=FOR_SERVERS)
        mount(self.mounted / "tls", {name: (pair / name).read_bytes() for name in ("tls.crt", "tls.key")})

    def processor(self, *, ahead: float = 0.0) -> Process:
        """The gateway's processor, with a wall clock that is so many seconds ahead."""
        environment = {
            "KUBECONFIG": str(KUBECONFIG),
            "PYTHONPATH": str(ROOT / "operator"),
            "CACHESCOPE_SCOPE": "Namespaced",
            "CACHESCOPE_NAMESPACE": self.namespace,
            "CACHESCOPE_POD_NAME": "gateway-0",
            "CACHESCOPE_POD_UID": str(uuid.uuid4()),
        }
        return self._process("processor", self._cachescope("gateway", self.health_port, ahead), environment)

    def envoy(self) -> Process:
        """Envoy, as the gateway's image starts it."""
        command = [*self._cachescope("envoy", self.port, 0), "--probe-port", str(self.probe_port)]
        return self._process("envoy", command, {"PYTHONPATH": str(ROOT / "operator")})

    def _cachescope(self, command: str, port: int, ahead: float) -> list[str]:
        options = ["--config", str(self.mounted), "--socket", str(self.folder / "processor.sock"), "--port", str(port)]
        return [sys.executable, "-c", _CACHESCOPE, str(ahead), command, *options]

    def engine(self) -> Process:
        """The stub engine with the guard in it, as the pool's Deployment starts it; only folders and ports are the tests' own."""
        containers = self.get("deployment", POOL)["spec"]["template"]["spec"]["containers"]
        container = next(item for item in containers if item["name"] == "engine")
        arguments = [*container["command"], *container.get("args", ())][3:]
        arguments[arguments.index("--port") + 1] = str(self.tap.engine_port)
        declared = {item["name"]: item["value"] for item in container["env"] if "value" in item}
        command = [sys.executable, "-c", _ENGINE, *arguments]
        return self._process("engine", command, {**declared, **self._pod()}, folder=_engine_home(self.folder))

    def _pod(self) -> dict[str, str]:
        """What the kubelet gives the engine's container."""
        server = urlsplit(mount_account(self.folder / "account", self.namespace, f"{POOL}-engine"))
        return {
            "CACHESCOPE_NAMESPACE": self.namespace,
            "CACHESCOPE_POD_NAME": f"{POOL}-0",
            "CACHESCOPE_POD_UID": self.pod_uid,
            "CACHESCOPE_PERMIT_KEYS_DIR": str(self.permit_keys),
            "CACHESCOPE_API_DIR": str(self.folder / "account"),
            "CACHESCOPE_STATE_DIR": "",
            "CACHESCOPE_METRICS_PORT": "0",
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port or 443),
            "PYTHONPATH": str(ROOT / "operator"),
        }

    def endpoint(self) -> None:
        """Say that the engine's pod is ready, at the address of the wire tap."""
        target = {"kind": "Pod", "name": f"{POOL}-0", "namespace": self.namespace, "uid": self.pod_uid}
        slice_ = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "tapped", "labels": {COMPONENT_LABEL: ENGINE, POOL_LABEL: POOL}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": self.tap.port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}, "targetRef": target}],
        }
        self.apply(slice_)

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-4000:]}" for path in sorted(self.folder.glob("*.log")))

    def _process(self, name: str, command: list[str], environment: Mapping[str, str], folder: Path = ROOT) -> Process:
        return Process(command, environment, self.folder / f"{name}.log", folder)


def own_address() -> str:
    """An address of this machine that an EndpointSlice may hold: none of loopback. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        return str(probe.getsockname()[0])


def _engine_home(folder: Path) -> Path:
    """A folder from which the stub runs as in its image: its code, and the name and version of the engine that it stands for."""
    home = folder / "engine-home"
    if not home.exists():
        (home / "vllm-0.32.0.dist-info").mkdir(parents=True)
        (home / "vllm-0.32.0.dist-info/METADATA").write_bytes((ROOT / "images/stub-engine/METADATA").read_bytes())
        (home / "e2e").symlink_to(ROOT / "e2e")
    return home


@contextmanager
def installed(namespace: str, folder: Path, **settings: Any) -> Iterator[tuple[Whole, Process]]:
    """An installation that serves the tenant `red`, and its processor; more settings, if any."""
    file = folder / "mounted/config/settings.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({**SETTINGS, **settings}))
    with ExitStack() as stack:
        tap = stack.enter_context(tapping(free_port()))
        whole = Whole(namespace, folder, tap)
        gateway = f"http://127.0.0.1:{whole.probe_port}"
        stack.enter_context(operator_process.kept_running(namespace, folder / "operator.log", file, gateway))
        _declare(whole)
        processor = whole.processor()
        for process in (processor, whole.envoy(), whole.engine()):
            stack.callback(process.stop)
            process.start()
        whole.until(whole.reuses)
        yield whole, processor


def _declare(whole: Whole) -> None:
    """Everything that the processes need, from the API to what is mounted."""
    model = {"name": POOL, "source": {"imagePath": str(MODEL)}}
    whole.apply(
        pool(POOL, model=model, fence={"leaseSeconds": LEASE_SECONDS}),
        api_key_secret(whole.key, whole.namespace, "red", "ci"),
    )
    whole.tenant("red", apiKeys=[{"secretName": "red"}])
    for kind, name in (("deployment", POOL), ("secret", f"{POOL}-permit-keys"), ("epochledger", POOL)):
        whole.until(lambda kind=kind, name=name: kubectl.exists(kind, name, whole.namespace))
    whole.endpoint()
    whole.mount_root_keys()
    whole.mount_permit_keys()
    whole.trust(whole.ours)
    whole.open_door(whole.ours)


def ready(whole: Whole) -> dict[str, Any]:
    """What the processor says of itself."""
    found: dict[str, Any] = json.loads(Client(whole.health_port, tls=False).get("/readyz").body)
    return found
