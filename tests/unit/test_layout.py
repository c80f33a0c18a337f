"""What the folders promise."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "operator" / "cachescope"


def test_the_source_root_is_no_package() -> None:
    assert SOURCE.is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists(), "it would shadow the standard library's `operator`"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno > 50] == []


def test_locked_requirements_name_no_index() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not [line for line in path.read_text().splitlines() if line.startswith("-") or "://" in line], path.name
