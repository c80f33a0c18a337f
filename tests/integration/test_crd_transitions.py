"""What may be changed: every write starts from a real object, and a refused one leaves it as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.heads import parse_head
from cachescope.core.types import TargetName
from cachescope.kube.rest import ApiError
from tests.integration.crd_objects import MISSING, NEW_LINEAGE, OTHER, TARGET, Changes, Server, changed, document

NEXT = {"spec.sequence": 2}
LATER = {"spec.lineage": {"generation": 8, "id": NEW_LINEAGE}}
INCIDENT = "c" * 64
FALLS = "a floor never falls within a lineage"
LEAVES = "raise the base first"
COUNTED = "keep every entry"

TAKEN: list[tuple[str, Changes]] = [
    ("ServingPool", {"spec.model.name": "other", "spec.engine.version": "0.12.0"}),
    ("Tenant", {"spec.suspended": True}),
    ("CacheScope", {"spec.class": "Request"}),
    ("CacheEpoch", {"spec.floor": 1}),
    ("CacheEpoch", {"spec.floor": MISSING, "spec.incident": {"id": "leak-2"}}),
    ("EpochLedger", {"metadata.labels": {"a": "b"}}),
    ("EpochLedger", NEXT),
    ("EpochLedger", {**NEXT, "spec.base": 5, f"spec.floors.{TARGET}": 10, f"spec.floors.{'d' * 64}": 1}),
    ("EpochLedger", {**NEXT, "spec.base": 5, f"spec.floors.{OTHER}": MISSING}),
    ("EpochLedger", {**NEXT, "spec.base": 9, "spec.floors": {}}),
    ("EpochLedger", {**NEXT, f"spec.incidents.{'d' * 64}": 10}),
    ("EpochLedger", {**LATER, "spec.sequence": 1, "spec.base": 1, "spec.floors": {}, "spec.incidents": {}}),
    ("FenceLease", {"metadata.labels": {"a": "b"}}),
    ("FenceLease", {"spec.tick": 1001, "spec.sequence": 2, "spec.statement": "other"}),
]

REFUSED: list[tuple[str, Changes, str]] = [
    ("CacheEpoch", {"spec.target.name": "other"}, "make another CacheEpoch"),
    ("CacheEpoch", {"spec.target": MISSING}, "spec.target: Required value"),
    ("CacheEpoch", {"spec.floor": MISSING}, "set floor, or incident, or both"),
    # Lowering
    ("EpochLedger", {"spec.base": 5}, "the ledger is at sequence 1 and 1 was written"),
    ("EpochLedger", {**NEXT, "spec.base": 3}, "the base is 4 and 3 was written"),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": 8}, FALLS),
    ("EpochLedger", {**NEXT, "spec.base": 20, f"spec.floors.{TARGET}": 8}, FALLS),
    ("EpochLedger", {**NEXT, f"spec.incidents.{INCIDENT}": 10}, COUNTED),
    ("EpochLedger", {**NEXT, "spec.lineage.generation": 8}, "the lineage is of generation 7 and 8 was written"),
    ("EpochLedger", {**NEXT, "spec.lineage.generation": 6}, "the lineage is of generation 7 and 6 was written"),
    ("EpochLedger", {**NEXT, "spec.lineage.id": NEW_LINEAGE}, "start another lineage with one above"),
    ("EpochLedger", {**NEXT, "spec.lineage": {"generation": 6, "id": NEW_LINEAGE}}, "start another lineage with one above"),
    # Dropping a key
    ("EpochLedger", {**NEXT, f"spec.floors.{OTHER}": MISSING}, LEAVES),
    ("EpochLedger", {**NEXT, "spec.base": 8, f"spec.floors.{TARGET}": MISSING}, LEAVES),
    ("EpochLedger", {**NEXT, f"spec.incidents.{INCIDENT}": MISSING}, COUNTED),
    ("EpochLedger", {**NEXT, "spec.floors": {}}, LEAVES),
    ("EpochLedger", {**NEXT, "spec.incidents": {}}, COUNTED),
    # Dropping a parent
    ("EpochLedger", {**NEXT, "spec.floors": MISSING}, "spec.floors: Required value"),
    ("EpochLedger", {**NEXT, "spec.incidents": MISSING}, "spec.incidents: Required value"),
    ("EpochLedger", {**NEXT, "spec.base": MISSING}, "spec.base: Required value"),
    ("EpochLedger", {**NEXT, "spec.lineage": MISSING}, "spec.lineage: Required value"),
    ("EpochLedger", {"spec": MISSING}, "spec: Required value"),
    # Other types
    ("EpochLedger", {**NEXT, "spec.floors": []}, "must be of type object"),
    ("EpochLedger", {**NEXT, "spec.floors": None}, "spec.floors: "),
    ("EpochLedger", {**NEXT, "spec.floors": "none"}, "must be of type object"),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": "10"}, "must be of type integer"),
    ("EpochLedger", {**NEXT, f"spec.floors.{TARGET}": None}, LEAVES),
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


async def test_a_full_ledger_is_within_the_cost_of_its_rules(server: Server) -> None:
    floors, incidents = ({f"{number:064x}": 9 for number in range(size)} for size in (1024, 256))
    before = await server.create(document("EpochLedger", {"spec.floors": floors, "spec.incidents": incidents}))
    wanted = changed(before, {**NEXT, "spec.floors": dict.fromkeys(floors, 10)})
    raised = await server.replace(wanted)
    assert raised["spec"] == wanted["spec"]
    assert FALLS in (await server.refusal(changed(raised, {"spec.sequence": 3, "spec.floors": floors})) or "it was taken")


async def test_a_merge_patch_cannot_drop_what_an_update_cannot(server: Server) -> None:
    before = await server.create(document("EpochLedger"))
    path = server.path("EpochLedger", before["metadata"]["name"])
    for dropped in ({"floors": None}, {"floors": {TARGET: None}}, {"base": None}, {"incidents": {INCIDENT: None}}):
        with pytest.raises(ApiError, match="422"):
            await server.rest.merge(path, {"spec": {"sequence": 2, **dropped}})
    with pytest.raises(ApiError, match="422"):
        await server.rest.merge(path, {"spec": None})
    raised = await server.rest.merge(path, {"spec": {"sequence": 2, "floors": {TARGET: 10}}})
    assert raised["spec"]["floors"] == {TARGET: 10, OTHER: 5}


async def test_an_apply_cannot_drop_what_its_owner_applied_before(server: Server) -> None:
    first = document("EpochLedger")
    path = server.path("EpochLedger", first["metadata"]["name"])
    await server.rest.apply(path, first, "owner")
    for changes in ({"spec.floors": {TARGET: 9}}, {"spec.floors": MISSING}, {"spec.base": 3}):
        with pytest.raises(ApiError, match="422"):
            await server.rest.apply(path, changed(first, {**NEXT, **changes}), "owner")
    await server.rest.apply(path, changed(first, {**NEXT, "spec.base": 5, "spec.floors": {TARGET: 9}}), "owner")
    assert (await server.get(first))["spec"]["floors"] == {TARGET: 9}


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


@pytest.mark.parametrize("lineage", [{}, {"spec.lineage": {"generation": 7, "id": NEW_LINEAGE}}])
async def test_a_ledger_made_anew_lowers_nothing_for_those_who_saw_the_old_one(server: Server, lineage: Changes) -> None:
    copy = await _deleted(server, server.get)
    seen = parse_head(copy["spec"])
    again = parse_head((await server.create(changed(copy, {**lineage, "spec.base": 0, "spec.floors": {}})))["spec"])
    if lineage:
        with pytest.raises(SpecError, match="a later lineage has a higher generation"):
            seen.followed_by(again)
    else:
        after, rollbacks = seen.followed_by(again)
        assert (after.floors.floor(TargetName(TARGET)), len(rollbacks)) == (9, 3)


async def test_a_ledger_made_anew_by_the_operator_is_followed(server: Server) -> None:
    copy = await _deleted(server, server.get)
    again = parse_head((await server.create(changed(copy, {**LATER, "spec.floors": {}, "spec.incidents": {}})))["spec"])
    assert parse_head(copy["spec"]).followed_by(again) == (again, ())


async def _deleted(server: Server, last: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """A copy of a ledger, as anybody may have kept one, after the ledger itself is gone."""
    kept = await last(await server.create(document("EpochLedger")))
    name = kept["metadata"]["name"]
    await server.rest.delete(server.path("EpochLedger", name), uid=kept["metadata"]["uid"])
    return {**kept, "metadata": {"name": name}}
