from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.statuses import GuardStatus
from cachescope.cli import output
from cachescope.cli.pools import COLUMNS, NOT_OBSERVED, cells, guards, pool_row

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
        "ROUTABLE/READY/ASKED": "1/2/3",
        "GUARDS": "1 live (0.2.0)",
        "WHY": "salts are enforced; 1 pod",
    }


@pytest.mark.parametrize("status", [{"observedGeneration": 1}, {"conditions": []}])
def test_what_the_operator_has_not_looked_at_is_not_ready(status: dict[str, Any]) -> None:
    row = pool_row(pool(**status))
    assert (row.ready, row.reason) == ("Unknown", NOT_OBSERVED)
    assert "generation 2" in row.message


def test_a_pool_without_any_status_can_be_shown() -> None:
    document = pool()
    del document["status"], document["spec"]["replicas"]
    assert cells(pool_row(document))[4:7] == ["-", "0/0/1", "-"]


def test_a_status_of_a_newer_operator_can_be_shown() -> None:
    assert pool_row(pool(somethingNew={"a": 1})).ready == "True"


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
    assert {"modeReason", "readyReplicas", "routable", "guards", "conditions"} <= set(found)
