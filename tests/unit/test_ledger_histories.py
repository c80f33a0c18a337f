"""The rules of ledgers over whole histories: crashes, stale operators, folding and restores in any order."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from cachescope.core import authorization_rules, ledgers, pool_rules, shard_room
from cachescope.core.declarations import Declaration, Restoration
from cachescope.core.digests import digest
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.types import Epoch
from tests.unit.ledger_world import NEVER_READMITTED, PEOPLE, POOL, POOL_LEDGER, SCOPE, Operator, Reader, World, authorization_of

EXAMPLES, STEPS, LEAST = 100, 100, 10_000
SETTLES = 8
INCIDENTS = ("i1", "i2", "i3", "i4")


class Histories(RuleBasedStateMachine):
    """Any history of two operators, three readers and the people who declare."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.operators = (Operator(), Operator())
        for operator in self.operators:
            operator.look(self.world)
        self.backup = dict(self.world.objects)
        self.steps, self.broken = 0, False
        often = (self.write_people, self.write_people, self.write_people, self.declare_somebody, self.follow, self.write_the_pool)
        seldom = (self.declare_a_cache, self.declare_a_floor, self.withdraw, self.change_what_is_read, self.look, self.fold)
        self.operations = (*often, *often, *seldom, self.take_a_backup, self.restore_or_confirm)

    @rule(number=st.integers(0, 2**32 - 1))
    def step(self, number: int) -> None:
        STEPPED.append(number)
        self.steps, self.broken = self.steps + 1, True
        # To draw every choice by the library takes ten times longer than all that is decided.
        dice = Random(number)  # noqa: S311 - a history, no secret
        dice.choice(self.operations)(dice)
        self.broken = False

    def teardown(self) -> None:
        """Go on to the full length, since the library ends some histories before, and let everything settle."""
        while self.steps < STEPS and not self.broken:
            self.step(len(STEPPED))
        if not self.broken:
            self._settle()

    def _settle(self) -> None:
        """Once nothing else happens, everybody holds what stands: whoever knew more was merged, or told that nothing is missing."""
        world, operator = self.world, Operator()
        for _ in range(SETTLES):
            for reader in world.readers:
                reader.follow(world)
            for turn in (operator.pool, lambda known: operator.people(known, writes=99)):
                operator.look(world)
                turn(world)
        for reader in world.readers:
            reader.follow(world)
            held = {name: reader.held[name].mark for name in (POOL_LEDGER, AUTHORIZATION_HEAD)}
            assert held == {name: world.objects[name].mark for name in held}, f"{reader.stuck} is not taken"
            assert not authorization_of(reader.held).behind, f"{reader.stuck} stays behind for ever"

    def declare_somebody(self, dice: Random) -> None:
        person, incident, does = dice.choice(PEOPLE), dice.choice(INCIDENTS), dice.randrange(5)
        readmit = does == 1 and person not in NEVER_READMITTED
        self._declare(
            Declaration(
                f"{person[0]}{person[-1]}{incident}",
                person,
                incident=incident,
                deny=does == 0,
                readmit=readmit,
                issued_before=1000 if does == 2 else 0,
            )
        )

    def declare_a_cache(self, dice: Random) -> None:
        target, incident, does = dice.choice((POOL, SCOPE)), dice.choice(INCIDENTS), dice.randrange(4)
        stop, bypass = (does == 0 and target == POOL), (does == 1 and target == POOL)
        drain = 30 if does == 2 else 0
        name = f"{target[0]}{incident}"
        self._declare(Declaration(name, target, incident=incident, stop_public=stop, bypass=bypass, drain_seconds=drain))

    def declare_a_floor(self, dice: Random) -> None:
        name, target = dice.choice(("f1", "f2")), dice.choice((*PEOPLE, POOL, SCOPE))
        self._declare(Declaration(name, target, floor=Epoch(1 + dice.randrange(12))))

    def _declare(self, declaration: Declaration) -> None:
        self.world.declared[declaration.name] = declaration

    def withdraw(self, dice: Random) -> None:
        if self.world.declared:
            del self.world.declared[dice.choice(sorted(self.world.declared))]

    def change_what_is_read(self, dice: Random) -> None:
        self.world.resume_after = dice.choice(INCIDENTS)
        self.world.policy = {"tenants": digest(dice.choice("xy"))}

    def look(self, dice: Random) -> None:
        dice.choice(self.operators).look(self.world)

    def write_the_pool(self, dice: Random) -> None:
        self._operator(dice).pool(self.world)

    def write_people(self, dice: Random) -> None:
        self._operator(dice).people(self.world, writes=dice.choice((99, 99, 99, 0, 1, 2)))

    def fold(self, dice: Random) -> None:
        self._operator(dice).fold(self.world)

    def _operator(self, dice: Random) -> Operator:
        operator = dice.choice(self.operators)
        if dice.randrange(3):
            operator.look(self.world)
        return operator

    def follow(self, dice: Random) -> None:
        readers = self.world.readers
        for reader in dice.choice((readers, readers, *([reader] for reader in readers))):
            reader.follow(self.world)

    def take_a_backup(self, dice: Random) -> None:
        if not dice.randrange(2):
            self.backup = dict(self.world.objects)

    def restore_or_confirm(self, dice: Random) -> None:
        if dice.randrange(3):
            lineage = self.world.objects[AUTHORIZATION_HEAD].lineage.generation
            self.world.restorations = {
                name: Restoration(name, item.incident, confirmed=True, lineage=lineage)
                for name, item in self.world.restorations.items()
            }
        elif not dice.randrange(2):
            self._restore(left=dice.choice((3, 2, 1, 0)))

    def _restore(self, *, left: int) -> None:
        """The newest witness is always among those that are left: of what only a lost one knew, nobody can know."""
        world = self.world
        newest = sorted(world.readers, key=_age, reverse=True)
        world.readers = [*newest[:left], *(Reader() for _ in newest[left:])]
        world.restore(self.backup)
        for operator in self.operators:
            operator.look(world)
        if not left:
            name = f"r{len(world.restorations)}"
            world.restorations[name] = Restoration(name, name)


def _age(reader: Reader) -> tuple[int, ...]:
    held = [reader.held.get(name) for name in (AUTHORIZATION_HEAD, POOL_LEDGER)]
    return tuple(number for item in held for number in ((item.lineage.generation, item.sequence) if item else (0, 0)))


STEPPED: list[int] = []


def test_no_history_breaks_a_rule() -> None:
    STEPPED.clear()
    quick = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    limits = {"MAX_LISTED": 3, "FOLDED_ABOVE": 3, "FOLDED_TO": 1}
    room = {"MAX_FLOORS": 5, "MAX_INCIDENTS": 12, "SHARE": 1}
    with ExitStack() as small:
        for name, value in limits.items():
            small.enter_context(patch.object(authorization_rules, name, value))
        for name, value in room.items():
            small.enter_context(patch.object(shard_room, name, value))
        small.enter_context(patch.object(pool_rules, "MAX_INCIDENTS", 7))
        small.enter_context(patch.object(ledgers, "HISTORY", 8))
        run_state_machine_as_test(Histories, settings=quick)
        while len(STEPPED) < LEAST:  # it also runs fewer histories than it may, where it draws one twice
            Histories().teardown()
