"""Heads: what a process follows never falls, and both ledgers judge what a request carries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachescope.core.epochs import EpochVector
from cachescope.core.heads import Epochs, Heads, Seen, Standing, drain_seconds, judge, may_drain
from cachescope.core.ledgers import Flags, Floor, Ledger, LedgerFork, Lineage, Role, advanced, followed, reborn
from cachescope.core.types import Epoch, TargetName

A, B, C = (TargetName(digit * 64) for digit in "abc")
POOL = Ledger(Role.POOL, Lineage(7, "pool"), 3, floors={A: Floor(Epoch(5))}, flags=Flags(bypassed=Epoch(4)))
AUTHORIZATION = Ledger(Role.AUTHORIZATION, Lineage(8, "authorization"), 9, floors={B: Floor(Epoch(2))}, reach=4)
HEADS = Heads(POOL, AUTHORIZATION)
EPOCHS = Epochs(EpochVector.of({A: Epoch(5), C: Epoch(1)}), EpochVector.of({B: Epoch(2)}))


def test_a_later_state_is_followed_and_the_same_one_too() -> None:
    newer = advanced(POOL, floors={A: Floor(Epoch(6))})
    assert followed(None, POOL) is POOL
    assert followed(POOL, newer) is newer
    assert followed(POOL, POOL) is POOL


@pytest.mark.parametrize(
    "newer",
    [
        replace(POOL, floors={A: Floor(Epoch(6))}, history=()),  # the same sequence with another content
        advanced(replace(POOL, floors={A: Floor(Epoch(6))}, history=())),  # a later one that never saw ours
        replace(POOL, sequence=2, history=()),  # an earlier one
        advanced(POOL, floors={A: Floor(Epoch(4))}),  # a floor fell
        advanced(POOL, floors={}),  # a floor is gone, and the base does not hold it
        advanced(POOL, flags=Flags()),  # a flag fell
        replace(POOL, lineage=Lineage(6, "older"), history=()),
        replace(POOL, lineage=Lineage(7, "other"), history=()),
    ],
)
def test_what_does_not_follow_is_a_fork(newer: Ledger) -> None:
    with pytest.raises(LedgerFork):
        followed(POOL, newer)


def test_a_floor_that_the_base_holds_may_go_unless_it_denies() -> None:
    folded = advanced(POOL, floors={}, base=Epoch(5))
    assert followed(POOL, folded) is folded
    denying = replace(POOL, floors={A: Floor(Epoch(5), denied=Epoch(5))}, history=())
    with pytest.raises(LedgerFork):
        followed(denying, advanced(denying, floors={}, base=Epoch(5)))


def test_a_later_lineage_is_taken_over_whole() -> None:
    later = reborn(POOL, Lineage(8, "restored"), floors={A: Floor(Epoch(1))}, flags=Flags())
    assert followed(POOL, later) is later


def test_heads_follow_only_when_both_do() -> None:
    pool, authorization = advanced(POOL), advanced(AUTHORIZATION)
    assert HEADS.followed_by(Heads(pool, authorization)) == Heads(pool, authorization)
    for forked in (Heads(replace(POOL, sequence=2, history=()), authorization), Heads(pool, replace(AUTHORIZATION, sequence=2))):
        with pytest.raises(LedgerFork):
            HEADS.followed_by(forked)


def _with(*, pool: Ledger = POOL, authorization: Ledger = AUTHORIZATION) -> Heads:
    return Heads(pool, authorization)


def _at(**changes: Floor) -> Ledger:
    return replace(AUTHORIZATION, floors={B: changes["b"]})


@pytest.mark.parametrize(
    ("heads", "seen", "expected"),
    [
        (HEADS, HEADS.seen, Standing.CURRENT),
        (HEADS, replace(HEADS.seen, lineage="restored"), Standing.OTHER_LINEAGE),
        (HEADS, replace(HEADS.seen, authorization_lineage="restored"), Standing.OTHER_LINEAGE),
        (_with(authorization=replace(AUTHORIZATION, restored=1)), HEADS.seen, Standing.UNCONFIRMED),
        (_with(authorization=replace(AUTHORIZATION, restored=1, confirmed=1)), HEADS.seen, Standing.CURRENT),
        (_with(authorization=_at(b=Floor(Epoch(2), denied=Epoch(2)))), HEADS.seen, Standing.DENIED),
        (_with(authorization=_at(b=Floor(Epoch(3), denied=Epoch(3)))), HEADS.seen, Standing.DENIED),
        (_with(authorization=_at(b=Floor(Epoch(2), denied=Epoch(1), readmitted=Epoch(2)))), HEADS.seen, Standing.CURRENT),
        (_with(authorization=_at(b=Floor(Epoch(3)))), HEADS.seen, Standing.BEHIND),
        (_with(pool=replace(POOL, floors={A: Floor(Epoch(6))})), HEADS.seen, Standing.BEHIND),
        (_with(pool=replace(POOL, base=Epoch(2))), HEADS.seen, Standing.BEHIND),
        (HEADS, replace(HEADS.seen, authorization_sequence=4), Standing.CURRENT),
        (HEADS, replace(HEADS.seen, authorization_sequence=3), Standing.BEHIND),
        (HEADS, replace(HEADS.seen, sequence=4), Standing.AHEAD),
        (HEADS, replace(HEADS.seen, authorization_sequence=10), Standing.AHEAD),
        (_with(pool=replace(POOL, floors={A: Floor(Epoch(4))})), HEADS.seen, Standing.AHEAD),
        (_with(authorization=_at(b=Floor(Epoch(1)))), HEADS.seen, Standing.AHEAD),
    ],
)
def test_both_ledgers_judge(heads: Heads, seen: Seen, expected: Standing) -> None:
    assert judge(heads, EPOCHS, seen) is expected


@pytest.mark.parametrize(
    ("floor", "base", "expected"),
    [
        (Floor(Epoch(6), Epoch(5), 30), 1, 30),
        (Floor(Epoch(6), Epoch(6), 30), 1, None),  # closed at once
        (Floor(Epoch(6), Epoch(5), 0), 1, None),  # nobody gave it time
        (Floor(Epoch(5), Epoch(5), 30), 6, None),  # folded into the base
        (Floor(Epoch(6), Epoch(5), 30), 2, None),  # C is below the base
    ],
)
def test_what_fell_behind_drains_only_if_every_target_allows_it(floor: Floor, base: int, expected: int | None) -> None:
    ledger = replace(POOL, floors={A: floor}, base=Epoch(base))
    assert may_drain(ledger, EPOCHS.cache) == expected


def test_the_shortest_drain_counts() -> None:
    ledger = replace(POOL, floors={A: Floor(Epoch(6), Epoch(5), 30), C: Floor(Epoch(2), Epoch(1), 20)})
    assert may_drain(ledger, EPOCHS.cache) == 20


def test_a_drain_needs_both_ledgers() -> None:
    pool = replace(POOL, floors={A: Floor(Epoch(6), Epoch(5), 30)})
    revoked = replace(AUTHORIZATION, floors={B: Floor(Epoch(3), Epoch(3))})
    assert drain_seconds(Heads(pool, AUTHORIZATION), EPOCHS, HEADS.seen) == 30
    assert drain_seconds(Heads(pool, revoked), EPOCHS, HEADS.seen) is None
    assert drain_seconds(Heads(pool, AUTHORIZATION), EPOCHS, replace(HEADS.seen, authorization_sequence=3)) is None
