"""What the folders promise."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import layout as cluster_layout
from e2e.demo import down
from images import layout as images_layout

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "operator" / "cachescope"
WRITTEN = sorted(
    path for folder in (SOURCE, *(ROOT / name for name in ("bench", "e2e", "images"))) for path in folder.rglob("*.py")
)


def test_what_takes_the_demo_down_needs_the_standard_library_only() -> None:
    """The virtual environment may be gone by then; site packages are left out here."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import e2e.demo.down"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_source_root_is_no_package() -> None:
    assert SOURCE.is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists(), "it would shadow the standard library's `operator`"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno + 1 > 40] == []


def test_purge_removes_what_was_built_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHESCOPE_CACHE", str(tmp_path))
    for name in ("buildah/root", "conformance/vllm", "images/log", "somebody/else"):
        (tmp_path / name).mkdir(parents=True)
    down.remove_builds()
    assert [path.name for path in tmp_path.iterdir()] == ["somebody"]


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "unset"])
def test_everybody_finds_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch, *, empty: bool) -> None:
    monkeypatch.delenv("CACHESCOPE_CACHE", raising=False)
    if empty:
        monkeypatch.setenv("CACHESCOPE_CACHE", "")
    default = Path.home() / ".cache" / "cachescope"
    assert [layout.from_environment().cache for layout in (cluster_layout, images_layout)] == [default, default]


def test_locked_requirements_name_no_index() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not [line for line in path.read_text().splitlines() if line.startswith("-") or "://" in line], path.name
