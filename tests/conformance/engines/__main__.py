"""`python -m tests.conformance.engines [NAME-VERSION ...]`: runs the suite on real engines, and writes their reports.

Each profile is run on a fresh process, with the seed that is the profile's name: so a report can be made again, byte for byte. It
exits with 1 if an engine passes a profile that it must fail, or fails one that it must pass.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

from cachescope.probe.conformance.profiles import Profile
from e2e.cluster.layout import from_environment
from tests.conformance.engines import venvs
from tests.conformance.engines.catalogue import ENGINES, MODEL, ROOT, Engine

START_SECONDS = 1800
_PAUSE = 0.5


def main(labels: list[str]) -> int:
    """Run the suite on these engines, or on all."""
    chosen = [engine for engine in ENGINES if engine.label in labels or not labels]
    if len(chosen) < len(labels):
        sys.stderr.write(f"no such engine; there are {', '.join(engine.label for engine in ENGINES)}\n")
        return 2
    wrong = [line for engine in chosen for profile in engine.passes for line in _wrong(engine, profile)]
    sys.stderr.write("".join(f"error: {line}\n" for line in wrong))
    return 1 if wrong else 0


def _wrong(engine: Engine, profile: Profile) -> Iterator[str]:
    with _process(engine) as url:
        status = _suite(engine, profile, url)
    if status != (0 if engine.passes[profile] else 1):
        must = "pass" if engine.passes[profile] else "fail"
        yield f"{engine.label} must {must} as {profile.value}, and the suite exited with {status}; see {engine.report(profile)}"


def _suite(engine: Engine, profile: Profile, url: str) -> int:
    engine.report(profile).parent.mkdir(exist_ok=True)
    command = [
        *(sys.executable, "-c", "from cachescope.cli.main import main; main()", "conformance", "--engine-url", url),
        *("--engine", engine.name, "--version", engine.version, "--model", MODEL),
        *("--profile", profile.value, "--seed", profile.value, "--report", str(engine.report(profile))),
    ]
    return subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "operator")}).returncode


@contextmanager
def _process(engine: Engine) -> Iterator[str]:
    """The URL of a fresh process of an engine, once it answers. Its log is in the cache folder."""
    python = venvs.ready(engine)
    port, log = _free_port(), from_environment().engines / f"{engine.label}.log"
    command = engine.command(python, venvs.model(engine, python), port)
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, env=venvs.environment(engine)) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, str(log))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
