"""Settings that are broken take no operator down that works; at the start they are said, and it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from cachescope import logs
from cachescope.cli import main as cli
from cachescope.controller import main
from cachescope.controller.health import Health
from cachescope.controller.metrics import Metrics
from cachescope.controller.mounted_settings import MountedSettings
from cachescope.controller.options import Options
from cachescope.core.errors import SpecError

GOOD, OTHER = "maxRequestBytes: 2048\n", "maxRequestBytes: 4096\n"
BROKEN = ("maxRequestBytes: 1\n", "maxRequestByte: 2048\n", "{", "[1]", "\x00")


class File:
    """The mounted file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "settings.yaml"
        self.path.write_text(GOOD)
        self.options = Options("ns", "image", settings=self.path)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


@pytest.mark.parametrize("text", [*BROKEN, None], ids=[*("value", "name", "yaml", "list", "binary"), "gone"])
def test_settings_with_a_fault_leave_the_last_good_ones_and_are_said_once(
    file: File, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    mounted = MountedSettings(file.options.read_settings)
    file.path.unlink() if text is None else file.path.write_text(text)
    with caplog.at_level(logging.INFO):
        assert not any([mounted.look() for _ in range(3)])
        assert (mounted.good.max_request_bytes, bool(mounted.fault)) == (2048, True)
        file.path.write_text(GOOD)
        assert not mounted.look()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert mounted.fault == ""


def test_settings_that_are_not_text_have_a_fault_too(file: File) -> None:
    mounted = MountedSettings(file.options.read_settings)
    file.path.write_bytes(b"\xff\xfe")
    assert not mounted.look()
    assert "mount them" in mounted.fault


async def test_only_good_settings_that_mean_something_else_start_the_process_anew(file: File) -> None:
    mounted = MountedSettings(file.options.read_settings)
    waiting = asyncio.create_task(mounted.changed(0.001))
    for text in (*BROKEN, f"# another comment\n{GOOD}"):
        file.path.write_text(text)
        fault = mounted.fault
        async with asyncio.timeout(5):
            while mounted.fault == fault:  # noqa: ASYNC110 - what is read from a file has no event
                await asyncio.sleep(0.001)
        assert not waiting.done()
    file.path.write_text(OTHER)
    await asyncio.wait_for(waiting, 5)
    assert mounted.good.max_request_bytes == 4096


def test_health_and_metrics_show_the_fault_and_the_process_stays_ready(file: File) -> None:
    mounted = MountedSettings(file.options.read_settings)
    health, metrics = Health("Leading", settings_fault=lambda: mounted.fault), Metrics(lambda: mounted.fault)

    def seen() -> tuple[bool, bool, bool, float | None]:
        ready, body = health.ready()
        valid = metrics.registry.get_sample_value("cachescope_operator_settings_valid")
        return ready, health.alive()[0], "settings_fault" in body, valid

    assert seen() == (True, True, False, 1.0)
    file.path.write_text(BROKEN[0])
    mounted.look()
    assert seen() == (True, True, True, 0.0)
    assert "maxRequestBytes" in json.dumps(health.ready()[1])


def test_a_start_with_broken_settings_ends_before_anything_begins(file: File) -> None:
    file.path.write_text(BROKEN[0])
    with pytest.raises(SpecError, match=r"settings\.yaml.*maxRequestBytes"):
        main.run(file.options)


def test_that_start_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.yaml").write_text(BROKEN[1])
    monkeypatch.setattr(logs, "configure", lambda _: None)
    environ = {"CACHESCOPE_NAMESPACE": "ns", "CACHESCOPE_GUARD_IMAGE": "image"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["cachescope", "operator", "--config", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, "maxRequestByte" in line) == (1, True)
