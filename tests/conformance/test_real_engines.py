"""`make conformance`, without any engine: what it says of a report, and of none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachescope.probe.conformance.profiles import Profile
from e2e.cluster.layout import from_environment
from tests.conformance.engines import __main__ as command
from tests.conformance.engines import catalogue
from tests.conformance.engines.catalogue import ENGINES, ROOT, Engine

LABEL = "vllm-0.12.0"
REPORTS = ROOT / "docs" / "conformance"


@contextmanager
def no_process(_engine: Engine) -> Iterator[str]:
    yield "http://127.0.0.1:1"


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the reports go, with an older one of each profile."""
    monkeypatch.setattr(command, "process", no_process)
    monkeypatch.setattr(catalogue, "ROOT", tmp_path)
    monkeypatch.setenv("CACHESCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "conformance").mkdir(parents=True)
    folder = tmp_path / "docs" / "conformance"
    folder.mkdir(parents=True)
    for profile in Profile:
        (folder / f"{LABEL}-{profile.value.lower()}.json").write_text("older")
    return folder


def suite(reports: dict[Profile, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the suite write these committed reports, and none of other profiles."""

    def run(_engine: Engine, profile: Profile, _url: str, written: Path) -> int:
        if profile in reports:
            shutil.copy(REPORTS / reports[profile], written)
        return 1

    monkeypatch.setattr(command, "_suite", run)


def test_reports_that_are_as_expected_are_written(
    docs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {profile: f"{LABEL}-{profile.value.lower()}.json" for profile in Profile}
    suite(names, monkeypatch)
    assert command.main([LABEL]) == 0
    assert capsys.readouterr().err == ""
    assert [(docs / name).read_text() for name in names.values()] == [(REPORTS / name).read_text() for name in names.values()]


def test_an_engine_that_passes_what_it_must_fail_is_an_error(
    docs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {Profile.SALTED: "vllm-0.32.0-salted.json", Profile.PER_TENANT: f"{LABEL}-pertenant.json"}
    suite(names, monkeypatch)
    assert command.main([LABEL]) == 1
    said = capsys.readouterr().err
    assert f"error: {LABEL} as Salted: /v1/messages: salts separate must fail as Leaks, and passed as Isolated\n" in said
    assert "PerTenant" not in said
    assert (docs / f"{LABEL}-salted.json").read_text() == (REPORTS / names[Profile.SALTED]).read_text(), "to be looked at"


def test_a_suite_that_ends_without_a_report_is_an_error_and_the_older_one_stays(
    docs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite({Profile.PER_TENANT: f"{LABEL}-pertenant.json"}, monkeypatch)
    shutil.copy(REPORTS / f"{LABEL}-salted.json", from_environment().engines)
    assert command.main([LABEL]) == 1
    assert capsys.readouterr().err == f"error: {LABEL} as Salted: the suite wrote no report, and exited with 1\n"
    assert (docs / f"{LABEL}-salted.json").read_text() == "older"


def test_an_engine_that_there_is_not_is_said_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["vllm-0.1.0"]) == 2
    assert capsys.readouterr().err == f"no such engine; there are {', '.join(engine.label for engine in ENGINES)}\n"
