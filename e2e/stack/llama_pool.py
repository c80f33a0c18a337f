"""Pools whose engine is llama.cpp with a tiny model on a volume, which the guard beside it sees too (`volumes.claimed`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from e2e.stack import tiny_gguf
from e2e.stack.tenancy import object_of

IMAGE = "llama-cpp"
VERSION = "2026.10.11549"
"""Of the package in the image (`requirements/llama-cpp.in`)."""
FILE = "tiny.gguf"
SLOT_TOKENS = 8192


def write_model(folder: Path, seed: int = 0) -> None:
    """Write the model into a folder that a claim will be bound to.

    Args:
        folder: Where to; it is made.
        seed: Decides the weights.
    """
    tiny_gguf.write(folder / FILE, seed)


def document(name: str, *, image: str, claim: str, slots: int = 1, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """The pool; clients name it as the model.

    Args:
        name: Its name.
        image: The image of llama.cpp.
        claim: The claim that holds the model.
        slots: How many requests an engine serves at once, each with `SLOT_TOKENS` tokens.
        args: Further arguments of the engine.
    """
    size = ("--ctx-size", str(slots * SLOT_TOKENS), "--parallel", str(slots))
    spec: dict[str, Any] = {
        "model": {"name": name, "source": {"persistentVolumeClaim": {"claimName": claim, "path": FILE}}},
        "engine": {"type": "llama.cpp", "version": VERSION, "image": image, "args": [*size, *args]},
        "guard": {"mode": "Sidecar"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "fence": {"leaseSeconds": 3},
    }
    return object_of("ServingPool", name, spec)
