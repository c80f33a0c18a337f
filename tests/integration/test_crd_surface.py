"""What kubectl, autoscalers and GitOps tools meet: defaults, scale, status, columns, names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.kube.rest import ApiError
from e2e.stack import kubectl
from tests.integration.crd_objects import SPECS, Server, changed, document

CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z", "reason": "Routable", "message": ""}


async def test_the_api_server_sets_plain_defaults_and_no_whole_blocks(server: Server) -> None:
    spec = (await server.try_create(document("ServingPool")))["spec"]
    expected = {"replicas": 1, "model": SPECS["ServingPool"]["model"], "engine": {**SPECS["ServingPool"]["engine"], "type": "vLLM"}}
    assert spec == expected


async def test_a_block_that_is_there_gets_its_defaults(server: Server) -> None:
    empty = {
        "spec.rollout": {},
        "spec.fence": {},
        "spec.guard": {},
        "spec.gpus": {"count": 1},
        "spec.allowedTenants": {"namespaces": {}},
    }
    spec = (await server.try_create(document("ServingPool", empty)))["spec"]
    assert spec["rollout"] == {"strategy": "SpareFirst", "guardUpdates": "WithNextRollout"}
    assert spec["fence"] == {"leaseSeconds": 60, "onLoss": "Fresh", "freshSeconds": 120, "cleanup": "None"}
    assert spec["guard"] == {"mode": "InProcess"}
    assert spec["gpus"] == {"count": 1, "resourceName": "nvidia.com/gpu"}
    assert spec["allowedTenants"] == {"namespaces": {"from": "Same"}}


@pytest.mark.parametrize("kind", ["ServingPool", "Tenant", "CacheScope", "PublicSource", "CacheEpoch"])
def test_applying_the_same_again_changes_nothing(crd_namespace: str, kind: str) -> None:
    text = json.dumps(document(kind))
    assert "created" in kubectl.run("apply", "-f", "-", stdin=text, namespace=crd_namespace)
    assert "unchanged" in kubectl.run("apply", "-f", "-", stdin=text, namespace=crd_namespace)
    assert kubectl.run("diff", "-f", "-", stdin=text, namespace=crd_namespace) == ""


async def test_items_of_lists_are_stored_as_they_were_written(server: Server) -> None:
    tenant = document("Tenant")
    assert (await server.try_create(tenant))["spec"]["identities"] == tenant["spec"]["identities"]


async def test_an_autoscaler_scales_the_pool_and_a_manifest_without_replicas_leaves_it(server: Server) -> None:
    manifest = document("ServingPool")
    path = server.path("ServingPool", manifest["metadata"]["name"])
    await server.rest.apply(path, manifest, "gitops")
    await server.rest.merge(f"{path}/scale", {"spec": {"replicas": 3}})
    assert (await server.rest.apply(path, manifest, "gitops"))["spec"]["replicas"] == 3
    assert (await server.rest.get(f"{path}/scale"))["spec"] == {"replicas": 3}
    with pytest.raises(ApiError, match=r"spec\.replicas"):
        await server.rest.merge(f"{path}/scale", {"spec": {"replicas": 1001}})


async def test_the_scale_says_how_many_pods_there_are_and_which(server: Server) -> None:
    pool = await server.create(document("ServingPool"))
    status = {"replicas": 2, "selector": "cachescope.dev/pool=tiny"}
    await server.replace({**pool, "status": status}, subresource="/status")
    assert (await server.get(pool, subresource="/scale"))["status"] == status


async def test_a_status_is_written_apart_from_the_spec(server: Server) -> None:
    tenant = await server.create(document("Tenant"))
    written = await server.replace(changed(tenant, {"spec.suspended": True, "status": _ready()}), subresource="/status")
    assert (written["spec"], written["status"]) == (tenant["spec"], _ready())
    assert written["metadata"]["generation"] == 1
    kept = await server.replace(changed(written, {"spec.suspended": True, "status": {}}))
    assert (kept["spec"]["suspended"], kept["status"], kept["metadata"]["generation"]) == (True, _ready(), 2)


async def test_two_conditions_of_one_type_are_refused(server: Server) -> None:
    pool = await server.create(document("ServingPool"))
    with pytest.raises(ApiError, match="Duplicate value"):
        await server.replace({**pool, "status": {"conditions": [CONDITION, CONDITION]}}, subresource="/status")
    await server.replace({**pool, "status": {"conditions": [CONDITION]}}, subresource="/status")


async def test_columns_say_what_people_ask_first(server: Server) -> None:
    pool = await server.create(document("ServingPool"))
    status = {**_ready(), "mode": "Shared", "epoch": 7, "routable": 1}
    await server.replace({**pool, "status": status}, subresource="/status")
    shown = _table(server, "spool", pool["metadata"]["name"])
    assert {name: shown[name] for name in ("READY", "MODE", "EPOCH", "ROUTABLE")} == {
        "READY": "True", "MODE": "Shared", "EPOCH": "7", "ROUTABLE": "1",
    }  # fmt: skip
    assert list(shown) == ["NAME", "READY", "MODE", "EPOCH", "ROUTABLE", "ISOLATED", "AGE"]
    wide = _table(server, "spool", pool["metadata"]["name"], "-o", "wide")
    assert {name: wide[name] for name in ("REASON", "REPLICAS", "ENGINE", "MODEL")} == {
        "REASON": "Routable", "REPLICAS": "1", "ENGINE": "0.11.0", "MODEL": "tiny",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "short", "columns"),
    [
        ("Tenant", "ctenant", {"SUSPENDED": "false"}),
        ("CacheScope", "cscope", {"CLASS": "Tenant"}),
        ("PublicSource", "psource", {"TITLE": "Terms"}),
        ("CacheEpoch", "cepoch", {"KIND": "ServingPool", "TARGET": "tiny"}),
        ("EpochLedger", "eledger", {"ROLE": "Shard", "SEQUENCE": "1", "BASE": "4"}),
        ("FenceLease", "flease", {"HOLDER": "Guard", "POOL": "tiny", "POD": "tiny-0", "VERSION": "0.1.0"}),
    ],
)
async def test_every_kind_has_a_short_name_columns_and_the_category(
    server: Server, kind: str, short: str, columns: dict[str, str]
) -> None:
    made = await server.create(document(kind))
    name = made["metadata"]["name"]
    assert columns.items() <= _table(server, short, name).items()
    assert f"{kind.lower()}.cachescope.dev/{name}" in kubectl.run("get", "cachescope-dev", "-o", "name", namespace=server.namespace)
    assert kubectl.run("get", kind.lower(), name, "-o", "name", namespace=server.namespace)


def _ready() -> dict[str, Any]:
    return {"observedGeneration": 1, "conditions": [CONDITION]}


def _table(server: Server, *arguments: str) -> dict[str, str]:
    """The one row that kubectl prints, by column; columns are cut where their titles begin, since cells may be empty."""
    titles, row = kubectl.run("get", *arguments, namespace=server.namespace).splitlines()
    names = titles.split()
    starts = [titles.index(f" {name}") + 1 if number else 0 for number, name in enumerate(names)]
    ends = [*starts[1:], len(row)]
    return {name: row[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)}
