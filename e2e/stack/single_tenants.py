"""Pools of single tenants on the cluster: which belongs to whom, and what their pods are."""

from __future__ import annotations

from typing import Any

from e2e.stack import kubectl, stub_pool
from e2e.stack.waiting import until

READY_SECONDS = 180


def pools_of(template: str, namespace: str) -> dict[str, dict[str, Any]]:
    """The pools that were made of one, by the names of their tenants."""
    found = kubectl.get("servingpools", namespace=namespace)["items"]
    dedicated = [item for item in found if (item["spec"].get("dedicatedTo") or {}).get("poolName") == template]
    return {item["spec"]["dedicatedTo"]["tenantName"]: item for item in dedicated}


def pods_of(template: str, tenant: str, namespace: str) -> list[dict[str, Any]]:
    """The engine pods of a tenant that stay."""
    pool = pools_of(template, namespace).get(tenant)
    return kubectl.staying_pods(stub_pool.pods(pool["metadata"]["name"]), namespace) if pool else []


def await_pools(template: str, namespace: str, *tenants: str) -> None:
    """Wait until exactly these tenants have a pool, and each is ready.

    Raises:
        TimeoutError: They have not within that time.
    """

    def settled() -> bool:
        found = pools_of(template, namespace)
        ready = all(kubectl.condition(item, "Ready").get("status") == "True" for item in found.values())
        return ready and set(found) == set(tenants)

    until(settled, f"{template} has a ready pool for each of {', '.join(tenants)}; see `kubectl get servingpools`", READY_SECONDS)
