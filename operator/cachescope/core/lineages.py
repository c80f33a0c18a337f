"""Lineages: who may go on from a state of one lineage to a ledger of a later one.

Rules:

- a process that knows something takes a later lineage only once that holds all that it knows: who began it may have known less.
  Until then the process has no right; its lease shows the operator what it knows, which is merged, or told to be in it already;
- a ledger lists the states of earlier lineages that it holds all of, its *ancestors*: what it went on from, and every copy in a
  lease that was dealt with. An authorization head says so in no other way, since its floors are in shards;
- a gateway uses what a shard says before a head announces it, and a restore may take that back where no head tells of it. So under
  one lineage of the head it takes no shard of a later lineage that lacks what it used: epochs that salts already had would come
  again. With a later lineage of the head come other salts, and the shards are taken whole;
- where nothing is told of ancestors at all an older operator or CRD is at work, and a later lineage is taken whole, as it was then;
- the ledger of a pool holds all of its floors, so that a reader can also compare them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cachescope.core import ledgers
from cachescope.core.ledgers import Ledger, LedgerFork, Mark, Role, advanced, followed, lower, short


def is_named(ledger: Ledger, earlier: Mark) -> bool:
    """Whether a ledger names a state of an earlier lineage as one that was dealt with."""
    return ledger.ancestors is None or short(earlier.digest) in ledger.ancestors


def includes(ledger: Ledger, earlier: Ledger) -> bool:
    """Whether a ledger is known to hold all of a state of an earlier lineage."""
    if is_named(ledger, earlier.mark):
        return True
    return ledger.role is not Role.AUTHORIZATION and not _exceeds(earlier, ledger)


def taken(known: Ledger | None, newer: Ledger) -> Ledger:
    """The ledger that a process holds after a later read, as `followed` says; a later lineage only if it holds what is known.

    Raises:
        LedgerFork: It does not follow, or the later lineage lacks something.
    """
    later = known is not None and newer.lineage.generation > known.lineage.generation
    if known is not None and later and not includes(newer, known):
        raise LedgerFork(
            f"lineage {newer.lineage.generation} began without all that this process knows of lineage {known.lineage.generation}; "
            "its lease shows the operator what: see the pool's events"
        )
    return followed(known, newer)


def shard_taken(known: Ledger | None, newer: Ledger, *, used: bool) -> Ledger:
    """The shard that a gateway holds after a later read.

    Args:
        known: What it holds.
        newer: What it read.
        used: Whether it issued under the lineage of the head that it holds now.

    Raises:
        LedgerFork: It does not follow, or lacks something that was used.
    """
    return taken(known, newer) if used else followed(known, newer)


def united(*found: Ledger, shards: Iterable[Mark] = ()) -> tuple[str, ...]:
    """The ancestors of a ledger that holds all of some states, and of some shards; of too many the first ones are left out."""
    names = (name for item in found for name in (*(item.ancestors or ()), *item.history))
    return tuple(dict.fromkeys((*(short(mark.digest) for mark in shards), *names)))[-ledgers.HISTORY :]


def naming(head: Ledger, earlier: Iterable[Mark]) -> Ledger:
    """A first head that is yet to be written, and also tells that some states of earlier lineages were dealt with."""
    names = sorted({short(mark.digest) for mark in earlier})
    known = head.ancestors or ()
    ancestors = (*(name for name in known if name not in names), *names)[-ledgers.HISTORY :]
    return head if set(ancestors) == set(known) else replace(head, ancestors=ancestors)


def told(head: Ledger, earlier: Iterable[Mark]) -> Ledger:
    """The head, or the next one, which tells that it holds all of some states of earlier lineages."""
    named = naming(head, earlier)
    return head if named is head else advanced(named)


def _exceeds(earlier: Ledger, ledger: Ledger) -> bool:
    """Whether something that stood in one stands lower in the other."""
    if earlier.base > ledger.base or ledger.flags.joined(earlier.flags) != ledger.flags:
        return True
    return any(lower(floor, ledger.floor(target)) for target, floor in earlier.floors.items())
