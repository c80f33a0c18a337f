"""An existing cluster, named by KUBECONFIG: used, and never changed by ``up`` or ``down``."""

import os
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import session
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.kubectl import kubectl, nodes_report
from e2e.cluster.layout import Layout
from e2e.cluster.progress import Progress, show


class ExistingCluster:
    """Verifies the cluster and writes the files that the other providers write."""

    def __init__(self, layout: Layout, progress: Progress) -> None:
        self._layout = layout
        self._progress = progress

    def up(self) -> None:
        """Copies the current context into the layout and asks the API server whether it is ready."""
        if not os.environ.get("KUBECONFIG"):
            raise ClusterSetupError("KUBECONFIG is not set", remedy="export KUBECONFIG=<file> and try again.")
        self._layout.cluster.mkdir(parents=True, exist_ok=True)
        flat = run(["kubectl", "config", "view", "--raw", "--flatten", "--minify"])
        self._layout.kubeconfig.touch(mode=0o600)
        self._layout.kubeconfig.write_text(flat)
        with self._progress.step("existing cluster"):
            kubectl(self._layout, "get", "--raw", "/readyz")
        session.write(self._layout, provider="kubeconfig")

    def down(self, *, purge: bool) -> None:
        """Forgets the cluster; nothing of it is removed, whatever ``purge`` says."""
        del purge
        session.forget(self._layout)
        self._progress.line("forgot the existing cluster; nothing in it was removed")

    def status(self) -> bool:
        """Shows the nodes."""
        show(kubectl(self._layout, "get", "nodes", "-o", "wide"))
        return True

    def load(self, archives: Sequence[Path]) -> None:
        """Refuses: the nodes of an existing cluster pull from a registry.

        Raises:
            ClusterSetupError: Always.
        """
        names = " ".join(str(archive) for archive in archives)
        raise ClusterSetupError(
            f"images of an existing cluster come from its registry: {names} cannot be loaded",
            remedy="name a registry that its nodes pull from: `make demo PROVIDER=kubeconfig REGISTRY=<registry>/<prefix>` "
            "builds the images, pushes them there, and installs them by those names.",
        )

    def has(self, image: str) -> bool:
        """Looks the image up in what the nodes report."""
        return nodes_report(self._layout, image)
