"""Processes of real engines, on ports of loopback that are free."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

from e2e.cluster.layout import from_environment
from tests.conformance.engines import venvs
from tests.conformance.engines.catalogue import Engine

START_SECONDS = 1800
_PAUSE = 0.5


@contextmanager
def process(engine: Engine, environ: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> Iterator[str]:
    """The URL of a fresh process of an engine, once it answers. Its log is in the cache folder.

    Args:
        engine: The engine.
        environ: Its variables, if not those of `venvs.environment`.
        options: Beside those that it is always started with.
    """
    python = venvs.ready(engine)
    port, log = _free_port(), from_environment().engines / f"{engine.label}.log"
    command = [*engine.command(python, venvs.model(engine, python), port), *options]
    environ = venvs.environment(engine) if environ is None else environ
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environ) as started:
        try:
            _wait(f"http://127.0.0.1:{port}/health", started, str(log))
            yield f"http://127.0.0.1:{port}"
        finally:
            started.terminate()


def _wait(url: str, process: subprocess.Popen[bytes], log: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=_PAUSE):  # noqa: S310 - a loopback address
                return
        except (HTTPError, OSError):
            time.sleep(_PAUSE)
    raise SystemExit(f"the engine does not answer; see {log}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
