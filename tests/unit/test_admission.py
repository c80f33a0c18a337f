"""Admission as a table: every changed field of a permit is refused, in the order of the rules, and use is single."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.admission import GuardState, Refusal, Request, UsedPermits, refusal
from cachescope.core.caches import Caching
from cachescope.core.epochs import EpochVector
from cachescope.core.heads import Epochs, Heads
from cachescope.core.ledgers import Flags, Floor, Ledger, Lineage, Role
from cachescope.core.permits import Permit
from cachescope.core.record import ABSENT, EngineDigests, Loaded
from cachescope.core.types import NO_CACHE, CacheIdentity, Digest, Epoch, Reuse, ScopeClass, TargetName
from tests.unit.core_strategies import digest_of, epochs, floors_by_target
from tests.unit.test_permits import PERMIT, VARIANTS

POOL, TENANT = TargetName("a" * 64), TargetName("b" * 64)


def _floors(values: Mapping[TargetName, Epoch]) -> dict[TargetName, Floor]:
    return {target: Floor(value) for target, value in values.items()}


HEADS = Heads(
    Ledger(Role.POOL, Lineage(7, "lineage"), 9, floors=_floors({POOL: Epoch(1)})),
    Ledger(Role.AUTHORIZATION, Lineage(7, "authorization"), 8, floors=_floors({TENANT: Epoch(2)})),
)
X, Y = digest_of("e"), digest_of("f")
LOADED = Loaded(EngineDigests(digest_of("a"), digest_of("b"), PERMIT.runtime_digest), {"x": X})
STATE = GuardState(
    pool_uid="pool",
    pool_target=POOL,
    pod_uid="pod",
    boot_id=PERMIT.boot_id,
    tick=200,
    max_age_ms=100,
    loaded=LOADED,
    heads=HEADS,
    right=True,
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
    "adapter_digest": Refusal.OTHER_RUNTIME,
    "cache": Refusal.OTHER_CACHE,
    "seen.lineage": Refusal.OTHER_LINEAGE,
    "seen.authorization_lineage": Refusal.OTHER_LINEAGE,
    "epochs.cache": Refusal.GUARD_BEHIND,
    "epochs.authorization": Refusal.GUARD_BEHIND,
    "seen.sequence": Refusal.GUARD_BEHIND,
    "seen.authorization_sequence": Refusal.GUARD_BEHIND,
}
UNJUDGED = {"id", "tick", "record_digest", "scope", "reuse"}
"""Fields whose change is another valid permit: the MAC alone protects them."""

FRESH = replace(PERMIT, reuse=Reuse.FRESH)
PUBLIC = replace(PERMIT, scope=ScopeClass.PUBLIC)
BYPASS = replace(STATE, heads=replace(HEADS, pool=replace(HEADS.pool, flags=Flags(bypassed=Epoch(1)))))
STOPPED = replace(STATE, heads=replace(HEADS, pool=replace(HEADS.pool, flags=Flags(public_stopped=Epoch(1)))))
RESUMED = replace(STATE, heads=replace(HEADS, pool=replace(HEADS.pool, flags=Flags(Epoch(1), Epoch(1), Epoch(1)))))
DENIED = replace(HEADS, authorization=replace(HEADS.authorization, floors={TENANT: Floor(Epoch(2), denied=Epoch(2))}))
READMITTED = replace(
    HEADS, authorization=replace(HEADS.authorization, floors={TENANT: Floor(Epoch(2), denied=Epoch(1), readmitted=Epoch(2))})
)


def test_the_exact_permit_is_admitted() -> None:
    assert refusal(PERMIT, REQUEST, STATE) is None
    assert refusal(PERMIT, replace(REQUEST, body_digest=None), STATE) is None


def test_every_field_is_judged_or_named_as_unjudged() -> None:
    assert set(VARIANTS) == REFUSED.keys() | UNJUDGED


@pytest.mark.parametrize("field", REFUSED)
def test_a_changed_field_is_refused(field: str) -> None:
    assert refusal(VARIANTS[field], REQUEST, STATE) is REFUSED[field]


MINE, OTHERS = CacheIdentity("m" * 43), CacheIdentity("o" * 43)


@pytest.mark.parametrize(
    ("caching", "bound", "cache", "reuse", "expected"),
    [
        (Caching.SALTED, NO_CACHE, NO_CACHE, Reuse.SALTED, None),
        (Caching.SALTED, NO_CACHE, MINE, Reuse.SALTED, Refusal.OTHER_CACHE),
        (Caching.SALTED, NO_CACHE, MINE, Reuse.FRESH, Refusal.OTHER_CACHE),
        (Caching.ONE_CACHE, NO_CACHE, MINE, Reuse.SALTED, None),
        (Caching.ONE_CACHE, MINE, MINE, Reuse.SALTED, None),
        (Caching.ONE_CACHE, MINE, MINE, Reuse.FRESH, None),
        (Caching.ONE_CACHE, MINE, OTHERS, Reuse.SALTED, Refusal.OTHER_CACHE),
        (Caching.ONE_CACHE, MINE, OTHERS, Reuse.FRESH, Refusal.OTHER_CACHE),
        (Caching.ONE_CACHE, MINE, OTHERS, Reuse.NONE, Refusal.OTHER_CACHE),
        (Caching.ONE_CACHE, MINE, NO_CACHE, Reuse.FRESH, Refusal.OTHER_CACHE),
        (Caching.ONE_CACHE, NO_CACHE, NO_CACHE, Reuse.SALTED, Refusal.OTHER_CACHE),
        (Caching.OFF, NO_CACHE, NO_CACHE, Reuse.SALTED, Refusal.REUSE_OFF),
        (Caching.OFF, NO_CACHE, NO_CACHE, Reuse.FRESH, None),
        (Caching.OFF, NO_CACHE, NO_CACHE, Reuse.NONE, None),
        (Caching.OFF, NO_CACHE, MINE, Reuse.FRESH, Refusal.OTHER_CACHE),
    ],
)
def test_a_permit_is_for_the_cache_that_the_pod_has(
    caching: Caching, bound: CacheIdentity, cache: CacheIdentity, reuse: Reuse, expected: Refusal | None
) -> None:
    permit = replace(PERMIT, cache=cache, reuse=reuse)
    assert refusal(permit, REQUEST, replace(STATE, caching=caching, cache=bound)) is expected


@pytest.mark.parametrize("unknown", [{"heads": None}, {"loaded": None}, {"right": False}])
def test_without_heads_digests_or_right_nothing_passes(unknown: dict[str, object]) -> None:
    assert refusal(PERMIT, REQUEST, replace(STATE, **unknown)) is Refusal.NO_RIGHT  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("adapter", "adapters", "expected"),
    [
        (ABSENT, {}, None),
        (ABSENT, {"x": X}, None),
        (X, {"x": X}, None),
        (X, {"y": Y, "x": X}, None),
        (X, {}, Refusal.OTHER_RUNTIME),
        (X, {"x": Y}, Refusal.OTHER_RUNTIME),
    ],
)
def test_a_permit_is_for_an_adapter_that_this_engine_loaded_or_for_none(
    adapter: Digest, adapters: dict[str, Digest], expected: Refusal | None
) -> None:
    state = replace(STATE, loaded=replace(LOADED, adapters=adapters))
    assert refusal(replace(PERMIT, adapter_digest=adapter), REQUEST, state) is expected


@given(st.integers(-300, 600))
def test_age_is_judged_by_the_guards_own_tick(tick: int) -> None:
    found = refusal(replace(PERMIT, tick=tick), REQUEST, STATE)
    expected = Refusal.TICK_AHEAD if tick > 200 else Refusal.TOO_OLD if tick < 100 else None
    assert found is expected


@pytest.mark.parametrize(
    ("permit", "state", "expected"),
    [
        (PERMIT, replace(STATE, right=False, fresh=True), Refusal.LEASE_LOST),
        (FRESH, replace(STATE, right=False, fresh=True), None),
        (FRESH, replace(STATE, right=False), Refusal.NO_RIGHT),
        (PERMIT, BYPASS, Refusal.BYPASSED),
        (FRESH, BYPASS, None),
        (PUBLIC, STOPPED, Refusal.PUBLIC_STOPPED),
        (replace(PUBLIC, reuse=Reuse.FRESH), STOPPED, Refusal.PUBLIC_STOPPED),
        (PERMIT, STOPPED, None),
        (PUBLIC, RESUMED, None),
        (PERMIT, replace(STATE, heads=DENIED), Refusal.REVOKED),
        (FRESH, replace(STATE, heads=DENIED, right=False, fresh=True), Refusal.REVOKED),
        (PERMIT, replace(STATE, heads=READMITTED), None),
        (PERMIT, replace(STATE, heads=replace(HEADS, authorization=replace(HEADS.authorization, restored=1))), Refusal.UNCONFIRMED),
        (PERMIT, replace(STATE, heads=replace(HEADS, authorization=replace(HEADS.authorization, reach=9))), Refusal.BEHIND),
        (PERMIT, replace(STATE, heads=replace(HEADS, authorization=replace(HEADS.authorization, reach=8))), None),
    ],
)  # fmt: skip
def test_right_incidents_and_denials_decide_what_may_be_reused(permit: Permit, state: GuardState, expected: Refusal | None) -> None:
    assert refusal(permit, REQUEST, state) is expected


@given(floors_by_target, epochs, floors_by_target, floors_by_target)
def test_no_target_below_its_floor_is_ever_admitted(
    floors: dict[TargetName, Epoch], base: Epoch, cache: dict[TargetName, Epoch], others: dict[TargetName, Epoch]
) -> None:
    ledgers = [replace(ledger, floors=_floors(floors), base=base) for ledger in (HEADS.pool, HEADS.authorization)]
    permit = replace(PERMIT, epochs=Epochs(EpochVector.of(cache), EpochVector.of(others)))
    found = refusal(permit, REQUEST, replace(STATE, heads=Heads(*ledgers)))
    values = [*cache.items(), *others.items()]
    stands = {target: max(floors.get(target, base), base) for target, _ in values}
    if POOL not in cache:
        assert found is Refusal.NO_POOL_EPOCH
    elif any(value < stands[target] for target, value in values):
        assert found is Refusal.BEHIND
    else:
        ahead = any(target in floors and value > stands[target] for target, value in values)
        assert found is (Refusal.GUARD_BEHIND if ahead else None)


def test_a_permit_that_is_behind_and_ahead_is_behind() -> None:
    mixed = Epochs(EpochVector.of({POOL: Epoch(0)}), EpochVector.of({TENANT: Epoch(9)}))
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
