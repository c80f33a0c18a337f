"""Which cluster is used: the choice between the providers, and what each must do."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from e2e.cluster.commands import succeeds
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.existing import ExistingCluster
from e2e.cluster.kind import KindCluster
from e2e.cluster.layout import Layout
from e2e.cluster.local.cluster import LocalCluster
from e2e.cluster.progress import Progress

PROVIDERS = ("local", "kind", "kubeconfig")


class Provider(Protocol):
    """A way to have a cluster."""

    def up(self) -> None:
        """Brings the cluster up, or repairs it; leaves kubeconfig and environment file in the layout."""

    def down(self, *, purge: bool) -> None:
        """Takes down what ``up`` made; with ``purge``, also what was kept to make the next ``up`` fast."""

    def status(self) -> bool:
        """Shows the cluster's parts and tells whether all of them run."""

    def load(self, archives: Sequence[Path]) -> None:
        """Brings image archives to the nodes."""

    def has(self, image: str) -> bool:
        """Tells whether the nodes have an image."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the choice depends on."""

    linux: bool
    root: bool
    container_engine: bool
    kind: bool


def observe_host() -> Host:
    """Looks at this machine. An engine counts when its daemon answers, not when its command exists."""
    engine = any(succeeds([command, "info"]) for command in ("docker", "podman"))
    return Host(
        linux=sys.platform == "linux",
        root=os.geteuid() == 0,
        container_engine=engine,
        kind=shutil.which("kind") is not None,
    )


def choose(wanted: str, environment: str | None, host: Callable[[], Host]) -> str:
    """Chooses a provider.

    Args:
        wanted: The command line's word: a provider, or ``auto``.
        environment: Value of CACHESCOPE_PROVIDER, which ``auto`` follows.
        host: Looks at the machine; called only when nobody chose.

    Returns:
        A name of ``PROVIDERS``.

    Raises:
        ClusterSetupError: The name is none of them, or nothing fits this machine.
    """
    name = environment or "auto" if wanted == "auto" else wanted
    if name in PROVIDERS:
        return name
    if name != "auto":
        raise ClusterSetupError(f"unknown provider {name!r}", remedy=f"choose one of: {', '.join(PROVIDERS)}.")
    seen = host()
    if seen.container_engine and seen.kind:
        return "kind"
    if seen.linux and seen.root and not seen.container_engine:
        return "local"
    raise ClusterSetupError(
        "no provider fits this machine by itself",
        remedy="install kind beside docker or podman; or set KUBECONFIG and pass `--provider kubeconfig`; "
        "or, on a Linux machine that may run Kubernetes as root, pass `--provider local`.",
    )


def provider(name: str, layout: Layout, progress: Progress) -> Provider:
    """Builds the provider of that name."""
    kinds: dict[str, type[LocalCluster] | type[KindCluster] | type[ExistingCluster]] = {
        "local": LocalCluster,
        "kind": KindCluster,
        "kubeconfig": ExistingCluster,
    }
    return kinds[name](layout, progress)
