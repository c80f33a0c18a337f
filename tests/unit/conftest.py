"""What all unit tests share: hypothesis without clocks, and a garbage collector that looks less often: a third of the time."""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

gc.set_threshold(100_000, 50, 50)

# Nothing that measures time: a machine that does much else is no fault of what is tested.
settings.register_profile("unit", max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
