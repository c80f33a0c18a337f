"""A bench whose ledgers stand, with a tenant, and a guard that acknowledges them; `__all__` of a test module brings them."""

from __future__ import annotations

import pytest

from tests.unit.bench_leases import LeasedProcess, begun
from tests.unit.controller_bench import Bench, tenant


@pytest.fixture
async def bench() -> Bench:
    return await begun(tenant("red"))


@pytest.fixture
def guard(bench: Bench) -> LeasedProcess:
    made = LeasedProcess(bench)
    made.acknowledge()
    return made
