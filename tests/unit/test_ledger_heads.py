"""The ledgers that a gateway holds: what was seen never falls, a watch only raises, and what is unclear issues nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachescope.core import lineages
from cachescope.core.ledger_documents import write_ledger
from cachescope.core.ledgers import (
    AUTHORIZATION_HEAD,
    Floor,
    Ledger,
    Lineage,
    Role,
    advanced,
    followed,
    reborn,
    shard_name,
)
from cachescope.core.types import Epoch, TargetName
from cachescope.gateway import ledger_heads
from cachescope.gateway.ledger_heads import LedgerHeads, LedgerRead
from cachescope.gateway.readings import KnownLedger, Reading, read_ledger
from cachescope.kube.watched import Name

A, B = Name("models", "a"), Name("models", "b")
HEAD = Name("models", AUTHORIZATION_HEAD)
TARGET = TargetName("a" * 64)
SHARD = Name("models", shard_name(TARGET))
FIRST = Ledger(Role.POOL, Lineage(1, "1" * 32), 1, floors={TARGET: Floor(Epoch(3))})
AUTHORIZATION = Ledger(Role.AUTHORIZATION, Lineage(1, "2" * 32), 1)


def shard_of(target: TargetName, floor: Floor) -> Ledger:
    """A shard with one floor."""
    return Ledger(Role.SHARD, Lineage(1, "3" * 32), 1, floors={target: floor})


def up(ledger: Ledger, epoch: int, **floor: Any) -> Ledger:
    """The next state of a ledger, with another floor."""
    return advanced(ledger, floors={**ledger.floors, TARGET: Floor(Epoch(epoch), **floor)})


def readings(ledgers: dict[Name, Ledger]) -> dict[Name, Reading[KnownLedger]]:
    return {name: Reading(KnownLedger(ledger)) for name, ledger in ledgers.items()}


def read(heads: LedgerHeads, ledgers: dict[Name, Ledger], shards: dict[Name, Ledger] | None = None) -> bool:
    """A round."""
    return heads.read(LedgerRead(heads.known, readings(ledgers), readings(shards or {})))


def epochs(heads: LedgerHeads) -> dict[Name, int]:
    return {name: ledger.epoch(TARGET) for name, ledger in heads.standings.pools.items()}


@pytest.fixture
def heads() -> LedgerHeads:
    found = LedgerHeads()
    assert read(found, {A: FIRST, B: FIRST})
    return found


def test_a_ledger_that_rises_is_followed_and_one_that_falls_is_a_fork(heads: LedgerHeads) -> None:
    assert read(heads, {A: up(FIRST, 5), B: FIRST})
    assert epochs(heads) == {A: 5, B: 3}
    read(heads, {A: up(up(FIRST, 5), 4), B: FIRST})
    assert epochs(heads) == {B: 3}
    assert "does not follow" in heads.faults[A]
    read(heads, {A: up(up(FIRST, 5), 6), B: FIRST})
    assert (epochs(heads), heads.faults) == ({A: 6, B: 3}, {})


def test_nothing_changes_when_the_same_is_read_again(heads: LedgerHeads) -> None:
    assert not read(heads, {A: replace(FIRST), B: FIRST})


def test_a_restore_is_a_fork_until_there_is_a_new_lineage(heads: LedgerHeads) -> None:
    read(heads, {A: up(up(FIRST, 5), 6), B: FIRST})
    for restored in (FIRST, up(up(FIRST, 9), 10)):  # back to before, and another change under a sequence that was seen
        read(heads, {A: restored, B: FIRST})
        assert epochs(heads) == {B: 3}
    read(heads, {A: reborn(FIRST, Lineage(2, "f" * 32)), B: FIRST})
    assert epochs(heads) == {A: 3, B: 3}
    read(heads, {A: up(up(FIRST, 5), 6), B: FIRST})
    assert epochs(heads) == {B: 3}, "and the old lineage never comes back"


def test_a_ledger_that_vanished_issues_nothing_and_comes_back_no_lower(heads: LedgerHeads) -> None:
    read(heads, {A: up(FIRST, 5), B: FIRST})
    assert read(heads, {B: FIRST})
    assert epochs(heads) == {B: 3}
    read(heads, {A: FIRST, B: FIRST})
    assert epochs(heads) == {B: 3}
    read(heads, {A: up(FIRST, 5), B: FIRST})
    assert epochs(heads) == {A: 5, B: 3}


def test_a_ledger_that_cannot_be_read_is_its_own_fault_alone(heads: LedgerHeads) -> None:
    unreadable: Reading[KnownLedger] = Reading(None, "no ledger")
    heads.read(LedgerRead(heads.known, {A: unreadable, **readings({B: up(FIRST, 4)})}))
    assert (epochs(heads), heads.faults) == ({B: 4}, {A: "no ledger"})


def test_what_nobody_thought_of_in_a_ledger_is_its_own_fault_alone(heads: LedgerHeads, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(known: Ledger | None, newer: Ledger) -> Ledger:
        if newer.sequence == 2:
            raise OverflowError
        return followed(known, newer)

    monkeypatch.setattr(ledger_heads, "followed", broken)
    read(heads, {A: up(FIRST, 5), B: FIRST})
    assert epochs(heads) == {B: 3}
    assert "OverflowError" in heads.faults[A]


def test_a_ledger_is_for_what_its_name_says() -> None:
    written = {"metadata": {"name": AUTHORIZATION_HEAD}, "spec": write_ledger(FIRST)}
    assert "role is Pool" in read_ledger(written).fault
    assert read_ledger({**written, "metadata": {"name": "a"}}).value == KnownLedger(FIRST)


class TestHints:
    def test_a_hint_raises_and_never_lowers(self, heads: LedgerHeads) -> None:
        assert heads.hint(readings({A: up(FIRST, 5), B: FIRST})) == (True, False)
        assert epochs(heads) == {A: 5, B: 3}
        assert heads.hint(readings({A: FIRST, B: FIRST})) == (False, False), "an event that was overtaken"
        assert epochs(heads) == {A: 5, B: 3}

    @pytest.mark.parametrize(
        "shown",
        [
            pytest.param({A: reborn(FIRST, Lineage(2, "f" * 32))}, id="a new lineage"),
            pytest.param({A: up(up(FIRST, 2), 1)}, id="a fork"),
            pytest.param({Name("models", "c"): FIRST}, id="a ledger that was not read yet"),
        ],
    )
    def test_what_a_hint_may_not_change_asks_for_a_round_once(self, heads: LedgerHeads, shown: dict[Name, Ledger]) -> None:
        hint = readings(shown)
        assert heads.hint(hint) == (False, True)
        assert epochs(heads) == {A: 3, B: 3}
        assert heads.hint(hint) == (False, False)

    def test_a_hint_mends_nothing_that_a_round_found_at_fault(self, heads: LedgerHeads) -> None:
        read(heads, {A: up(up(FIRST, 1), 2), B: FIRST})
        assert heads.hint(readings({A: up(FIRST, 5)})) == (False, True)
        assert epochs(heads) == {B: 3}

    def test_a_read_that_a_hint_overtook_lowers_nothing_and_is_no_fork(self, heads: LedgerHeads) -> None:
        began = heads.known
        newer = up(up(FIRST, 5), 6)
        heads.hint(readings({A: newer}))
        for answer in (FIRST, up(FIRST, 5)):
            heads.read(LedgerRead(began, readings({A: answer, B: FIRST})))
            assert (epochs(heads), heads.faults) == ({A: 6, B: 3}, {})
        heads.read(LedgerRead(began, readings({A: up(FIRST, 7), B: FIRST})))
        assert epochs(heads) == {B: 3}, "control: an answer that the hint does not follow from is a fork"
        heads.read(LedgerRead(heads.known, readings({A: up(FIRST, 5), B: FIRST})))
        assert epochs(heads) == {B: 3}, "control: and so is an older answer to a read that began later"

    def test_a_read_is_taken_over_that_follows_from_a_hint_which_came_meanwhile(self, heads: LedgerHeads) -> None:
        began, hinted = heads.known, up(FIRST, 5)
        heads.hint(readings({A: hinted}))
        heads.read(LedgerRead(began, readings({A: up(hinted, 6), B: FIRST})))
        assert (epochs(heads), heads.faults) == ({A: 6, B: 3}, {})

    def test_a_hint_that_follows_from_what_is_read_later_is_no_excuse_for_a_fork(self, heads: LedgerHeads) -> None:
        began, hinted = heads.known, up(FIRST, 5)
        heads.hint(readings({A: hinted}))
        heads.read(LedgerRead(began, readings({A: up(up(FIRST, 9), 10), B: FIRST})))
        assert epochs(heads) == {B: 3}
        assert "does not follow" in heads.faults[A]


class TestShards:
    SHARD_AT_6 = shard_of(TARGET, Floor(Epoch(6)))
    SHARD_AT_7 = up(SHARD_AT_6, 7)

    def announced(self, shard: Ledger) -> Ledger:
        return advanced(AUTHORIZATION, shards={SHARD.name: shard.mark})

    def test_floors_are_those_of_shard_and_head_whichever_is_higher(self, heads: LedgerHeads) -> None:
        head = up(self.announced(self.SHARD_AT_7), 5, denied=Epoch(5))
        read(heads, {A: FIRST, HEAD: head}, {SHARD: self.SHARD_AT_7})
        state = heads.standings.pool(A)
        assert state is not None
        floor = state.authorization.floor(TARGET)
        assert (floor.epoch, floor.denied) == (7, 5)
        assert state.authorization.vector(TARGET, TargetName("b" * 64)).entries == ((TARGET, 7), ("b" * 64, 1))

    @pytest.mark.parametrize(
        ("shard", "clear"),
        [
            pytest.param(None, False, id="none"),
            pytest.param(SHARD_AT_7, True, id="the one that is announced"),
            pytest.param(up(SHARD_AT_7, 8), True, id="a later one"),
            pytest.param(SHARD_AT_6, False, id="an earlier one"),
            pytest.param(up(SHARD_AT_6, 9), False, id="another one of that sequence"),
            pytest.param(up(up(SHARD_AT_6, 8), 9), False, id="a later one that does not follow"),
            pytest.param(reborn(SHARD_AT_7, Lineage(2, "f" * 32)), False, id="one of another lineage"),
        ],
    )
    def test_a_namespace_needs_the_shards_that_its_head_announces(
        self, heads: LedgerHeads, shard: Ledger | None, clear: bool
    ) -> None:
        head = {A: FIRST, HEAD: self.announced(self.SHARD_AT_7)}
        read(heads, head, {SHARD: shard} if shard else {})
        assert (heads.standings.pool(A) is not None) is clear
        assert ("models" in heads.standings.unclear) is not clear
        assert heads.missing(readings(head)) == ([] if clear else [SHARD])

    def test_a_shard_of_another_lineage_waits_for_the_head_that_names_it(self, heads: LedgerHeads) -> None:
        denying = up(self.SHARD_AT_6, 7, denied=Epoch(7))
        read(heads, {A: FIRST, HEAD: self.announced(denying)}, {SHARD: denying})
        lost = reborn(self.SHARD_AT_6, Lineage(2, "f" * 32))
        head = advanced(self.announced(denying), shards={SHARD.name: replace(denying.mark, sequence=denying.sequence + 1)})
        read(heads, {A: FIRST, HEAD: head}, {SHARD: lost})
        assert heads.standings.remembered["models"].floor(TARGET).denies, "the shard that is written first may know less"
        assert "models" in heads.standings.unclear
        later = reborn(head, Lineage(2, "f" * 32), shards={SHARD.name: lost.mark}, restored=1)
        read(heads, {A: FIRST, HEAD: lineages.told(later, [head.mark])}, {SHARD: lost})
        assert not heads.standings.remembered["models"].floor(TARGET).denies, "control: the head names it, and refuses all"

    def test_a_later_shard_under_the_same_lineage_of_the_head_lacks_nothing_that_was_used(self, heads: LedgerHeads) -> None:
        """It was used before a head announced it, and a restore of before that took it back: no head tells."""
        used, again = up(self.SHARD_AT_6, 11), up(self.SHARD_AT_6, 7)
        head = self.announced(self.SHARD_AT_6)
        read(heads, {A: FIRST, HEAD: head}, {SHARD: used})
        assert self.vector(heads) == 11, "control: what a shard says counts before its head"
        began = reborn(again, Lineage(2, "f" * 32))
        for shard in (again, began):
            head = advanced(head, shards={SHARD.name: shard.mark})
            read(heads, {A: FIRST, HEAD: head}, {SHARD: shard})
            assert self.vector(heads) is None, "with the same salts as before 7, 8, 9 and 10 would lead to 11 again"
            assert heads.forks() == {f"authorization/models/{SHARD.name}": used.mark}
        merged = lineages.told(reborn(head, Lineage(2, "f" * 32)), [used.mark])
        read(heads, {A: FIRST, HEAD: merged}, {SHARD: began})
        assert (self.vector(heads), heads.forks()) == (7, {}), "with another lineage of the head come other salts"

    @pytest.mark.parametrize("kept", [10, 11])
    def test_a_later_shard_that_holds_all_is_taken_under_the_same_head(self, heads: LedgerHeads, kept: int) -> None:
        used = up(self.SHARD_AT_6, 11)
        read(heads, {A: FIRST, HEAD: self.announced(used)}, {SHARD: used})
        later = up(reborn(self.SHARD_AT_6, Lineage(2, "f" * 32)), kept)
        head = advanced(self.announced(used), shards={SHARD.name: later.mark})
        read(heads, {A: FIRST, HEAD: head}, {SHARD: later})
        assert (self.vector(heads), bool(heads.forks())) == ((11, False) if kept == 11 else (None, True))

    def vector(self, heads: LedgerHeads) -> int | None:
        """The epoch that is issued, if anything is."""
        state = heads.standings.pool(A)
        return dict(state.authorization.vector(TARGET).entries)[TARGET] if state else None

    def test_a_shard_that_the_watch_brought_counts(self, heads: LedgerHeads) -> None:
        heads.hint(readings({SHARD: self.SHARD_AT_7}))
        read(heads, {A: FIRST, HEAD: self.announced(self.SHARD_AT_7)})
        assert heads.standings.pool(A) is not None
        later = up(self.SHARD_AT_7, 8)
        assert heads.hint(readings({HEAD: advanced(self.announced(self.SHARD_AT_7), shards={SHARD.name: later.mark})})) == (
            True,
            True,
        )
        assert heads.standings.pool(A) is None
        assert heads.hint(readings({SHARD: later})) == (True, False)
        assert heads.standings.pool(A) is not None


def test_an_authorization_head_that_vanished_still_denies_and_routes_nothing(heads: LedgerHeads) -> None:
    read(heads, {A: FIRST, HEAD: up(AUTHORIZATION, 2, denied=Epoch(2))})
    assert heads.standings.pool(A) is not None
    read(heads, {A: FIRST})
    assert heads.standings.pool(A) is None
    assert heads.standings.remembered["models"].floor(TARGET).denies


def test_the_witness_of_a_head_is_the_last_one_that_followed(heads: LedgerHeads) -> None:
    first, second = ({"sequence": number} for number in (1, 2))
    forked = {"sequence": "forked"}
    for ledger, witness in ((AUTHORIZATION, first), (up(AUTHORIZATION, 2), second), (AUTHORIZATION, forked)):
        heads.read(LedgerRead(heads.known, {HEAD: Reading(KnownLedger(ledger, witness))}))
    assert HEAD in heads.faults
    assert heads.witnesses() == {"authorization/models": second}


def test_a_lineage_without_what_this_gateway_knows_is_not_in_use_before_that_is_merged(heads: LedgerHeads) -> None:
    known = up(AUTHORIZATION, 2, denied=Epoch(2))
    read(heads, {A: FIRST, HEAD: known})
    began = reborn(AUTHORIZATION, Lineage(2, "f" * 32))
    read(heads, {A: FIRST, HEAD: began})
    assert (heads.standings.pool(A), "without all" in heads.faults[HEAD]) == (None, True)
    assert heads.standings.remembered["models"].head is known, "its lease goes on showing that"
    told_so = lineages.told(began, [known.mark])
    read(heads, {A: FIRST, HEAD: told_so})
    found = heads.standings.pool(A)
    assert found is not None
    assert (found.authorization.head, heads.faults) == (told_so, {})
