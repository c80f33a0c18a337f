"""The few kubectl calls that every provider needs."""

import json

from e2e.cluster.commands import run
from e2e.cluster.image_names import full_name
from e2e.cluster.layout import Layout

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 4


def kubectl(layout: Layout, *arguments: str, stdin: str | None = None) -> str:
    """Runs kubectl as the cluster's administrator and returns its standard output."""
    return run([layout.program("kubectl"), "--kubeconfig", str(layout.kubeconfig), *arguments], stdin=stdin)


def node_names(layout: Layout) -> list[str]:
    """Lists the nodes."""
    return kubectl(layout, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()


def gpus(layout: Layout, node: str) -> str:
    """Reads how many GPUs the scheduler may give out on a node; empty when it has none."""
    return kubectl(layout, "get", "node", node, "-o", "jsonpath={.status.allocatable.nvidia\\.com/gpu}")


def announce_gpus(layout: Layout, node: str) -> None:
    """Writes GPUs into a node's status, so that pods that ask for one are scheduled.

    No device plugin stands behind them: a container gets no device, only its place. Kubernetes documents this way of
    advertising an extended resource; the kubelet keeps it across its own status updates.
    """
    amount = {GPU: str(GPUS_PER_NODE)}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    kubectl(layout, "patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)


def nodes_report(layout: Layout, image: str) -> bool:
    """Looks an image up in what the nodes say they have (each its 50 largest images)."""
    path = "jsonpath={range .items[*].status.images[*]}{.names}{end}"
    return f'"{full_name(image)}"' in kubectl(layout, "get", "nodes", "-o", path)
