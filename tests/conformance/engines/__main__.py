"""`python -m tests.conformance.engines [NAME-VERSION ...]`: runs the suite on real engines, and writes their reports.

Each profile is run on a fresh process, with the seed that is the profile's name: so a report can be made again, byte for byte. It
exits with 1 if an engine passes a check that it must fail, fails one that it must pass, or fails it otherwise than it must.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cachescope.probe.conformance.profiles import Profile
from e2e.cluster.layout import from_environment
from tests.conformance.engines.catalogue import ENGINES, MODEL, ROOT, Engine
from tests.conformance.engines.failures import Report, differences
from tests.conformance.engines.processes import process


def main(labels: list[str]) -> int:
    """Run the suite on these engines, or on all."""
    chosen = [engine for engine in ENGINES if engine.label in labels or not labels]
    if len(chosen) < len(labels):
        sys.stderr.write(f"no such engine; there are {', '.join(engine.label for engine in ENGINES)}\n")
        return 2
    wrong = [line for engine in chosen for profile in engine.must_fail for line in _wrong(engine, profile)]
    sys.stderr.write("".join(f"error: {line}\n" for line in wrong))
    return 1 if wrong else 0


def _wrong(engine: Engine, profile: Profile) -> Iterator[str]:
    """What is not as expected, and why there is no report if there is none: the committed one then stays."""
    written = from_environment().engines / engine.report(profile).name
    written.unlink(missing_ok=True)
    with process(engine) as url:
        status = _suite(engine, profile, url, written)
    if not written.exists():
        yield f"{engine.label} as {profile}: the suite wrote no report, and exited with {status}"
        return
    shutil.copyfile(written, engine.report(profile))
    found = Report.model_validate_json(written.read_bytes())
    yield from (f"{engine.label} as {profile}: {line}" for line in differences(engine.must_fail[profile], found.checks))


def _suite(engine: Engine, profile: Profile, url: str, written: Path) -> int:
    command = [
        *(sys.executable, "-c", "from cachescope.cli.main import main; main()", "conformance", "--engine-url", url),
        *("--engine", engine.name, "--version", engine.version, "--model", MODEL),
        *("--profile", profile.value, "--seed", profile.value, "--report", str(written)),
    ]
    return subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "operator")}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
