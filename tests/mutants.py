"""Mutation testing of the pure rules: `python -m tests.mutants [core/salts ...]`; without names all modules of `TESTS`.

Each mutant changes one expression of a module; its tests must notice. At least `LEAST` of them must be noticed in each module, and
those that were not are shown. It works on a copy, laid out as mutmut wants it, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
LEAST: Final = 0.9
VECTORS = "test_vectors.py"
TESTS: Final = {
    "core/approvals": ("test_approvals.py",),
    "core/handles": ("test_handles.py",),
    "core/identity": ("test_identity.py", VECTORS),
    "core/permits": ("test_permits.py", VECTORS),
    "core/probes": ("test_probe_credentials.py",),
    "core/salts": ("test_salts.py", VECTORS),
    "core/scopes": ("test_scopes.py", VECTORS),
    "core/segments": ("test_segments.py",),
}
"""Which tests hold which module."""
COPIED: Final = ("tests/unit", "docs/vectors")
NOTICED: Final = frozenset({"killed", "timeout", "caught by type check"})


def main(modules: list[str]) -> int:
    """Run, and show what survived; 1 when a module is held too little."""
    unknown = [name for name in modules if name not in TESTS]
    if unknown:
        sys.stderr.write(f"no tests are named for {', '.join(unknown)}; add them to TESTS in tests/mutants.py\n")
        return 2
    return max(_tested(name) for name in modules or TESTS)


def _tested(module: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _lay_out(place, module)
        done = _mutmut(place, "run", "--max-children", str(os.cpu_count() or 1))
        found = _results(place, module)
        if not found:
            sys.stderr.write(f"{module}: no mutant was made\n{done.stdout[-4000:]}{done.stderr[-4000:]}\n")
            return 1
        return _told(place, module, found)


def _lay_out(place: Path, module: str) -> None:
    shutil.copytree(ROOT / "operator" / "cachescope", place / "src" / "cachescope", ignore=shutil.ignore_patterns("__pycache__"))
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, place / name)
    selected = [f"tests/unit/{name}" for name in TESTS[module]]
    (place / "pyproject.toml").write_text(
        f"""
[tool.pytest.ini_options]
pythonpath = ["src", "."]
asyncio_mode = "auto"
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/cachescope/{module}.py"]
also_copy = ["tests", "docs"]
pytest_add_cli_args = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not running_python and not without_site_packages"]
pytest_add_cli_args_test_selection = {json.dumps(selected)}
"""
    )


def _results(place: Path, module: str) -> dict[str, str]:
    """What became of each mutant, by its name."""
    lines = _mutmut(place, "results", "--all", "true").stdout.splitlines()
    pairs = [line.strip().rpartition(": ") for line in lines]
    return {name: outcome for name, _, outcome in pairs if name.startswith(f"cachescope.{module.replace('/', '.')}.")}


def _told(place: Path, module: str, found: dict[str, str]) -> int:
    outcomes = Counter(found.values())
    share = sum(outcomes[name] for name in NOTICED) / len(found)
    sys.stdout.write(f"{module}: {share:.0%} of {len(found)} mutants were noticed {dict(outcomes)}\n")
    for name, outcome in found.items():
        if outcome not in NOTICED:
            sys.stdout.write(f"{outcome}: {name}\n{_mutmut(place, 'show', name).stdout}\n")
    sys.stdout.flush()
    return int(share < LEAST)


def _mutmut(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
