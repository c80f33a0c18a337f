"""Takes the local cluster down: exactly what is ours, in an order in which each part can still clean up after itself."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.commands import succeeds, wait_until
from e2e.cluster.layout import Layout
from e2e.cluster.local import components, firewall, network, settings
from e2e.cluster.local.processes import Process, ProcessTable, end, identify
from e2e.cluster.progress import Progress

CONTAINER_LOG_LINKS = Path("/var/log/containers")
CNI_RESULTS = Path("/var/lib/cni/results")
CGROUPS = Path("/sys/fs/cgroup")


def take_down(layout: Layout, table: ProcessTable, progress: Progress) -> None:
    """Ends and removes everything but logs and images."""
    with progress.step("stop pods"):
        _stop_pods(layout, table)
    with progress.step("stop components"):
        table.stop("kube-router", "kube-proxy", "kubelet")
        _remove_containers(layout)
        table.stop("containerd")
        end(_shims(layout))
        table.stop(*components.CONTROL_PLANE)
    with progress.step("remove network, mounts and files"):
        unmount(layout.cluster)
        network.restore(layout)
        if shutil.which("iptables"):
            firewall.clean()
        _remove_traces(layout)
        _remove_state(layout)


def _stop_pods(layout: Layout, table: ProcessTable) -> None:
    """Deletes all pods while the kubelet can still stop them; nobody is left who would create them again."""
    table.stop("kube-controller-manager", "kube-scheduler")
    if not (table.running("kube-apiserver") and table.running("kubelet")):
        return
    kubectl = [layout.program("kubectl"), "--kubeconfig", str(layout.kubeconfig)]
    succeeds([*kubectl, "delete", "pods", "--all", "--all-namespaces", "--now", "--timeout=20s"])


def _ctr(layout: Layout) -> list[str]:
    return ["ctr", "--address", str(layout.socket), "--namespace", settings.IMAGE_NAMESPACE]


def _remove_containers(layout: Layout) -> None:
    """Removes what the kubelet left in containerd, so that the kept image store holds images only."""
    script = 'for c in $("$@" containers list -q); do "$@" tasks delete --force "$c"; "$@" containers delete "$c"; done'
    succeeds(["timeout", "30", "sh", "-c", script, "sh", *_ctr(layout)])


def _shims(layout: Layout) -> Iterator[Process]:
    """Finds the container shims of our containerd, known by its socket on their command line; and what they run."""
    socket = str(layout.socket).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked
        if b"containerd-shim" in words[0] and socket in words:
            yield from _with_children(int(path.parent.name))


def _with_children(pid: int) -> Iterator[Process]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    for child in children:
        yield from _with_children(int(child))
    if process := identify(pid):
        yield process


def mounts_below(table: str, folder: str) -> list[str]:
    """Lists the mount points below a folder, innermost first.

    Args:
        table: Text of ``/proc/self/mounts``.
        folder: Absolute path; a mount on the folder itself is not ours.

    Returns:
        Mount points, in the order in which they can be unmounted.
    """
    points = [line.split()[1].encode().decode("unicode_escape") for line in table.splitlines()]
    return [point for point in reversed(points) if point.startswith(f"{folder}/")]


def unmount(folder: Path) -> None:
    """Unmounts everything below a folder, what is busy by leaving it to the kernel."""

    def all_gone() -> bool:
        points = mounts_below(Path("/proc/self/mounts").read_text(), str(folder))
        for point in points:
            succeeds(["umount", point])
        return not points

    if not wait_until(all_gone, seconds=10):
        for point in mounts_below(Path("/proc/self/mounts").read_text(), str(folder)):
            succeeds(["umount", "--lazy", point])


def _remove_traces(layout: Layout) -> None:
    """Removes what components write outside our folder: log links, network results, control groups of pods."""
    if CONTAINER_LOG_LINKS.exists():
        for link in CONTAINER_LOG_LINKS.iterdir():
            if link.is_symlink() and str(link.readlink()).startswith(str(layout.cluster)):
                link.unlink()
    if CNI_RESULTS.exists():
        for result in CNI_RESULTS.glob(f"{settings.CNI_NETWORK_NAME}-*"):
            result.unlink()
    for group in [*CGROUPS.glob("*/kubepods"), *CGROUPS.glob("kubepods")]:
        _remove_group(group)


def _remove_group(group: Path) -> None:
    """Removes a control group from its leaves up; the kernel refuses one that still holds a process, rightly."""
    for child in group.iterdir():
        if child.is_dir():
            _remove_group(child)
    succeeds(["rmdir", str(group)])


def _remove_state(layout: Layout) -> None:
    for path in layout.cluster.iterdir():
        if path in {layout.log, layout.provider}:  # the record goes last: without it, `down` has nothing to do
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
