"""`cachescope conformance` on the stub engine as a process: over real HTTP, before and after a restart."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from typer.testing import CliRunner, Result

from cachescope.cli.main import app
from e2e.stub_engine.leaks import Leak

ROOT = Path(__file__).parents[2]
SECONDS = 60


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def engine(folder: Path, *leaks: Leak) -> Iterator[str]:
    """The URL of a stub engine; another one with the same folder is its restart."""
    port = free_port()
    options = [option for leak in leaks for option in ("--leak", leak)]
    command = [
        "-c",
        "from e2e.stub_engine.server import main; main()",
        "--model",
        "tiny",
        "--port",
        str(port),
        "--token-seconds",
        "0",
        *options,
    ]
    environ = {**os.environ, "STUB_FAULTS": str(folder), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, *command], env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            wait(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=SECONDS):  # noqa: S310 - a loopback address of this test
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the stub engine does not answer")


def conformance(url: str, report: Path, *options: str) -> tuple[Result, Any]:
    arguments = ["conformance", "--engine-url", url, "--engine", "stub", "--version", "0.32.0", "--report", str(report), *options]
    result = CliRunner().invoke(app, arguments)
    return result, json.loads(report.read_text())


def test_a_process_that_forgets_salts_when_it_restarts_is_found_out_then(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with engine(tmp_path, Leak.AFTER_RESTART) as url:
        result, document = conformance(url, report, "--profile", "PerTenant", "--tries", "2")
        assert result.exit_code == 1
        assert "4 failed" in result.output
        assert "a salt does not separate" in result.output
        assert "--seed" in result.stderr
    assert not document["passed"]
    assert {check["found"] for check in document["checks"] if check["expected"] == ["Leaks"]} == {"Isolated", "Leaks"}
    with engine(tmp_path, Leak.AFTER_RESTART) as url:
        result, document = conformance(url, report, "--profile", "PerTenant", "--tries", "2")
        assert result.exit_code == 0
    assert document["passed"]
    assert {check["found"] for check in document["checks"] if check["expected"] == ["Leaks"]} == {"Leaks"}


def test_a_process_is_tested_as_salted_over_http(tmp_path: Path) -> None:
    with engine(tmp_path) as url:
        result, document = conformance(url, tmp_path / "report.json", "--profile", "Salted", "--tries", "2", "--seed", "one")
    assert (result.exit_code, document["passed"], document["profile"], document["model"]) == (0, True, "Salted", "tiny")
    assert document["features"]["counter"]
    streams = document["features"]["streams"]
    assert document["features"]["usage"] == sorted([*streams, *(f"{path} streamed" for path in streams)])
