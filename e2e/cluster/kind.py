"""A cluster made by kind, where docker or podman runs.

kind's own network plugin enforces NetworkPolicy since v0.24; an older kind leaves policies without effect, and tests of
them fail.
"""

from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import session
from e2e.cluster.commands import run
from e2e.cluster.kubectl import announce_gpus, kubectl, node_names, nodes_report
from e2e.cluster.layout import Layout
from e2e.cluster.progress import Progress, show

NAME = "cachescope"


class KindCluster:
    """Drives the ``kind`` command."""

    def __init__(self, layout: Layout, progress: Progress) -> None:
        self._layout = layout
        self._progress = progress

    def up(self) -> None:
        """Creates the cluster unless it exists, and advertises GPUs on its nodes."""
        self._layout.cluster.mkdir(parents=True, exist_ok=True)
        kubeconfig = str(self._layout.kubeconfig)
        with self._progress.step("kind cluster"):
            if NAME in run(["kind", "get", "clusters"]).split():
                run(["kind", "export", "kubeconfig", "--name", NAME, "--kubeconfig", kubeconfig])
            else:
                run(["kind", "create", "cluster", "--name", NAME, "--kubeconfig", kubeconfig, "--wait", "180s"])
        for node in node_names(self._layout):
            announce_gpus(self._layout, node)
        session.write(self._layout, provider="kind")

    def down(self, *, purge: bool) -> None:
        """Deletes the cluster; kind keeps nothing of ours, so ``purge`` adds nothing."""
        del purge
        with self._progress.step("kind cluster"):
            run(["kind", "delete", "cluster", "--name", NAME])
        session.forget(self._layout)

    def status(self) -> bool:
        """Shows the nodes."""
        show(kubectl(self._layout, "get", "nodes", "-o", "wide"))
        return True

    def load(self, archives: Sequence[Path]) -> None:
        """Loads archives into every node."""
        for archive in archives:
            with self._progress.step(f"load {archive.name}"):
                run(["kind", "load", "image-archive", str(archive), "--name", NAME])

    def has(self, image: str) -> bool:
        """Looks the image up in what the nodes report."""
        return nodes_report(self._layout, image)
