"""Statuses and ledgers on a real API server: written when they say something new, and only over what was read."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cachescope.api.statuses import Condition
from cachescope.kube.ledgers import create_ledger, read_ledger, replace_ledger
from cachescope.kube.rest import ApiError, ConflictError, Document, NotFoundError
from cachescope.kube.statuses import conditions, write_status
from tests.integration.crd_objects import NEXT, Server, changed, document


async def made(server: Server, kind: str) -> Document:
    manifest = document(kind)
    manifest["metadata"]["namespace"] = server.namespace
    return await server.rest.create(server.path(kind), manifest)


def status(live: Document, value: Any, at: str) -> dict[str, Any]:
    wanted = Condition(
        type="Accepted", status=value, observed_generation=1, last_transition_time=at, reason="Accepted", message="m"
    )
    found = conditions(live.get("status", {}).get("conditions", ()), [wanted])
    return {"observedGeneration": 1, "conditions": found, "accepted": []}


async def test_a_status_is_written_once_and_nothing_but_it(server: Server) -> None:
    tenant = await made(server, "Tenant")
    path = f"{server.path('Tenant')}/{tenant['metadata']['name']}"
    edited = {**copy.deepcopy(tenant), "spec": {**tenant["spec"], "suspended": True}}
    assert await write_status(server.rest, edited, status(tenant, "True", "2030-01-01T00:00:00Z"))
    live = await server.rest.get(path)
    assert live["spec"] == tenant["spec"]
    assert live["metadata"]["generation"] == 1
    assert not await write_status(server.rest, live, status(live, "True", "2030-01-02T00:00:00Z"))
    assert await server.rest.get(path) == live
    assert await write_status(server.rest, live, status(live, "False", "2030-01-02T00:00:00Z"))
    [condition] = (await server.rest.get(path))["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2030-01-02T00:00:00Z"


async def test_a_status_that_was_made_from_an_older_resource_is_a_conflict(server: Server) -> None:
    tenant = await made(server, "Tenant")
    path = f"{server.path('Tenant')}/{tenant['metadata']['name']}"
    await server.rest.merge(path, {"spec": {"suspended": True}})
    with pytest.raises(ConflictError):
        await write_status(server.rest, tenant, status(tenant, "True", "2030-01-01T00:00:00Z"))
    assert "status" not in await server.rest.get(path)


async def test_a_ledger_is_replaced_only_over_what_was_read(server: Server) -> None:
    assert await read_ledger(server.rest, server.namespace, "nothing") is None
    ledger = await made(server, "EpochLedger")
    with pytest.raises(ConflictError):
        await create_ledger(server.rest, {name: value for name, value in ledger.items() if name != "metadata"} | named(ledger))
    later = changed(ledger, NEXT)
    second = await replace_ledger(server.rest, later)
    assert await read_ledger(server.rest, server.namespace, ledger["metadata"]["name"]) == second
    with pytest.raises(ConflictError):
        await replace_ledger(server.rest, later)
    await server.rest.delete(f"{server.path('EpochLedger')}/{ledger['metadata']['name']}")
    with pytest.raises(NotFoundError):
        await replace_ledger(server.rest, second)


async def test_a_deletion_has_conditions_and_options(server: Server) -> None:
    tenant = await made(server, "Tenant")
    path, metadata = f"{server.path('Tenant')}/{tenant['metadata']['name']}", tenant["metadata"]
    for unmet in ({"uid": "another"}, {"uid": metadata["uid"], "resource_version": "1"}):
        with pytest.raises(ConflictError):
            await server.rest.delete(path, **unmet)
    with pytest.raises(ApiError, match="propagationPolicy"):
        await server.rest.delete(path, uid=metadata["uid"], propagationPolicy="Nonsense")
    assert await server.rest.get(path) == tenant
    await server.rest.delete(path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    await server.rest.delete(path)
    with pytest.raises(NotFoundError):
        await server.rest.get(path)


def named(live: Document) -> dict[str, Any]:
    return {"metadata": {name: live["metadata"][name] for name in ("name", "namespace")}}
