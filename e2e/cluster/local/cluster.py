"""The local cluster as a whole: the order in which its parts come up, and the waits between them.

Every step looks first whether it is done, so ``up`` on a running cluster is short, and ``up`` on a damaged one repairs it.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster import session
from e2e.cluster.commands import succeeds, wait_until
from e2e.cluster.errors import ClusterSetupError, component_error
from e2e.cluster.kubectl import GPUS_PER_NODE, announce_gpus, gpus, kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.local import binaries, components, configs, images, network, packages, pki, settings, teardown
from e2e.cluster.local.processes import ProcessTable, Program
from e2e.cluster.progress import Progress, show

DNS_MANIFEST = Path(__file__).with_name("coredns.yaml")


class LocalCluster:
    """Runs Kubernetes' components as processes of this machine."""

    def __init__(self, layout: Layout, progress: Progress) -> None:
        self._layout = layout
        self._progress = progress
        self._table = ProcessTable(layout.cluster / "processes.json", logs=layout.log, progress=progress)

    def up(self) -> None:
        """Brings up what does not run."""
        self._table.require_ports(components.all_programs(self._layout))
        self._obtain_programs()
        if not session.recorded_provider(self._layout):
            shutil.rmtree(self._layout.log, ignore_errors=True)  # of the cluster before this one
        self._layout.log.mkdir(parents=True, exist_ok=True)
        binaries.link(self._layout)
        pki.create(self._layout)
        configs.write(self._layout)
        session.write(self._layout, provider="local")  # from here on, `down` has something to take down
        network.prepare(self._layout)
        self._start_control_plane()
        self._start_node()
        self._start_dns()

    def down(self, *, purge: bool) -> None:
        """Ends our processes and removes their mounts, links, rules and files; logs stay, and images unless purged."""
        if session.recorded_provider(self._layout):
            teardown.take_down(self._layout, self._table, self._progress)
            session.forget(self._layout)
        else:
            self._progress.line("no cluster is up")
        if purge:
            with self._progress.step("remove images and programs"):
                for folder in (self._layout.images, self._layout.bin, self._layout.downloads):
                    shutil.rmtree(folder, ignore_errors=True)

    def status(self) -> bool:
        """Shows the components and the node."""
        names = [program.name for program in components.all_programs(self._layout)]
        records = self._table.records()
        running = {name: self._table.running(name) for name in names}
        for name, runs in running.items():
            state = f"running (pid {records[name].process.pid})" if runs else f"NOT running, see {self._table.log(name)}"
            show(f"{name:24} {state}")
        if running["kube-apiserver"]:
            show(kubectl(self._layout, "get", "nodes", "-o", "wide"))
        return all(running.values())

    def load(self, archives: Sequence[Path]) -> None:
        """Imports archives into the node's image store."""
        for archive in archives:
            if not archive.exists():
                raise ClusterSetupError(f"{archive} does not exist", remedy="build the images first.")
            with self._progress.step(f"load {archive.name}"):
                for line in images.load(self._layout, archive):
                    self._progress.line(line)

    def has(self, image: str) -> bool:
        """Looks an image up in the node's image store."""
        return images.present(self._layout, image)

    def _obtain_programs(self) -> None:
        with ThreadPoolExecutor(max_workers=2) as pool:
            building = pool.submit(binaries.build, self._layout, self._progress)
            packages.install(self._progress)
            building.result()

    def _start_control_plane(self) -> None:
        layout = self._layout
        self._run(components.etcd(layout), self._etcd_healthy, seconds=30)
        self._run(components.apiserver(layout), lambda: self._answers("/readyz"), seconds=60)
        self._table.ensure(components.controller_manager(layout))
        self._table.ensure(components.scheduler(layout))

    def _start_node(self) -> None:
        layout = self._layout
        listens = ["ctr", "--address", str(layout.socket), "version"]
        self._run(components.containerd(layout), lambda: succeeds(listens), seconds=30)
        images.ensure_own_images(layout)
        restarted = self._table.ensure(components.kubelet(layout))
        self._table.ensure(components.kube_proxy(layout))
        self._await("kubelet", self._node_ready, what="the node is not Ready", seconds=90)
        has_chains = ["iptables", "-w", "-S", "KUBE-ROUTER-FORWARD"]  # kube-router looks its node up, and ends without one
        self._run(components.kube_router(layout), lambda: succeeds(has_chains), seconds=30)
        if restarted or gpus(layout, settings.NODE) != str(GPUS_PER_NODE):
            announce_gpus(layout, settings.NODE)
            self._progress.line(f"node {settings.NODE} is Ready, with {GPUS_PER_NODE} GPUs by name")

    def _start_dns(self) -> None:
        manifest = DNS_MANIFEST.read_text().replace("IMAGE", images.dns_image())
        kubectl(self._layout, "apply", "--server-side", "-f", "-", stdin=manifest)
        # After an outage all pods count as not Ready, until the kubelet has told of each again.
        self._await("kubelet", self._dns_ready, what="the DNS pod is not Ready", seconds=180)

    def _etcd_healthy(self) -> bool:
        etcdctl = str(binaries.program(self._layout, "etcdctl"))
        return succeeds([etcdctl, f"--endpoints={settings.ETCD_URL}", "endpoint", "health"])

    def _answers(self, path: str) -> bool:
        return succeeds([*self._kubectl(), "get", "--raw", path])

    def _kubectl(self) -> list[str]:
        return [self._layout.program("kubectl"), "--kubeconfig", str(self._layout.kubeconfig)]

    def _node_ready(self) -> bool:
        answer = json.loads(kubectl(self._layout, "get", "nodes", "-o", "json"))
        conditions = [each for node in answer["items"] for each in node["status"].get("conditions", ())]
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return ready and self._answers(f"/api/v1/nodes/{settings.NODE}/proxy/healthz")

    def _dns_ready(self) -> bool:
        path = "jsonpath={.status.readyReplicas}"
        return kubectl(self._layout, "-n", "kube-system", "get", "deployment", "coredns", "-o", path) == "1"

    def _run(self, program: Program, ready: Callable[[], bool], *, seconds: float) -> None:
        self._table.ensure(program)
        self._await(program.name, ready, what="is not ready", seconds=seconds)

    def _await(self, name: str, holds: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Waits for a condition, but no longer than the component lives."""

        def decided() -> bool:
            try:
                return holds() or not self._table.running(name)
            except ClusterSetupError:
                return False  # a kubectl that failed once; the deadline decides

        ended = wait_until(decided, seconds=seconds)
        if not self._table.running(name):
            raise component_error(name, "it ended", log=self._table.log(name))
        if not ended:
            raise component_error(name, f"{what} after {seconds:.0f} s", log=self._table.log(name))
