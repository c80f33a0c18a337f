"""Renders the demo's installation from its examples and applies it."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cachescope.api.documents import read_documents
from cachescope.api.resources import ServingPool
from cachescope.cli.render import declare
from cachescope.core.epochs import Floors, epoch, target_name
from cachescope.core.heads import Head, parse_head
from cachescope.core.keys import target_key
from cachescope.core.types import TargetKind, TargetName
from cachescope.manifests.configuration import gateway_head, pool_head, write_head
from cachescope.manifests.installation import Declared, installation
from cachescope.manifests.parts import Site
from e2e.stack import kubectl
from e2e.stack.credentials import Credentials, load
from e2e.stack.paths import EXAMPLES, ROOT, STATE

GATEWAY = "cachescope-gateway"
POOL = "tiny"


@dataclass(frozen=True)
class Stack:
    """An installation on the cluster.

    Attributes:
        site: Namespace and images.
        declared: What was declared.
        credentials: Its secrets.
        ledger: The file with the epochs that stand; it outlives a run, since epochs never fall.
    """

    site: Site
    declared: Declared
    credentials: Credentials
    ledger: Path

    @property
    def pool(self) -> ServingPool:
        """The demo's pool."""
        return self.declared.pools[0]

    @property
    def head(self) -> Head:
        """The epochs that stand."""
        return parse_head(json.loads(self.ledger.read_text()))

    @property
    def pool_target(self) -> TargetName:
        """Name of the pool's epoch target."""
        return target_name(target_key(self.credentials.root_keys), TargetKind.POOL, self.pool.uid)

    def raise_pool_epoch(self) -> Head:
        """Roll the pool's epoch forward by one, for gateways and guards."""
        before = self.head
        raised = epoch(before.floors.floor(self.pool_target) + 1)
        floors = Floors({**before.floors.by_target, self.pool_target: raised}, before.floors.base)
        head = Head(before.lineage, before.sequence + 1, floors)
        self.ledger.write_text(write_head(head))
        kubectl.apply([gateway_head(self.site, head), pool_head(self.site, self.pool, head)])
        return head

    def manifests(self) -> list[dict[str, Any]]:
        """Every object of the installation."""
        rendered = installation(self.site, self.declared, self.credentials.root_keys, self.head)
        return [_namespace(self.site), *self._secrets(), *rendered]

    def _secrets(self) -> list[dict[str, Any]]:
        return [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": self.site.namespace}, "stringData": data}
            for name, data in self.credentials.secrets().items()
        ]


def prepare() -> Stack:
    """Read the examples, the images that were built, and the state of earlier runs."""
    images = json.loads(
        subprocess.run([sys.executable, "-m", "images", "list", "--json"], cwd=ROOT, capture_output=True, check=True).stdout
    )
    declared = _declared(images["vllm-cpu"])
    site = Site(kubectl.NAMESPACE, images["gateway"], images["guard"])
    return Stack(site, declared, load(STATE / "credentials.json"), _ledger())


def install(stack: Stack) -> None:
    """Apply the installation and wait until it has rolled out."""
    manifests = stack.manifests()
    kubectl.apply(manifests[:1])
    kubectl.apply(manifests[1:])
    kubectl.rolled_out(GATEWAY)
    kubectl.rolled_out(POOL, seconds=600)


def _namespace(site: Site) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": site.namespace, "labels": labels}}


def _declared(image: str) -> Declared:
    resources = _with_image((EXAMPLES / "resources.yaml").read_text(), image)
    return declare((EXAMPLES / "settings.yaml").read_text(), resources, source="examples/demo/resources.yaml")


def _with_image(text: str, image: str) -> str:
    documents = read_documents(text, "resources.yaml")
    for document in documents:
        if document["kind"] == "ServingPool":
            document["spec"]["engine"]["image"] = image
    return yaml.safe_dump_all(documents, sort_keys=False)


def _ledger() -> Path:
    path = STATE / "head.json"
    if not path.exists():
        path.write_text(write_head(Head(secrets.token_hex(16), 1, Floors(base=epoch(1)))))
    return path
