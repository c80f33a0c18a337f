from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cachescope.api.statuses import GuardStatus
from cachescope.cli import epochs, output
from cachescope.cli.doctor.findings import Unseen
from cachescope.cli.operator_lease import warning
from cachescope.cli.pools import COLUMNS, NOT_OBSERVED, cells, guards, pool_row
from cachescope.cli.status import operator_leases
from cachescope.kube.rest import ApiError, NotFoundError

NOW = datetime(2026, 11, 30, tzinfo=UTC)
READY = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 2,
    "lastTransitionTime": "t",
    "reason": "Routable",
    "message": "1 pod",
}


def pool(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": "tiny", "generation": 2},
        "spec": {"replicas": 3},
        "status": {
            "observedGeneration": 2,
            "conditions": [READY],
            "mode": "Shared",
            "modeReason": "salts are enforced",
            "epoch": 4,
            "readyReplicas": 2,
            "routable": 1,
            "guards": [{"pod": "tiny-1", "version": "0.2.0", "sequence": 7, "live": True}],
            **status,
        },
    }


def test_a_pool_shows_mode_epoch_counts_guards_and_why() -> None:
    row = cells(pool_row(pool()))
    assert dict(zip(COLUMNS, row, strict=True)) == {
        "POOL": "tiny",
        "MODE": "Shared",
        "READY": "True",
        "REASON": "Routable",
        "EPOCH": "4",
        "FENCED": "-",
        "ROUTABLE/READY/ASKED": "1/2/3",
        "GUARDS": "1 live (0.2.0)",
        "WHY": "salts are enforced; 1 pod",
    }


@pytest.mark.parametrize(("status", "told"), [("False", "; isolation not verified (Leak): the probe found a leak"), ("True", "")])
def test_a_pool_shows_what_the_probe_has_not_shown(status: str, told: str) -> None:
    isolation = {**READY, "type": "IsolationVerified", "status": status, "reason": "Leak", "message": "the probe found a leak"}
    row = dict(zip(COLUMNS, cells(pool_row(pool(conditions=[READY, isolation]))), strict=True))
    assert row["WHY"] == f"salts are enforced; 1 pod{told}"


@pytest.mark.parametrize("status", [{"observedGeneration": 1}, {"conditions": []}])
def test_what_the_operator_has_not_looked_at_is_not_ready(status: dict[str, Any]) -> None:
    row = pool_row(pool(**status))
    assert (row.ready, row.reason) == ("Unknown", NOT_OBSERVED)
    assert "generation 2" in row.message


def test_a_pool_without_any_status_can_be_shown() -> None:
    document = pool()
    del document["status"], document["spec"]["replicas"]
    assert cells(pool_row(document))[4:8] == ["-", "-", "0/0/1", "-"]


def test_a_status_of_a_newer_operator_can_be_shown() -> None:
    assert pool_row(pool(somethingNew={"a": 1})).ready == "True"


UNFENCED = {**READY, "type": "Fenced", "status": "False", "reason": "WaitingForProcesses", "message": "waiting for p.b"}


def test_a_pool_shows_whether_it_is_fenced_and_why_not() -> None:
    row = dict(zip(COLUMNS, cells(pool_row(pool(conditions=[READY, UNFENCED]))), strict=True))
    assert (row["FENCED"], row["WHY"]) == ("False", "salts are enforced; 1 pod; not fenced: waiting for p.b")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"bypassed": True, "latestIncident": "inc-2"}, "reuse switched off until spec.sharing.resumeAfter is inc-2"),
        ({"publicStopped": True, "latestIncident": "inc-2"}, "public sharing switched off until spec.sharing.resumeAfter is inc-2"),
        (
            {"bypassed": True, "publicStopped": True},
            "reuse and public sharing switched off until spec.sharing.resumeAfter is the id",
        ),
        ({"latestIncident": "inc-2"}, ""),
    ],
)
def test_what_an_incident_switched_off_is_said_with_the_id_that_ends_it(status: dict[str, Any], said: str) -> None:
    why = cells(pool_row(pool(**status)))[-1].removeprefix("salts are enforced; 1 pod").removeprefix("; ")
    assert why.startswith(said)
    assert bool(why) == bool(said)


def cache_epoch(name: str, kind: str, target: str, *conditions: dict[str, Any], namespace: str = "team") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "generation": 2}
    spec = {"target": {"kind": kind, "name": target}, "incident": {"id": "inc-2"}}
    return {"metadata": metadata, "spec": spec, "status": {"epoch": 5, "conditions": list(conditions)}}


