"""What all unit tests share: a garbage collector that looks less often, which spares a third of the time."""

from __future__ import annotations

import gc

gc.set_threshold(100_000, 50, 50)
