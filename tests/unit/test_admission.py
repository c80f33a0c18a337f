"""Admission as a table: every changed field of a permit is refused, in the order of the rules, and use is single."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.admission import GuardState, Refusal, Request, UsedPermits, refusal
from cachescope.core.epochs import EpochVector, Floors
from cachescope.core.heads import Head
from cachescope.core.permits import Permit
from cachescope.core.types import Epoch, TargetName
from tests.unit.core_strategies import epochs, floors_by_target
from tests.unit.test_permits import PERMIT, VARIANTS

POOL = TargetName("a" * 64)
FLOORS = Floors(dict(PERMIT.epochs.entries))
STATE = GuardState(
    pool_uid="pool",
    pool_target=POOL,
    pod_uid="pod",
    boot_id=PERMIT.boot_id,
    tick=200,
    max_age_ms=100,
    runtime_digest=PERMIT.runtime_digest,
    head=Head("lineage", 9, FLOORS),
)
REQUEST = Request("POST", "/v1/completions", PERMIT.body_digest)
REFUSED = {
    "pool_uid": Refusal.OTHER_PROCESS,
    "pod_uid": Refusal.OTHER_PROCESS,
    "boot_id": Refusal.OTHER_BOOT,
    "method": Refusal.OTHER_REQUEST,
    "path": Refusal.OTHER_REQUEST,
    "body_digest": Refusal.OTHER_REQUEST,
    "runtime_digest": Refusal.OTHER_RUNTIME,
    "lineage": Refusal.OTHER_LINEAGE,
    "epochs": Refusal.GUARD_BEHIND,
    "sequence": Refusal.GUARD_BEHIND,
}
UNJUDGED = {"id", "tick", "record_digest", "scope", "reuse"}
"""Fields whose change is another valid permit: the MAC alone protects them."""


def test_the_exact_permit_is_admitted() -> None:
    assert refusal(PERMIT, REQUEST, STATE) is None
    assert refusal(PERMIT, replace(REQUEST, body_digest=None), STATE) is None


def test_every_field_is_judged_or_named_as_unjudged() -> None:
    assert set(VARIANTS) == REFUSED.keys() | UNJUDGED


@pytest.mark.parametrize("field", REFUSED)
def test_a_changed_field_is_refused(field: str) -> None:
    assert refusal(VARIANTS[field], REQUEST, STATE) is REFUSED[field]


@pytest.mark.parametrize("unknown", [{"head": None}, {"runtime_digest": None}])
def test_without_right_or_digests_nothing_passes(unknown: dict[str, None]) -> None:
    assert refusal(PERMIT, REQUEST, replace(STATE, **unknown)) is Refusal.NO_RIGHT  # type: ignore[arg-type]


@given(st.integers(-300, 600))
def test_age_is_judged_by_the_guards_own_tick(tick: int) -> None:
    found = refusal(replace(PERMIT, tick=tick), REQUEST, STATE)
    expected = Refusal.TICK_AHEAD if tick > 200 else Refusal.TOO_OLD if tick < 100 else None
    assert found is expected


@given(st.builds(Floors, floors_by_target, epochs), floors_by_target)
def test_no_target_below_its_floor_is_ever_admitted(floors: Floors, values: dict[TargetName, Epoch]) -> None:
    permit = replace(PERMIT, epochs=EpochVector.of(values))
    found = refusal(permit, REQUEST, replace(STATE, head=Head("lineage", 9, floors)))
    if POOL not in values:
        assert found is Refusal.NO_POOL_EPOCH
    elif any(value < floors.floor(target) for target, value in values.items()):
        assert found is Refusal.BEHIND
    else:
        assert (found is None) == all(value == floors.floor(target) for target, value in values.items())


def test_a_permit_that_is_behind_and_ahead_is_behind() -> None:
    mixed = EpochVector.of({POOL: Epoch(0), TargetName("b" * 64): Epoch(9)})
    assert refusal(replace(PERMIT, epochs=mixed), REQUEST, STATE) is Refusal.BEHIND


def test_codes_and_statuses_are_stable() -> None:
    assert len({refused.code for refused in Refusal}) == len(Refusal)
    assert {refused.status for refused in Refusal} == {401, 403, 409, 413, 503}


def _permit(name: str, tick: int) -> Permit:
    return replace(PERMIT, id=name, tick=tick)


def test_an_id_is_used_once() -> None:
    used = UsedPermits(10)
    assert [used.use(PERMIT, tick=200, max_age_ms=100) for _ in range(3)] == [None, Refusal.USED, Refusal.USED]
    assert len(used) == 1


def test_a_full_memory_refuses_until_ids_are_too_old_to_come_back() -> None:
    used = UsedPermits(2)
    assert used.use(_permit("a", 100), tick=150, max_age_ms=100) is None
    assert used.use(_permit("b", 150), tick=150, max_age_ms=100) is None
    assert used.use(_permit("c", 190), tick=200, max_age_ms=100) is Refusal.MEMORY_FULL
    assert used.use(_permit("c", 190), tick=201, max_age_ms=100) is None
    assert used.use(_permit("b", 150), tick=201, max_age_ms=100) is Refusal.USED


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=40), st.integers(1, 4))
def test_no_id_is_ever_admitted_twice(steps: list[tuple[int, int]], capacity: int) -> None:
    used, now, admitted = UsedPermits(capacity), 100, []
    born: dict[str, int] = {}
    for name, pause in steps:
        now += pause
        permit = _permit(str(name), born.setdefault(str(name), now))
        state = replace(STATE, tick=now)
        if refusal(permit, REQUEST, state) is None and used.use(permit, tick=now, max_age_ms=100) is None:
            admitted.append(permit.id)
    assert len(admitted) == len(set(admitted))
