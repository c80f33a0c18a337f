"""The coverage that `make coverage` asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import branches


def file(lines: int, taken: int) -> dict[str, Any]:
    """A file of which that many of a hundred lines and of a hundred branches are taken."""
    summary = {"covered_lines": lines, "num_statements": 100, "covered_branches": taken, "num_branches": 100}
    return {"summary": summary, "missing_lines": list(range(lines, 100)), "missing_branches": [[1, -1]] * (100 - taken)}


@pytest.mark.parametrize(
    ("core", "gateway", "outcome"),
    [
        (file(95, 95), file(95, 95), 0),
        (file(100, 94), file(100, 100), 1),
        (file(100, 100), file(100, 94), 1),
        (file(94, 100), file(100, 100), 1),
        (file(100, 100), None, 1),
    ],
)
def test_each_package_is_held_by_its_lines_and_by_its_branches(
    tmp_path: Path, core: dict[str, Any], gateway: dict[str, Any] | None, outcome: int
) -> None:
    files = {"operator/cachescope/core/a.py": core, "operator/cachescope/gateway/identity/b.py": gateway}
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"files": {path: item for path, item in files.items() if item}}))
    assert branches.main(str(report)) == outcome


def test_what_is_not_taken_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"files": {"operator/cachescope/core/a.py": file(99, 99)}}))
    branches.main(str(report))
    shown = capsys.readouterr().out
    assert "core/a.py: lines 99\n" in shown
    assert "core/a.py: branches 1 to the end\n" in shown
    assert "core: 99.0% of its lines, 99.0% of its branches\n" in shown
