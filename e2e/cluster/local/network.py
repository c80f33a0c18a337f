"""The node's address and the kernel settings that pods need."""

import json
import shutil
from pathlib import Path

from e2e.cluster.commands import run, succeeds
from e2e.cluster.layout import Layout
from e2e.cluster.local import settings

MODULES = ("br_netfilter", "overlay", "ip_set")
# Pods are reached through the host, and their bridged traffic passes iptables, where Services and policies live.
WANTED = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}


def prepare(layout: Layout) -> None:
    """Creates the node's bridge and address, and sets the kernel's switches, remembering what they were."""
    if shutil.which("modprobe"):
        for module in MODULES:
            succeeds(["modprobe", module])  # it may be built in, which modprobe does not always know
    if not succeeds(["ip", "link", "show", settings.NODE_BRIDGE]):
        run(["ip", "link", "add", settings.NODE_BRIDGE, "type", "bridge"])
    run(["ip", "address", "replace", f"{settings.NODE_ADDRESS}/32", "dev", settings.NODE_BRIDGE])
    run(["ip", "link", "set", settings.NODE_BRIDGE, "up"])
    for network in (settings.SERVICE_NETWORK, settings.CLUSTER_NETWORK):
        # What no rule and no pod takes ends on this bridge, which leads nowhere, instead of leaving the machine.
        run(["ip", "route", "replace", network, "dev", settings.NODE_BRIDGE, "src", settings.NODE_ADDRESS])
    _set_switches(layout.cluster / "sysctl.json")


def restore(layout: Layout) -> None:
    """Removes the bridges and puts the kernel's switches back."""
    for bridge in (settings.NODE_BRIDGE, settings.POD_BRIDGE):
        succeeds(["ip", "link", "delete", bridge])
    remembered = layout.cluster / "sysctl.json"
    if remembered.exists():
        for name, value in json.loads(remembered.read_text()).items():
            (Path("/proc/sys") / name).write_text(value)


def _set_switches(remembered: Path) -> None:
    switches = {name: Path("/proc/sys") / name for name in WANTED}
    if not remembered.exists():
        before = {name: path.read_text().strip() for name, path in switches.items() if path.exists()}
        remembered.write_text(json.dumps(before))
    for name, path in switches.items():
        if path.exists():
            path.write_text(WANTED[name])
