"""What may be changed: every write starts from a real object, and a refused one leaves it as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from cachescope.core.ledger_documents import parse_ledger, write_ledger
from cachescope.core.ledgers import LedgerFork, Lineage, advanced, followed, reborn
from cachescope.core.pool_rules import first_ledger
from cachescope.core.types import Epoch, TargetName
from cachescope.kube.rest import ApiError
from tests.integration.crd_objects import (
    DENIED,
    HEAD,
    LINEAGE,
    MISSING,
    NEW_LINEAGE,
    NEXT,
    OTHER,
    POD_UID,
    SHARD_MARK,
    SPECS,
    TARGET,
    Changes,
    Server,
    changed,
    document,
)

LATER = {"spec.lineage": {"generation": 8, "id": NEW_LINEAGE}}
INCIDENT = "c" * 64
FALLS = "a floor never falls within a lineage"
LEAVES = "raise the base first"
REFUSES = "what refuses credentials never leaves"
COUNTED = "keep every entry"
CHAINED = "a state of a ledger names the digest of the one before it"
DEDICATED = {"poolName": "tiny", "poolUid": POD_UID, "tenantName": "red", "tenantUid": POD_UID}
BECOMES = "engines of one tenant never become another's"
WITHOUT_OTHER = {f"spec.{field}.{OTHER}": MISSING for field in ("floors", "denied", "readmitted", "changed")}
WITHOUT_TARGET = {f"spec.{field}.{TARGET}": MISSING for field in ("floors", "abortBelow", "drainSeconds", "changed")}
WITHOUT_DENIED = {f"spec.{field}.{DENIED}": MISSING for field in ("floors", "denied", "issuedBefore", "changed")}
EMPTY: Changes = {
    f"spec.{field}": {}
    for field in ("floors", "abortBelow", "drainSeconds", "denied", "readmitted", "issuedBefore", "changed", "incidents")
}

TAKEN: list[tuple[str, Changes]] = [
    ("ServingPool", {"spec.model.name": "other", "spec.engine.version": "0.12.0"}),
    ("Tenant", {"spec.suspended": True}),
    ("CacheScope", {"spec.class": "Request"}),
    ("PublicSource", {"spec.withdrawn": True}),
    ("PublicSource", {"spec.approval": MISSING}),
    ("CacheEpoch", {"spec.floor": 1}),
    ("CacheEpoch", {"spec.floor": MISSING, "spec.incident": {"id": "leak-2", "stopPublicSharing": False, "bypassReuse": False}}),
    ("EpochLedger", {"metadata.labels": {"a": "b"}}),
    ("EpochLedger", NEXT),
    ("EpochLedger", {**NEXT, "spec.base": 5, f"spec.floors.{TARGET}": 10, f"spec.floors.{'d' * 64}": 1}),
    ("EpochLedger", {**NEXT, f"spec.abortBelow.{TARGET}": 9, f"spec.abortBelow.{OTHER}": 1, f"spec.drainSeconds.{TARGET}": 10}),
    ("EpochLedger", {**NEXT, f"spec.drainSeconds.{TARGET}": MISSING}),
    ("EpochLedger", {**NEXT, f"spec.denied.{DENIED}": 7, f"spec.readmitted.{DENIED}": 8, f"spec.issuedBefore.{DENIED}": 1001}),
    ("EpochLedger", {**NEXT, "spec.base": 5, **WITHOUT_OTHER}),
    ("EpochLedger", {**NEXT, "spec.base": 9, **WITHOUT_TARGET}),
    ("EpochLedger", {**NEXT, f"spec.incidents.{'d' * 64}": 10}),
    ("EpochLedger", {**NEXT, "spec.flags": {"publicStopped": 4, "bypassed": 4, "resumed": 4}}),
    ("EpochLedger", {**NEXT, "spec.reach": 2, "spec.restored": 3, "spec.confirmed": 2}),
    ("EpochLedger", {**EMPTY, **LATER, "spec.base": 1}),
    ("FenceLease", {"metadata.labels": {"a": "b"}}),
    ("FenceLease", {"spec.tick": 1001, "spec.sequence": 2, "spec.statement": "other"}),
]

REFUSED: list[tuple[str, Changes, str]] = [
    ("ServingPool", {"spec.dedicatedTo": DEDICATED}, BECOMES),
    ("CacheEpoch", {"spec.target.name": "other"}, "make another CacheEpoch"),
    ("CacheEpoch", {"spec.target": MISSING}, "spec.target: Required value"),
    ("CacheEpoch", {"spec.floor": MISSING}, "set floor, or incident, or both"),
    ("PublicSource", {"spec.digest": f"sha256:{'2' * 64}"}, "the approval is of that text; make another PublicSource"),
    # Lowering
    ("EpochLedger", {"spec.base": 5}, "the ledger is at sequence 1 and 1 was written"),
    ("EpochLedger", {**NEXT, "spec.sequence": 3}, "the ledger is at sequence 1 and 3 was written"),
    ("EpochLedger", {**NEXT, "spec.previousDigest": f"sha256:{'2' * 64}"}, CHAINED),
    ("EpochLedger", {**NEXT, "spec.previousDigest": ""}, CHAINED),
    ("EpochLedger", {**NEXT, "spec.history": ["2" * 32]}, "add one entry"),
    ("EpochLedger", {**NEXT, "spec.history": ["3" * 32, "2" * 32]}, "add one entry"),
    ("EpochLedger", {**NEXT, "spec.history": ["1" * 32, "3" * 32]}, "ends with its own digest"),
    ("EpochLedger", {**NEXT, "spec.base": 3}, "the base is 4 and 3 was written"),
    ("EpochLedger", {**NEXT, "spec.reach": 0}, "the reach is 1 and 0 was written"),
    ("EpochLedger", {**NEXT, "spec.restored": 1}, "the number of restores is 2 and 1 was written"),
    ("EpochLedger", {**NEXT, "spec.confirmed": 0}, "the number of confirmed restores is 1 and 0 was written"),
    ("EpochLedger", {**NEXT, "spec.confirmed": 3}, "set restored first"),
    ("EpochLedger", {**NEXT, "spec.flags.publicStopped": 2}, "the epoch that stopped public sharing is 3 and 2 was written"),
    ("EpochLedger", {**NEXT, "spec.flags.bypassed": 1}, "the epoch that switched reuse off is 2 and 1 was written"),
    ("EpochLedger", {**NEXT, "spec.flags.resumed": 0}, "the epoch that resumed is 1 and 0 was written"),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": 8}, FALLS),
    ("EpochLedger", {**NEXT, "spec.base": 20, f"spec.floors.{TARGET}": 8}, FALLS),
    ("EpochLedger", {**NEXT, f"spec.abortBelow.{TARGET}": 7}, "the epoch below which requests are cut never falls"),
    ("EpochLedger", {**NEXT, f"spec.denied.{DENIED}": 5}, "the epoch of a denial never falls"),
    ("EpochLedger", {**NEXT, f"spec.readmitted.{OTHER}": 4}, "the epoch of a readmission never falls"),
    ("EpochLedger", {**NEXT, f"spec.issuedBefore.{DENIED}": 999}, "the second before which credentials are refused never falls"),
    ("EpochLedger", {**NEXT, f"spec.changed.{TARGET}": 0}, "the sequence of a change never falls"),
    ("EpochLedger", {**NEXT, f"spec.incidents.{INCIDENT}": 10}, COUNTED),
    ("EpochLedger", {**NEXT, "spec.role": "Pool"}, "the role of a ledger cannot change"),
    ("EpochLedger", {**EMPTY, **LATER, "spec.role": "Pool"}, "the role of a ledger cannot change"),
    ("EpochLedger", {**NEXT, "spec.lineage.generation": 8}, "the lineage is of generation 7 and 8 was written"),
    ("EpochLedger", {**NEXT, "spec.lineage.generation": 6}, "the lineage is of generation 7 and 6 was written"),
    ("EpochLedger", {"spec.lineage.id": NEW_LINEAGE}, "start another lineage with one above"),
    ("EpochLedger", {"spec.lineage": {"generation": 6, "id": NEW_LINEAGE}}, "start another lineage with one above"),
    ("EpochLedger", {**LATER, **NEXT}, "a lineage begins with sequence 1"),
    ("EpochLedger", {**LATER, "spec.previousDigest": f"sha256:{'1' * 64}"}, "a lineage begins with sequence 1"),
    # Dropping a key
    ("EpochLedger", {**NEXT, **WITHOUT_OTHER}, LEAVES),
    ("EpochLedger", {**NEXT, **WITHOUT_TARGET, "spec.base": 8}, LEAVES),
    ("EpochLedger", {**NEXT, **WITHOUT_DENIED, "spec.base": 9}, REFUSES),
    ("EpochLedger", {**NEXT, f"spec.abortBelow.{TARGET}": MISSING}, "the epoch below which requests are cut never falls"),
    ("EpochLedger", {**NEXT, f"spec.denied.{DENIED}": MISSING}, "the epoch of a denial never falls"),
    ("EpochLedger", {**NEXT, f"spec.readmitted.{OTHER}": MISSING}, "the epoch of a readmission never falls"),
    (
        "EpochLedger",
        {**NEXT, f"spec.issuedBefore.{DENIED}": MISSING},
        "the second before which credentials are refused never falls",
    ),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": MISSING}, "abortBelow holds for targets with a floor"),
    ("EpochLedger", {**NEXT, f"spec.incidents.{INCIDENT}": MISSING}, COUNTED),
    ("EpochLedger", {**NEXT, **EMPTY}, LEAVES),
    ("EpochLedger", {**NEXT, "spec.incidents": {}}, COUNTED),
    # Dropping a parent
    *(
        ("EpochLedger", {**NEXT, f"spec.{field}": MISSING}, f"spec.{field}: Required value")
        for field in ("floors", "abortBelow", "denied", "readmitted", "issuedBefore", "changed", "incidents", "base", "lineage")
    ),
    *(
        ("EpochLedger", {**NEXT, f"spec.{field}": MISSING}, f"spec.{field}: Required value")
        for field in ("role", "previousDigest", "digest", "history", "mac", "flags", "reach", "shards", "restored", "confirmed")
    ),
    ("EpochLedger", {**NEXT, "spec.flags.bypassed": MISSING}, "spec.flags.bypassed: Required value"),
    ("EpochLedger", {"spec": MISSING}, "spec: Required value"),
    # Other types
    ("EpochLedger", {**NEXT, "spec.floors": []}, "must be of type object"),
    ("EpochLedger", {**NEXT, "spec.floors": None}, "spec.floors: "),
    ("EpochLedger", {**NEXT, "spec.floors": "none"}, "must be of type object"),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": "10"}, "must be of type integer"),
    ("EpochLedger", {**NEXT, **WITHOUT_TARGET, f"spec.floors.{TARGET}": None}, LEAVES),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": 9.5}, "must be of type integer"),
    ("EpochLedger", {**NEXT, "spec.base": None}, "spec.base: "),
    ("EpochLedger", {"spec.sequence": "2"}, "must be of type integer"),
    ("EpochLedger", {"spec": None}, "spec: "),
    ("EpochLedger", {"spec": []}, "must be of type object"),
    # Leases
    ("FenceLease", {"spec.statement": "other"}, "the lease is at tick 1000 and 1000 was written"),
    ("FenceLease", {"spec.tick": 999}, "the lease is at tick 1000 and 999 was written"),
    ("FenceLease", {"spec.tick": 1001, "spec.pod": "tiny-1"}, "another process writes a lease of its own"),
    ("FenceLease", {"spec.tick": 1001, "spec.pool": "other"}, "another process writes a lease of its own"),
    ("FenceLease", {"spec.tick": 1001, "spec.holder": "Gateway", "spec.pool": ""}, "another process writes a lease of its own"),
    (
        "FenceLease",
        {"spec.tick": 1001, "spec.holder": "Gateway", "spec.pool": MISSING},
        "another process writes a lease of its own",
    ),
    ("FenceLease", {"spec.tick": MISSING}, "spec.tick: Required value"),
]


def rows(table: list[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0]}-{number}") for number, row in enumerate(table)]


@pytest.mark.parametrize(("kind", "changes"), rows(TAKEN))
async def test_an_allowed_change_is_stored(server: Server, kind: str, changes: Changes) -> None:
    before = await server.create(document(kind))
    wanted = changed(before, changes)
    after = await server.replace(wanted)
    assert (after["spec"], after["metadata"].get("labels")) == (wanted["spec"], wanted["metadata"].get("labels"))


@pytest.mark.parametrize(("kind", "changes", "message"), rows(REFUSED))
async def test_a_forbidden_change_is_refused_and_nothing_changes(server: Server, kind: str, changes: Changes, message: str) -> None:
    before = await server.create(document(kind))
    refusal = await server.refusal(changed(before, changes))
    assert message in (refusal or "it was taken")
    assert (await server.get(before))["spec"] == before["spec"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata.labels": {"a": "b"}, "spec.replicas": 0}, ""),
        ({"spec.dedicatedTo.tenantUid": "another-uid"}, BECOMES),
        ({"spec.dedicatedTo.poolUid": "another-uid"}, BECOMES),
        ({"spec.dedicatedTo": MISSING}, BECOMES),
    ],
)
async def test_a_pool_of_one_tenant_stays_that_tenants(server: Server, changes: Changes, message: str) -> None:
    before = await server.create(changed(document("ServingPool"), {"spec.dedicatedTo": DEDICATED}))
    refusal = await server.refusal(changed(before, changes))
    assert (message in refusal) if refusal else not message


HEAD_NEXT = {**NEXT, "spec.reach": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (HEAD_NEXT, ""),
        ({**HEAD_NEXT, **WITHOUT_DENIED}, ""),
        ({**NEXT, **WITHOUT_DENIED}, "raise reach too"),
        ({**HEAD_NEXT, "spec.changed": {TARGET: 2, OTHER: 1, DENIED: 1}}, ""),
        ({**HEAD_NEXT, f"spec.floors.{DENIED}": 5}, FALLS),
        ({**HEAD_NEXT, "spec.policy": {}}, ""),
        ({**HEAD_NEXT, "spec.shards": {"authorization.shard-a": {**SHARD_MARK, "sequence": 4}}}, ""),
        ({**HEAD_NEXT, "spec.shards": {"authorization.shard-a": {**SHARD_MARK, "sequence": 2}}}, "read the shards again"),
        ({**HEAD_NEXT, "spec.shards": {}}, "read the shards again"),
        (
            {
                **HEAD_NEXT,
                "spec.shards": {"authorization.shard-a": {**SHARD_MARK, "lineage": LATER["spec.lineage"], "sequence": 1}},
            },
            "",
        ),
        (
            {**HEAD_NEXT, "spec.shards": {"authorization.shard-a": {**SHARD_MARK, "lineage": {"generation": 6, "id": LINEAGE}}}},
            "read the shards again",
        ),
    ],
)
async def test_a_head_forgets_only_what_is_older_than_its_reach(server: Server, changes: Changes, message: str) -> None:
    before = await server.create(document("EpochLedger", HEAD))
    refusal = await server.refusal(changed(before, changes))
    assert (message in (refusal or "it was taken")) if message else (refusal is None)


async def test_a_full_ledger_is_within_the_cost_of_its_rules(server: Server) -> None:
    targets = [f"{number:064x}" for number in range(1024)]
    full: dict[str, Any] = {f"spec.{field}": dict.fromkeys(targets, 1) for field in MAPS}
    full |= {"spec.incidents": dict.fromkeys(targets[:256], 9), "spec.floors": dict.fromkeys(targets, 9)}
    full |= {"spec.shards": {f"authorization.shard-{number:x}": SHARD_MARK for number in range(16)}}
    before = await server.create(document("EpochLedger", full))
    history = [f"{number:032x}" for number in range(254)]
    wanted = changed(before, {**NEXT, "spec.history": [*history, "1" * 32, "2" * 32], "spec.floors": dict.fromkeys(targets, 10)})
    raised = await server.replace(wanted)
    assert raised["spec"] == wanted["spec"]
    again = {"spec.sequence": 3, "spec.previousDigest": wanted["spec"]["digest"], "spec.digest": f"sha256:{'3' * 64}"}
    lower = {**again, "spec.history": [*history, "2" * 32, "3" * 32], "spec.floors": dict.fromkeys(targets, 9)}
    assert FALLS in (await server.refusal(changed(raised, lower)) or "it was taken")


MAPS = ("abortBelow", "drainSeconds", "denied", "readmitted", "issuedBefore", "changed")


async def test_a_merge_patch_cannot_drop_what_an_update_cannot(server: Server) -> None:
    before = await server.create(document("EpochLedger"))
    path = server.path("EpochLedger", before["metadata"]["name"])
    step = {name.removeprefix("spec."): value for name, value in NEXT.items()}
    without = {field: {TARGET: None} for field in ("floors", "abortBelow", "drainSeconds", "changed")}
    for dropped in ({"floors": None}, without, {"base": None}, {"denied": {DENIED: None}}, {"incidents": {INCIDENT: None}}):
        with pytest.raises(ApiError, match="422"):
            await server.rest.merge(path, {"spec": {**step, **dropped}})
    with pytest.raises(ApiError, match="422"):
        await server.rest.merge(path, {"spec": None})
    raised = await server.rest.merge(path, {"spec": {**step, "floors": {TARGET: 10}}})
    assert raised["spec"]["floors"] == {TARGET: 10, OTHER: 5, DENIED: 6}


async def test_an_apply_cannot_drop_what_its_owner_applied_before(server: Server) -> None:
    first = document("EpochLedger")
    path = server.path("EpochLedger", first["metadata"]["name"])
    await server.rest.apply(path, first, "owner")
    for changes in (WITHOUT_OTHER, {"spec.floors": MISSING}, {"spec.base": 3}):
        with pytest.raises(ApiError, match="422"):
            await server.rest.apply(path, changed(first, {**NEXT, **changes}), "owner")
    await server.rest.apply(path, changed(first, {**NEXT, "spec.base": 5, **WITHOUT_OTHER}), "owner")
    assert (await server.get(first))["spec"]["floors"] == {TARGET: 9, DENIED: 6}


@pytest.mark.parametrize("kind", ["EpochLedger", "FenceLease", "CacheEpoch", "ServingPool"])
async def test_finalizers_of_others_can_be_added_and_removed(server: Server, kind: str) -> None:
    held = await server.replace(changed(await server.create(document(kind)), {"metadata.finalizers": ["example.com/hold"]}))
    path = server.path(kind, held["metadata"]["name"])
    await server.rest.delete(path)
    await server.rest.merge(path, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiError, match="404"):
        await server.get(held)


async def test_a_ledger_made_anew_from_a_copy_is_refused(server: Server) -> None:
    copy = await _deleted(server, lambda ledger: server.replace(changed(ledger, NEXT)))
    assert "a ledger begins with sequence 1" in (await server.refusal(copy, create=True) or "it was taken")


async def test_what_the_rules_of_the_operator_make_is_taken_and_followed(server: Server) -> None:
    target = TargetName(TARGET)
    first = first_ledger(Lineage(7, LINEAGE))
    second = advanced(first, floors={target: replace(first.floor(target), epoch=Epoch(2), denied=Epoch(2))})
    third = reborn(second, Lineage(8, NEW_LINEAGE), incidents={})
    mac = SPECS["EpochLedger"]["mac"]
    stored = await server.create(document("EpochLedger", {"spec": {**write_ledger(first), "mac": mac}}))
    for before, after in ((first, second), (second, third)):
        stored = await server.replace(changed(stored, {"spec": {**write_ledger(after), "mac": mac}}))
        assert followed(before, parse_ledger(stored["spec"])) == after
        with pytest.raises(LedgerFork):
            followed(after, before)


async def _deleted(server: Server, last: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """A copy of a ledger, as anybody may have kept one, after the ledger itself is gone."""
    kept = await last(await server.create(document("EpochLedger")))
    name = kept["metadata"]["name"]
    await server.rest.delete(server.path("EpochLedger", name), uid=kept["metadata"]["uid"])
    return {**kept, "metadata": {"name": name}}