ACCEPTED = {**READY, "type": "Accepted", "reason": "Accepted"}


def test_a_pool_shows_the_open_epochs_that_concern_it() -> None:
    opened = [
        cache_epoch("a", "ServingPool", "tiny", ACCEPTED, UNFENCED),
        cache_epoch("b", "ServingPool", "another", ACCEPTED, UNFENCED),
        cache_epoch("c", "Tenant", "red", ACCEPTED, UNFENCED),
        cache_epoch("d", "Tenant", "red", ACCEPTED, UNFENCED, namespace="elsewhere"),
    ]
    found = pool_row(pool(), opened).open_epochs
    assert [row.name for row in found] == ["a", "c"]
    made = pool()
    made["metadata"]["name"] = "tiny-0123456789"
    assert [row.name for row in pool_row(made, opened).open_epochs] == ["c"]
    made["spec"]["dedicatedTo"] = {"poolName": "tiny"}
    assert [row.name for row in pool_row(made, opened).open_epochs] == ["a", "c"], "what names the pool that it was made of"
    assert epochs.cells(found[1]) == ["c", "Tenant red", "inc-2", "5", "Fencing", "epoch 5: waiting for p.b"]


def test_an_epoch_is_open_until_its_newest_generation_is_fenced() -> None:
    fenced = {**UNFENCED, "status": "True", "reason": "Acknowledged"}
    assert not epochs.is_open(cache_epoch("a", "Tenant", "red", ACCEPTED, fenced))
    for conditions in ([], [ACCEPTED, UNFENCED], [ACCEPTED, {**fenced, "observedGeneration": 1}]):
        assert epochs.is_open(cache_epoch("a", "Tenant", "red", *conditions))


def test_silent_guards_are_told_from_live_ones_by_version() -> None:
    found = [
        GuardStatus(pod=str(n), version=v, sequence=1, live=live)
        for n, (v, live) in enumerate([("2", True), ("1", False), ("2", True)])
    ]
    assert guards(found) == "2 live (2), 1 silent (1)"


def test_a_table_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "B"), [["[red]x[/red]", "y" * 150]])
    assert "[red]x[/red]" in (printed := capsys.readouterr().out)
    assert "y" * 150 in printed


def test_json_has_the_names_of_the_api() -> None:
    found = pool_row(pool()).model_dump(mode="json", by_alias=True)
    assert {"modeReason", "readyReplicas", "routable", "guards", "conditions", "fenced", "openEpochs"} <= set(found)


def lease(namespace: str, seconds: float | None, **spec: Any) -> dict[str, Any]:
    renewed = {} if seconds is None else {"renewTime": (NOW - timedelta(seconds=seconds)).isoformat()}
    return {"metadata": {"namespace": namespace}, "spec": {"leaseDurationSeconds": 15, **renewed, **spec}}


@pytest.mark.parametrize(
    ("leases", "said"),
    [
        ([lease("team", 5)], ""),
        ([lease("platform", 5)], ""),  # one that serves all namespaces, for all that can be seen
        ([lease("team", 600), lease("platform", 5)], "600 s ago"),
        ([lease("team", 40)], ""),  # within what clocks may be apart
        ([lease("team", 600)], "600 s ago"),
        ([lease("team", 40, leaseDurationSeconds=1)], "40 s ago"),  # given up by one that ended
        ([lease("team", None)], "ever"),
        ([], "ever"),
    ],
)
def test_statuses_are_said_to_be_old_when_no_operator_works(leases: list[dict[str, Any]], said: str) -> None:
    found = warning(leases, "team", NOW)
    assert said in found
    assert bool(found) == bool(said)


class Leases:
    """An API that lets somebody read what `seen` holds."""

    def __init__(self, **seen: dict[str, Any]) -> None:
        self.seen = seen

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        place = "team" if "/namespaces/team/" in path else "everywhere"
        if place not in self.seen:
            raise ApiError(403, "forbidden; ask for the right")
        if not self.seen[place]:
            raise NotFoundError(404, "there is none; create it")
        return self.seen[place]


async def test_the_lease_is_looked_for_everywhere_and_else_in_the_namespace() -> None:
    own, other = lease("team", 5), lease("platform", 5)
    assert await operator_leases(Leases(everywhere={"items": [other]}, team=own), "team") == [other]
    assert await operator_leases(Leases(team=own), "team") == [own]
    for api, namespace in ((Leases(), "team"), (Leases(), None), (Leases(team={}), "team")):
        assert isinstance(await operator_leases(api, namespace), Unseen)
