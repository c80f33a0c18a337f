"""Virtual environments of engines in the cache folder: made once from a requirements file whose every artifact is hashed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.cluster.layout import from_environment
from tests.conformance.engines.catalogue import ROOT, Engine

_STUBS = ROOT / "images/vllm-cpu/cuda_stubs.py"
_PYTHON = "python3.11"


def ready(engine: Engine) -> Path:
    """The Python of an engine's environment, which is made if it is not there or its requirements are others now.

    Raises:
        subprocess.CalledProcessError: It cannot be installed; pip says why.
    """
    requirements = ROOT / "requirements" / engine.requirements
    digest = hashlib.sha256(requirements.read_bytes() + _STUBS.read_bytes() + _named(engine)).hexdigest()[:16]
    venv = from_environment().engines / engine.label / digest
    if not (venv / "ok").exists():
        shutil.rmtree(venv.parent, ignore_errors=True)
        _make(venv, requirements)
        if engine.known_as:
            _name(venv, *engine.known_as)
        (venv / "ok").touch()
    return venv / "bin" / "python"


def _named(engine: Engine) -> bytes:
    return "==".join(engine.known_as or ()).encode()


def _make(venv: Path, requirements: Path) -> None:
    python = venv / "bin" / "python"
    subprocess.run([_interpreter(), "-m", "venv", str(venv)], check=True)
    # Compiled when they are imported: most modules never are.
    install = ["-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes", "--no-deps", "-r", str(requirements)]
    subprocess.run([str(python), *install], check=True)
    for libraries in venv.glob("lib/python3*/site-packages/torch/lib"):
        subprocess.run([str(python), str(_STUBS), str(libraries)], check=True)


def _name(venv: Path, name: str, version: str) -> None:
    for packages in venv.glob("lib/python3*/site-packages"):
        metadata = packages / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _interpreter() -> str:
    """The Python that the requirements are locked for."""
    found = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which(_PYTHON)
    if found is None:
        raise SystemExit(f"the engines' requirements are locked for {_PYTHON}, which is not there; install it")
    return found


def model(engine: Engine, python: Path) -> Path:
    """The tiny model of an engine, which is written if it is not there: random weights of one seed."""
    path = python.parents[1] / "model"
    if not path.exists():
        subprocess.run([str(python), str(engine.writes_model), str(path), "0"], check=True, env=environment(engine))
    return path


def environment(engine: Engine) -> dict[str, str]:
    """The variables of an engine's process."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**own, **engine.environment, "PYTHONUNBUFFERED": "1"}
