"""Published vectors, and that core and guard run on every interpreter that an engine image may have."""

from __future__ import annotations

import hmac
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.make_vectors import FOLDER, documents

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
ASK = "import platform; print(platform.python_version())"
# A sidecar runs in an image of its own, which has aiohttp; the others run inside an engine, of which nothing is known.
SCRIPT = """
import importlib, pkgutil, runpy, sys
sys.path.insert(0, "operator")
import cachescope.core, cachescope.guard, cachescope.leases
for package in (cachescope.core, cachescope.guard, cachescope.leases):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name not in ("cachescope.guard.proxy", "cachescope.guard.sidecar"):
            importlib.import_module(module.name)
assert not [path for path in sys.path if "site-packages" in path], sys.path
sys.argv = ["make_vectors.py", "--check"]
runpy.run_path("tests/unit/make_vectors.py", run_name="__main__")
"""


def _candidates(version: str) -> Iterator[Path]:
    found = shutil.which(f"python{version}")
    if found:
        yield Path(found)
    yield from sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))


def _interpreters() -> dict[str, Path]:
    """Every interpreter to try, by its full version: this one always, others where the machine has them."""
    candidates = [Path(sys.executable), *(path for version in VERSIONS for path in _candidates(version))]
    found: dict[str, Path] = {}
    for candidate in candidates:
        asked = subprocess.run([candidate, "-I", "-S", "-c", ASK], check=False, capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.strip().startswith(tuple(f"{version}." for version in VERSIONS)):
            found.setdefault(asked.stdout.strip(), candidate)
    return found


INTERPRETERS = _interpreters()


@pytest.mark.parametrize("name", documents())
def test_the_published_vectors_are_current(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == documents()[name]


def test_the_running_python_is_among_those_that_are_tried() -> None:
    assert platform.python_version() in INTERPRETERS, f"core and guard promise Python {', '.join(VERSIONS)}"


@pytest.mark.parametrize("version", INTERPRETERS)
def test_core_and_guard_run_without_site_packages(version: str) -> None:
    """On every Python of an engine image that this machine has; the names of the cases say which those are."""
    command = [str(INTERPRETERS[version]), "-I", "-S", "-B", "-W", "error", "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_key_is_what_the_rfc_says() -> None:
    """HKDF-SHA-256 written out (RFC 5869), so that the vectors do not rest on the code they test."""
    for vector in json.loads((FOLDER / "keys.json").read_text("utf-8"))["vectors"]:
        extracted = hmac.new(b"cachescope/hkdf/v1", bytes.fromhex(vector["root"]), sha256).digest()
        info = _list(
            [_text("cachescope/key/v1"), _text(vector["purpose"]), _list(map(_text, vector["context"])), _text(vector["id"])]
        )
        assert hmac.new(extracted, info + b"\x01", sha256).hexdigest() == vector["key"]


def _text(value: str) -> bytes:
    content = value.encode()
    return b"S" + len(content).to_bytes(8, "big") + content


def _list(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return b"L" + len(encoded).to_bytes(8, "big") + b"".join(encoded)
