"""What gateways say that they have applied, by their leases: the fence of what no CacheEpoch asked for."""

from __future__ import annotations

from cachescope.core.leases import GATEWAY, lease_keys, read_lease
from cachescope.core.ledgers import Ledger, authorization_key
from e2e.stack import kubectl
from e2e.stack.install import GATEWAY_PODS, Stack


def every_gateway_has(stack: Stack, head: Ledger) -> bool:
    """Whether each gateway that is there has acknowledged the authorization head, or a later one of its lineage."""
    living = {pod["metadata"]["uid"] for pod in kubectl.staying_pods(GATEWAY_PODS)}
    return bool(living) and living <= _acknowledging(stack, head)


def _acknowledging(stack: Stack, head: Ledger) -> set[str]:
    """UIDs of the pods of those that have."""
    keys, found = lease_keys(stack.root_keys), set()
    for item in kubectl.get("fenceleases")["items"]:
        if item["spec"]["holder"] == GATEWAY:
            statement = read_lease(keys, item["spec"]["statement"], name=item["metadata"]["name"])
            mark = statement.acknowledged.get(authorization_key(kubectl.NAMESPACE))
            if mark is not None and mark.lineage == head.lineage and mark.sequence >= head.sequence:
                found.add(statement.pod_uid)
    return found
