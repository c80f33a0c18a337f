"""Plays that are repeated: their order, their bound, and what is told of them afterwards."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.faults import soaking
from e2e.faults.results import Line, read, table, write

IMAGES = {"operator": "a1", "gateway": "b1", "guard": "c1"}


def line(
    fault: str, why: str = "", *, fence: float = 1.0, images: dict[str, str] = IMAGES, engine: str = "stub", plays: int = 1
) -> Line:
    return Line("2026-01-01T00:00:00+00:00", fault, engine, 0, 5.0, why, {"rollback": fence}, images, plays)


def item(name: str, turn: int | None = None, **parameters: object) -> pytest.Item:
    callspec = {} if turn is None else {"callspec": SimpleNamespace(params={"turn": turn, **parameters})}
    return cast("pytest.Item", SimpleNamespace(name=name, originalname=name, user_properties=[], **callspec))


def report(when: str, *, failed: str = "", skipped: bool = False, nodeid: str = "e2e/tests/test_x.py::test_x") -> pytest.TestReport:
    told: list[tuple[str, Any]] = (
        [] if skipped else [("fault", "nothing"), ("turn", 3), ("fences", '{"rollback": 0.5}'), ("plays", 5)]
    )
    crashed = SimpleNamespace(reprcrash=SimpleNamespace(message=failed)) if when == "call" else failed
    found = {
        "when": when,
        "failed": bool(failed),
        "longrepr": crashed,
        "longreprtext": failed,
        "duration": 2.0,
        "user_properties": told,
        "nodeid": nodeid,
    }
    return cast("pytest.TestReport", SimpleNamespace(**found))


def test_everything_is_played_once_before_anything_is_played_again() -> None:
    items = [item(name, turn) for name in "ab" for turn in (0, 1)] + [item("once")]
    soaking.pytest_collection_modifyitems(items)
    assert [soaking.name_of(each) for each in items] == ["a", "b", "once", "a", "b"]


def test_a_play_is_named_by_its_test_and_parameters_whichever_repetition_it_is() -> None:
    assert soaking.name_of(item("test_a_fence_holds", 7, fault="nothing")) == "a fence holds: nothing"
    assert soaking.name_of(item("test_a_fence_holds")) == "a fence holds"


def test_what_begins_after_the_bound_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    within = item("test_x", 3)
    soaking.pytest_runtest_setup(within)
    assert within.user_properties == [("fault", "x"), ("turn", 3)]
    monkeypatch.setattr(soaking, "BOUND_SECONDS", -1)
    with pytest.raises(pytest.skip.Exception, match="CACHESCOPE_FAULT_SECONDS"):
        soaking.pytest_runtest_setup(item("test_x", 4))


def test_a_line_is_written_for_each_play_that_passed_or_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "soak.jsonl"
    monkeypatch.setattr(soaking, "PATH", path)
    notes = soaking.Notes(IMAGES)
    for phases in (
        [report("setup"), report("call"), report("teardown")],
        [report("setup"), report("call", failed="TimeoutError: in vain\nsee below"), report("teardown")],
        [report("setup", failed="no site"), report("teardown")],
        [report("setup", skipped=True), report("teardown", skipped=True)],
        [report("setup"), report("call"), report("teardown", failed="left something")],
        [report("setup", nodeid="tests/x"), report("call", nodeid="tests/x"), report("teardown", nodeid="tests/x")],
    ):
        for phase in phases:
            notes.pytest_runtest_logreport(phase)
    lines = read(path)
    assert [each.why for each in lines] == ["", "TimeoutError: in vain", "no site", "left something", ""]
    assert {(each.fault, each.turn, each.fences["rollback"]) for each in lines} == {("nothing", 3, 0.5)}
    assert [each.engine for each in lines] == ["stub"] * 4 + ["simulated"]
    assert [each.seconds for each in lines] == [2.0, 2.0, 0.0, 2.0, 2.0]
    assert all(each.images == IMAGES for each in lines)
    assert {each.plays for each in lines} == {5}


def test_plays_in_a_row_are_those_since_the_last_failure_with_the_same_images(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    assert read(path) == []
    newer = {**IMAGES, "guard": "c2"}
    for each in (
        line("nothing"),
        line("nothing", "2 violations"),
        line("nothing", fence=4.25),
        line("outage", plays=5),
        line("nothing"),
        line("nothing", images=newer),
        line("nothing", engine="vllm"),
    ):
        write(path, each)
    assert list(table(read(path))) == [
        "stub with operator:a1 gateway:b1 guard:c1",
        "    2 in a row of   4  nothing, longest fence 4.2 s; last failure: 2 violations",
        "    5 in a row of   5  outage, longest fence 1.0 s",
        "stub with operator:a1 gateway:b1 guard:c2",
        "    1 in a row of   1  nothing, longest fence 1.0 s",
        "vllm with operator:a1 gateway:b1 guard:c1",
        "    1 in a row of   1  nothing, longest fence 1.0 s",
    ]
