"""A restore to between the two writes of an operator, a shard and its head, as one history: gateways used what no head told of.

It was found in the histories of `test_ledger_histories`, and is so rare there that its few steps are held here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest

from cachescope.core import authorization_rules, lineages, restores
from cachescope.core.declarations import Declaration, Restoration
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, LedgerFork, Lineage, followed, reborn, shard_name
from cachescope.core.types import Epoch
from tests.unit import ledger_world
from tests.unit.ledger_world import PEOPLE, Objects, Operator, Reader, World, authorization_of

PERSON = PEOPLE[0]
SHARD = shard_name(PERSON)
FELL = "epoch.* fell for a reader"


@dataclass
class History:
    """One gateway that used epoch 11 of a shard, when a restore took that back."""

    world: World = field(default_factory=lambda: World(readers=[Reader()]))
    operator: Operator = field(default_factory=Operator)

    def __post_init__(self) -> None:
        self.declare(2)
        self.people()
        self.follow()
        backup: Objects = dict(self.world.objects)
        self.declare(11)
        self.people(writes=1)  # the shard; the operator ends before the head
        self.follow()
        assert self.used == 11, "control: what a shard says counts before its head"
        self.world.restore(backup)
        self.follow()
        self.declare(3)
        self.people()

    @property
    def reader(self) -> Reader:
        return self.world.readers[0]

    @property
    def used(self) -> int | None:
        """The epoch that the gateway issues, if it issues anything."""
        state = authorization_of(self.reader.held)
        return None if state.behind or state.head.unconfirmed else state.floor(PERSON).epoch

    def declare(self, epoch: int) -> None:
        self.world.declared = {"f": Declaration("f", PERSON, floor=Epoch(epoch))}

    def people(self, *, writes: int = 99) -> None:
        self.operator.look(self.world)
        self.operator.people(self.world, writes=writes)

    def follow(self) -> None:
        self.reader.follow(self.world)

    def put(self, name: str, after: Ledger) -> None:
        assert self.world.put(name, self.world.objects[name], after)

    def announce_a_later_shard(self) -> None:
        """What an operator does that saw no lease: it announces a merge of which only the shard was written."""
        shard = self.world.objects[SHARD]
        self.put(SHARD, reborn(shard, self.world.fresh().after(shard.lineage)))
        state = authorization_of(self.world.objects)
        self.put(AUTHORIZATION_HEAD, authorization_rules.announced(state.head, state.shards, state.head.policy))


def test_nothing_is_issued_by_a_shard_that_was_taken_back() -> None:
    history = History()
    history.follow()
    assert (history.used, history.reader.stuck) == (None, {SHARD})


def test_under_the_same_head_a_later_shard_that_lacks_it_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    history.announce_a_later_shard()
    history.follow()
    assert (history.used, history.reader.stuck) == (None, {SHARD})
    monkeypatch.setattr(ledger_world, "shard_taken", taken_whole)
    with pytest.raises(AssertionError, match=FELL):  # control: the rule removed
        history.follow()


def taken_whole(known: Ledger | None, newer: Ledger, *, used: bool) -> Ledger:
    """Every shard of a later lineage."""
    assert used
    return followed(known, newer)


@pytest.mark.parametrize("before", [History.follow, History.announce_a_later_shard, partial(History.people, writes=1)])
def test_the_operator_hears_of_it_and_goes_on_in_a_new_lineage_that_refuses_all(before: partial[None]) -> None:
    """Also after another restore's merge of which only shards were written."""
    history = History()
    history.follow()
    before(history)
    lineage = history.world.objects[AUTHORIZATION_HEAD].lineage
    for _ in range(3):
        history.follow()
        history.people()
    history.follow()
    head = history.reader.held[AUTHORIZATION_HEAD]
    assert (head.lineage > lineage, head.unconfirmed, history.reader.stuck) == (True, True, set())
    standing = history.world.objects[AUTHORIZATION_HEAD]
    history.people()
    assert history.world.objects[AUTHORIZATION_HEAD] is standing, "it is dealt with once"
    restoration = Restoration("r", "r", confirmed=True, lineage=standing.lineage.generation)
    history.world.restorations = {"r": restoration}
    history.people()
    history.follow()
    assert history.used == 3, "once somebody confirmed, with other salts"


def test_without_that_the_gateway_is_cut_off_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test before."""
    monkeypatch.setattr(restores, "taken_back", lambda *_: [])
    history = History()
    for _ in range(8):
        history.follow()
        history.people()
    assert (history.used, history.reader.stuck) == (None, {SHARD})


def test_a_shard_that_goes_on_or_was_dealt_with_proves_no_restore() -> None:
    history = History()
    history.follow()
    state, held = authorization_of(history.world.objects), history.world.shards_held()
    (mark,) = held[SHARD]
    assert restores.taken_back(state, held, []) == [mark]
    own = {SHARD: [state.shards[SHARD].mark]}
    assert restores.taken_back(state, own, []) == []
    named = lineages.told(state.head, [mark])
    assert restores.taken_back(authorization_rules.Authorization(named, state.shards), held, []) == []


def test_a_later_lineage_of_a_shard_is_taken_by_whom_it_holds_all_of() -> None:
    known = authorization_of(History().world.objects).shards[SHARD]
    later = reborn(known, Lineage(known.lineage.generation + 1, "f" * 32))
    fewer = reborn(known, Lineage(known.lineage.generation + 1, "f" * 32), floors={}, changed={}, ancestors=())
    assert lineages.shard_taken(known, later, used=True) is later
    assert lineages.shard_taken(known, fewer, used=False) is fewer
    with pytest.raises(LedgerFork, match="without all"):
        lineages.shard_taken(known, fewer, used=True)
