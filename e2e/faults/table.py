"""The faults: each a function that lets something break around a revocation, and leaves it whole.

A fault is named by the decorator; the names are the test's. It calls `scene.revoke()` where it belongs, and may wait for the fence
itself, with the bound that holds under it; whatever is left open is waited for afterwards.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Final

from e2e.faults.engines import ENGINE
from e2e.faults.scene import Scene

Fault = Callable[[Scene], None]

TIMES = int(os.environ.get("CACHESCOPE_FAULT_TIMES", "1"))
SITES = int(os.environ.get("CACHESCOPE_FAULT_SITES", "1"))
"""Installations that play a fault at the same time. Each is a play: there are fewer rounds, and one outage does for all."""
ROUNDS = math.ceil(TIMES / SITES)
FAULTS: Final[dict[str, Fault]] = {}


def fault(name: str, *, slow: bool = False, engine: str = "") -> Callable[[Fault], Fault]:
    """Register a fault under a name.

    Args:
        name: Its name, of all faults.
        slow: Whether it is played only where every fault is, many times.
        engine: The one engine that can play it; any by default.
    """

    def register(function: Fault) -> Fault:
        if name in FAULTS:
            raise ValueError(f"two faults are named {name}; rename one")
        if (TIMES > 1 or not slow) and engine in {"", ENGINE.name}:
            FAULTS[name] = function
        return function

    return register
