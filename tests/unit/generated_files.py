"""Files that are made from what the code knows: written, or only compared."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("\0", "NUL")


def page(path: Path, mark: str, generated: str) -> int:
    """Write what of a page comes after a mark, the mark included; with `--check` in the command line only compare it.

    Args:
        path: The page, which people write up to the mark.
        mark: A line that is nowhere else in it.
        generated: What is to stand there.

    Returns:
        The exit status: 1 where something else stands there.
    """
    text = path.read_text("utf-8")
    whole = text.split(mark)[0] + generated
    if "--check" in sys.argv:
        return int(text != whole)
    path.write_text(whole, "utf-8")
    return 0


def goldens(files: Mapping[Path, str]) -> int:
    """Write golden files; with `--check` in the command line only compare them, and say which differ.

    Returns:
        The exit status: 1 where one differs and was only compared.
    """
    check = "--check" in sys.argv
    differing = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in differing:
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[path])
        sys.stderr.write(f"{path} {'differs' if check else 'written'}\n")
    return int(check and bool(differing))
