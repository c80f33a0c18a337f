"""The faults: each a function that lets something break around a revocation, and leaves it whole.

A fault is named by the decorator; the names are the test's. It calls `scene.revoke()` where it belongs, and may wait for the fence
itself, with the bound that holds under it; whatever is left open is waited for afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from e2e.faults.scene import Scene

Fault = Callable[[Scene], None]

FAULTS: Final[dict[str, Fault]] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Register a fault under a name."""

    def register(function: Fault) -> Fault:
        if name in FAULTS:
            raise ValueError(f"two faults are named {name}; rename one")
        FAULTS[name] = function
        return function

    return register
