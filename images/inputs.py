"""What goes into an image: its files, their digest, and the folder that the builder sees.

The builder gets a copy of exactly the files that the digest covers: no file can change an image and not its tag.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from images.errors import ImageError

TAG_LENGTH = 12
IGNORED_FOLDERS = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})


def files(root: Path, sources: Iterable[str]) -> list[str]:
    """Lists all files below the sources, sorted, relative to the root, compiled Python left out.

    Raises:
        ImageError: A source does not exist.
    """
    found: set[str] = set()
    for source in sources:
        path = root / source
        if not path.exists():
            raise ImageError(f"{source} does not exist in {root}", remedy="restore it, or correct images/catalogue.py.")
        found.update(str(file.relative_to(root)) for file in _walk(path))
    return sorted(found)


def _walk(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in path.rglob("*"):
        if file.is_file() and file.suffix != ".pyc" and not IGNORED_FOLDERS.intersection(file.parts):
            yield file


def digest(contents: Iterable[tuple[str, bytes]], *, base: str) -> str:
    """Digests the inputs of an image.

    Args:
        contents: Path and content of each file, in a fixed order.
        base: Reference of the image below.

    Returns:
        The tag: the first 12 hex digits of a SHA-256. Each part goes in with its length, so that no two lists collide.
    """
    state = hashlib.sha256()
    parts = [base.encode()]
    for path, content in contents:
        parts += [path.encode(), content]
    for part in parts:
        state.update(len(part).to_bytes(8, "big") + part)
    return state.hexdigest()[:TAG_LENGTH]


def stage(root: Path, paths: Iterable[str], folder: Path) -> None:
    """Copies files into an empty folder, readable by all whatever the umask of the checkout was."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in paths:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, target)
        target.chmod(0o644)
    for directory in (folder, *folder.rglob("*/")):
        directory.chmod(0o755)
