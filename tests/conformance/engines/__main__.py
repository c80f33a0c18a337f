"""`python -m tests.conformance.engines [NAME-VERSION ...]`: runs the suite on real engines, and writes their reports.

Each profile is run on a fresh process, with the seed that is the profile's name: so a report can be made again, byte for byte. It
exits with 1 if an engine passes a profile that it must fail, or fails one that it must pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from cachescope.probe.conformance.profiles import Profile
from tests.conformance.engines.catalogue import ENGINES, MODEL, ROOT, Engine
from tests.conformance.engines.processes import process


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
    with process(engine) as url:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
