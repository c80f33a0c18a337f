"""Removes the iptables rules and sets that kube-proxy, the kubelet, kube-router and the CNI plugins leave."""

import re

from e2e.cluster.commands import run, succeeds

TABLES = ("filter", "nat", "mangle")
OURS = ("KUBE-", "CNI-")
# kube-router ends its work with one rule in a chain of the system's.
MARK_RULE = "comply to network policies"


def removal(saved: str, table: str) -> str:
    """Builds what removes a Kubernetes node's rules from one table, and leaves all others.

    Args:
        saved: Output of ``iptables-save -t <table>``.
        table: Name of the table.

    Returns:
        Input for ``iptables-restore --noflush``; empty when there is nothing to remove.
    """
    chains = [name for name in re.findall(r"^:(\S+)", saved, re.MULTILINE) if name.startswith(OURS)]
    rules = [line for line in saved.splitlines() if line.startswith("-A ") and _leads_to_ours(line)]
    if not chains and not rules:
        return ""
    lines = [f"*{table}", *(f"-D{line[2:]}" for line in rules)]
    lines += [f"-F {chain}" for chain in chains] + [f"-X {chain}" for chain in chains]
    return "\n".join([*lines, "COMMIT", ""])


def _leads_to_ours(rule: str) -> bool:
    chain = rule.split()[1]
    target = re.search(r" -[jg] (\S+)", rule)
    to_ours = target is not None and target.group(1).startswith(OURS)
    return not chain.startswith(OURS) and (to_ours or MARK_RULE in rule)


def clean() -> None:
    """Removes the rules of both IP versions, then the sets, which rules no longer hold."""
    for family in ("iptables", "ip6tables"):
        for table in TABLES:
            if not succeeds([f"{family}-save", "-t", table]):
                continue
            script = removal(run([f"{family}-save", "-t", table]), table)
            if script:
                run([f"{family}-restore", "--noflush"], stdin=script)
    for name in _sets(run(["ipset", "list", "-name"])):
        succeeds(["ipset", "destroy", name])


def _sets(listed: str) -> list[str]:
    prefixes = ("KUBE-", "inet6:KUBE-", "kube-router-", "inet6:kube-router-")
    return [name for name in listed.split() if name.startswith(prefixes)]
