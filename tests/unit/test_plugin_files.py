"""What the plugin reads and writes beside requests: the table that it follows, and the report that the guard reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.types import ScopeClass
from cachescope.guard import engine_digests
from cachescope.guard.engine_plugin import reports
from cachescope.guard.engine_plugin.reports import FRESH_MS, Report, boot_ms, keep_reporting, read_reports, write_report
from cachescope.guard.engine_plugin.settings import state_folder
from tests.unit.approval_tables import contents, mark
from tests.unit.core_strategies import NEWER_KEY
from tests.unit.plugin_places import Place, place_of

APPROVED = {ScopeClass.PUBLIC: [list(range(8))]}
REPORT = Report(
    pid=7, at_ms=1_000, problem="", version=mark(3), in_use=(mark(2), mark(3)), block_size=16, mismatches=1, malformed=2
)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    return place_of(monkeypatch, tmp_path)


def test_a_table_is_followed_forward_only(place: Place) -> None:
    tables = place.tables()
    place.approve(contents(APPROVED, sequence=2))
    tables.refresh()
    assert tables.current is not None
    assert (tables.current.version, tables.problem) == (mark(2), "")
    place.approve(contents(APPROVED, sequence=3))
    tables.refresh()
    assert tables.current.version == mark(3)
    place.approve(contents(APPROVED, sequence=2))
    tables.refresh()
    assert tables.current is None
    assert "older" in tables.problem


def test_a_file_that_went_or_broke_leaves_no_table_and_the_next_good_one_comes_back(place: Place) -> None:
    tables, file = place.tables(), place.folder / "approvals"
    for broken in (file.unlink, lambda: file.write_text("v1.x.y.z"), lambda: file.write_bytes(b"\0\xff")):
        place.approve(contents(APPROVED, sequence=2))
        tables.refresh()
        assert (tables.current is not None, tables.problem) == (True, "")
        broken()
        tables.refresh()
        assert tables.current is None
        assert tables.problem
    place.approve(contents(APPROVED, sequence=1))
    tables.refresh()
    assert tables.current is None, "what it had seen before still bounds it"


def test_an_unchanged_file_is_not_verified_again_and_a_new_key_is(place: Place) -> None:
    asked = []
    tables = place.tables()
    take = tables._take
    tables._take = lambda *found: asked.append(found) or take(*found)  # type: ignore[func-returns-value, method-assign]
    place.approve(contents(APPROVED))
    for _ in range(3):
        tables.refresh()
    assert len(asked) == 1
    place.write_key(NEWER_KEY)
    tables.refresh()
    assert len(asked) == 2


def test_a_table_under_a_key_that_was_dropped_is_no_longer_in_force(place: Place) -> None:
    tables = place.tables()
    place.approve(contents(APPROVED))
    tables.refresh()
    assert tables.current is not None
    for path in (place.folder / "keys").iterdir():
        path.unlink()
    place.write_key(NEWER_KEY)
    tables.refresh()
    assert tables.current is None


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    refused = Report(pid=3, at_ms=1_000, problem="not tried")
    for report in (REPORT, refused):
        write_report(tmp_path, report)
    write_report(tmp_path, replace(REPORT, mismatches=9))
    assert read_reports(tmp_path, 1_000) == (refused, replace(REPORT, mismatches=9))
    assert read_reports(tmp_path, 1_000 + FRESH_MS) == ()


GOOD: dict[str, Any] = {**{name: 0 for name in Report.__slots__}, "problem": "", "version": None, "in_use": [], "format": 1}


@pytest.mark.parametrize(
    "document",
    [
        {**GOOD, "format": 2},
        {**GOOD, "pid": "7"},
        {**GOOD, "mismatches": True},
        {**GOOD, "problem": None},
        {**GOOD, "version": 1},
        {**GOOD, "in_use": [1]},
        {**GOOD, "more": 1},
        {"format": 1},
        [],
    ],
)
def test_a_report_that_cannot_be_read_says_nothing(tmp_path: Path, document: Any) -> None:
    (tmp_path / "segments-1.json").write_text(json.dumps(GOOD))
    (tmp_path / "segments-2.json").write_text(json.dumps(document))
    (tmp_path / "segments-3.json").write_text(json.dumps(document)[:-1])
    assert [report.pid for report in read_reports(tmp_path, 0)] == [0]


def test_a_process_reports_until_it_ends_whatever_fails(tmp_path: Path) -> None:
    said: list[Report | OSError] = [replace(REPORT, problem="one"), OSError(), replace(REPORT, problem="two")]
    seen: list[str] = []

    def report() -> Report:
        found = said.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    def slept(seconds: float) -> None:
        assert seconds == reports.EVERY_SECONDS
        seen.extend(item.problem for item in read_reports(tmp_path, 1_000))
        if not said:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reports._report(tmp_path, report, slept)
    assert seen == ["one", "one", "two"]


def test_a_process_without_a_folder_keeps_its_table_all_the_same() -> None:
    asked: list[int] = []

    def slept(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reports._report(None, lambda: asked.append(1) or REPORT, slept)  # type: ignore[func-returns-value]
    assert asked == [1]


def test_reports_come_from_a_thread_that_ends_with_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Thread:
        def __init__(self, **named: Any) -> None:
            made.append(named)

        def start(self) -> None:
            made.append("started")

    monkeypatch.setattr("threading.Thread", Thread)
    keep_reporting(tmp_path, lambda: REPORT)
    assert (made[0]["daemon"], made[0]["target"], made[1]) == (True, reports._report, "started")


def test_all_processes_of_a_node_share_the_clock_of_reports() -> None:
    with Path("/proc/uptime").open() as file:
        seconds = float(file.read().split()[0])
    assert abs(boot_ms() / 1000 - seconds) < 60
    assert state_folder({}) is None
    assert state_folder({"CACHESCOPE_STATE_DIR": "/state"}) == Path("/state")


def test_the_digest_of_the_tokenizer_is_that_of_the_guard_and_reads_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("tokenizer.json", "chat_template.jinja", "model.safetensors"):
        (model / name).write_text(name)
    monkeypatch.setattr(engine_digests, "engine_version", lambda: "vllm 0.32.0")
    args = ["--model", str(model)]
    assert engine_digests.tokenizer_digest(model, args) == engine_digests.engine_digests(model, args, {}).engine.tokenizer
    before = engine_digests.tokenizer_digest(model, args)
    (model / "model.safetensors").unlink()
    assert engine_digests.tokenizer_digest(model, args) == before
    (model / "tokenizer.json").write_text("another")
    assert engine_digests.tokenizer_digest(model, args) != before
    file = tmp_path / "model.gguf"
    file.write_text("weights")
    assert engine_digests.tokenizer_digest(file, []) == engine_digests.engine_digests(file, [str(file)], {}).engine.tokenizer
