"""Published vectors, and that core and guard run on every interpreter that an engine image may have."""

from __future__ import annotations

import hmac
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.make_vectors import FOLDER, documents

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def _candidates(version: str) -> Iterator[Path]:
    found = shutil.which(f"python{version}")
    if found:
        yield Path(found)
    yield from sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))


def _interpreter(version: str) -> Path | None:
    for candidate in _candidates(version):
        asked = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=False, capture_output=True, text=True
        )
        if asked.stdout.strip() == version:
            return candidate
    return None


@pytest.mark.parametrize("name", documents())
def test_the_published_vectors_are_current(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == documents()[name]


@pytest.mark.parametrize("version", VERSIONS)
def test_core_and_guard_run_on_every_python_of_an_engine(version: str) -> None:
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} is on this machine")
    script = (
        "import sys; sys.path.insert(0, 'operator')\n"
        "import importlib, pkgutil, runpy, cachescope.core, cachescope.guard\n"
        "for package in (cachescope.core, cachescope.guard):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'): importlib.import_module(module.name)\n"
        "sys.argv = ['make_vectors.py', '--check']\n"
        "runpy.run_path('tests/unit/make_vectors.py', run_name='__main__')\n"
    )
    subprocess.run([interpreter, "-I", "-B", "-W", "error", "-c", script], cwd=ROOT, check=True, timeout=60)


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
