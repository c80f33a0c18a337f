"""Restores: how a ledger that was put back is found out, and how it goes on.

Guards and gateways are the witnesses: what they read last is in their leases.

Rules:

- a ledger was restored when any field of a witness of its lineage is above its own, whatever the sequences; when a witness has a
  state that its history does not hold and that is not merely older; or when a witness is of a later lineage; or when one of an
  earlier lineage was not merged (`lineages`) and has anything above;
- then the maximum of all that is known stands, field by field, in a new lineage above all that were seen;
- numbers of two histories say nothing of which came first: what is off, denied or unconfirmed for anybody stays so. A denial and a
  flag are given a number above all others where one of another history might take them back; people do that, by a new incident.
  Only a state that the history of another known one lists is merely older, and has no say in this;
- a shard that a gateway holds, and that does not go on in what stands, proves a restore too, also where no head tells of it: the
  head may have been written after the backup, or never. What the shard held is lost, so that everything is refused until somebody
  confirms, unless a witness that makes up for the head names that very state. The new lineage names the state as dealt with, also
  where a gateway tells of it only later;
- a witness makes up for an authorization head only if it lists every change since the state that was restored. Otherwise
  revocations may be lost, and everything is refused until somebody confirms;
- somebody who says that the cluster was restored gets the same, once for each incident: with no witness left nothing tells;
- what is confirmed is what stood in the lineage that the confirmation names, once all who live were heard of in it.

Who the witnesses are, and whether their seals are good, is left to the controller; a witness that cannot be verified is a doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from cachescope.core.authorization_rules import Authorization
from cachescope.core.declarations import NAMESPACE, Restoration, incident_key
from cachescope.core.epochs import MAX_EPOCH
from cachescope.core.errors import SpecError
from cachescope.core.ledgers import (
    BIRTH_REACH,
    Flags,
    Floor,
    Ledger,
    Lineage,
    Mark,
    Role,
    advanced,
    fell,
    lower,
    reborn,
    shard_name,
    short,
)
from cachescope.core.lineages import includes, is_named, united
from cachescope.core.types import Epoch, TargetName


def is_restore(ledger: Ledger, witness: Ledger) -> bool:
    """Whether a witness proves that a ledger was put back to an earlier state, or another one was put in its place."""
    if witness.lineage != ledger.lineage:
        later = witness.lineage.generation >= ledger.lineage.generation
        return later or (ledger.role is Role.POOL and not includes(ledger, witness))
    return fell(witness, ledger) or not (ledger.knows(witness.mark) or ledger.forgot(witness.mark))


def is_restored(state: Authorization, witness: Ledger) -> bool:
    """The same of the authorization ledgers of a namespace; what a head lists is also compared with shards, whatever its number."""
    compared = witness.lineage == state.head.lineage or _is_apart(state.head, witness)
    return is_restore(state.head, witness) or (compared and _exceeds(witness, state))


def apart(head: Ledger, witnesses: Iterable[Ledger]) -> list[Mark]:
    """Witnesses of earlier lineages of which the head does not say yet that it holds all of them."""
    return [witness.mark for witness in witnesses if _is_apart(head, witness)]


def taken_back(state: Authorization, held: Mapping[str, Iterable[Mark]], witnesses: Iterable[Ledger]) -> list[Mark]:
    """States of shards that do not go on in what stands, were not dealt with yet, and are lost.

    Args:
        state: The head and the shards that are there.
        held: By the name of a shard, the states of which gateways say that what they read since does not follow from them.
        witnesses: Heads that others know.
    """
    shards, sure = state.shards, [item for item in witnesses if covers(state.head, item)]
    return [
        mark
        for name, marks in sorted(held.items())
        for mark in marks
        if not is_named(state.head, mark)
        and not (name in shards and shards[name].knows(mark))
        and not any(item.shards.get(name) == mark for item in sure)
    ]


def _is_apart(head: Ledger, witness: Ledger) -> bool:
    return witness.lineage.generation < head.lineage.generation and not includes(head, witness)


def _exceeds(witness: Ledger, state: Authorization) -> bool:
    if witness.base > state.head.base or witness.restored > state.head.restored:
        return True
    return any(lower(floor, state.floor(target)) for target, floor in witness.floors.items())


def covers(head: Ledger, witness: Ledger) -> bool:
    """Whether a witness lists every change of authorization since a head was stored.

    The head may have gone on after it was put back, so that its own sequence says nothing. It shares a past with the witness as far
    as both list the same change of a target; a witness that reaches back to before such a change lists all that followed it.
    """
    if witness.lineage != head.lineage:
        # Of an earlier one nobody knows where it was left: only all of it is enough, or that people were asked since.
        earlier = witness.lineage.generation < head.lineage.generation
        return earlier and (witness.reach <= BIRTH_REACH or witness.restored < head.restored)
    shared = (at for target, at in head.changed.items() if _same_change(target, head, witness))
    return witness.reach < max(shared, default=BIRTH_REACH + 1)


def _same_change(target: TargetName, one: Ledger, other: Ledger) -> bool:
    return one.changed[target] == other.changed.get(target) and one.floors.get(target) == other.floors.get(target)


def merged(ledger: Ledger, witnesses: Iterable[Ledger], *, fresh: Lineage) -> Ledger:
    """The ledger of a pool after a restore: all that is known of it, in a new lineage. To be written as it is.

    Args:
        ledger: What is there; of a ledger that vanished, what somebody knows of it.
        witnesses: What others know, the operator's own memory too.
        fresh: A lineage that nobody used, with the seconds since 1970 for a generation; it is raised above all that were seen.
    """
    known = [ledger, *witnesses]
    incidents = _incidents(known)
    return reborn(
        ledger,
        _later(fresh, (item.lineage for item in known)),
        base=_base(known),
        floors=_floors(known, {target for item in known for target in item.floors}),
        flags=_flags(known, incidents),
        incidents=incidents,
        ancestors=united(*known),
        longest=ledger.longest.joined(*(item.longest for item in known)),
    )


def merged_authorization(
    state: Authorization,
    witnesses: Sequence[Ledger],
    *,
    fresh: Lineage,
    known: Authorization | None = None,
    doubt: bool = False,
) -> Authorization:
    """The authorization ledgers of a namespace after a restore, every one in a new lineage. To be written as they are.

    Args:
        state: The head and the shards that are there.
        witnesses: Heads that others know.
        fresh: As for `merged`.
        known: What the operator itself holds in memory: it makes up for all that it has seen.
        doubt: Whether a witness could not be verified: everything is refused until somebody confirms.
    """
    heads = [state.head, *witnesses, *([known.head] if known else [])]
    parts = [state.shards, *([known.shards] if known else [])]
    everything = [*heads, *(shard for shards in parts for shard in shards.values())]
    floors = _without_readmissions(everything, [state, *map(Authorization, witnesses), *([known] if known else [])])
    names = {*map(shard_name, floors), *(name for shards in parts for name in shards)}
    base = _base(everything)
    shards = {name: _merged_shard(name, floors, base=base, fresh=_later(fresh, _seen(name, heads, parts))) for name in names}
    shards = {name: replace(shard, incidents=_incidents(_named(name, parts))) for name, shard in shards.items()}
    confirmed = max(head.confirmed for head in heads)
    sure = not doubt and _sure(state, witnesses, known) and not any(head.unconfirmed for head in _latest(heads))
    head = reborn(
        state.head,
        _later(fresh, (head.lineage for head in heads)),
        base=_base(heads),
        shards={name: shard.mark for name, shard in sorted(shards.items())},
        restored=max(confirmed if sure else confirmed + 1, *(head.restored for head in heads)),
        confirmed=confirmed,
        incidents=_incidents(heads),
        ancestors=united(*heads, shards=_shards_named(heads) if sure else ()),
        longest=state.head.longest.joined(*(head.longest for head in heads)),
    )
    return Authorization(head, shards)


def _shards_named(heads: Iterable[Ledger]) -> list[Mark]:
    """States of shards of which nothing is lost where the heads make up for it: they list as changed what is not there."""
    return [mark for head in heads for mark in head.shards.values()]


def _without_readmissions(everything: Sequence[Ledger], histories: Iterable[Authorization]) -> dict[TargetName, Floor]:
    """The maximum; a denial of one history stands, at a new epoch where a readmission of another one has no lower number."""
    latest = {item.mark for item in _latest(everything)}
    apart = [item for item in histories if any(ledger.mark in latest for ledger in (item.head, *item.shards.values()))]
    floors = _floors(everything, {target for ledger in everything for target in ledger.floors})
    for target, floor in floors.items():
        if not floor.denies and any(item.floor(target).denies for item in apart):
            epoch = Epoch(min(MAX_EPOCH, floor.epoch + 1))
            floors[target] = replace(floor, epoch=epoch, abort_below=epoch, denied=epoch)
    return floors


def said(ledger: Ledger, asked: Iterable[Restoration], *, fresh: Lineage, heard: bool = True) -> Ledger:
    """The ledger once people said that the cluster was restored: in a new lineage, once for each incident. To be written as it is.

    A head counts the restores, and which were confirmed. A confirmation names the lineage in which everything is refused, so that
    one that was left over confirms no later restore: there it says that the cluster was restored, and no more.

    Args:
        ledger: A ledger of any role.
        asked: All restores that are declared for its namespace.
        fresh: As for `merged`.
        heard: Whether all who live were heard of in this lineage: before that what they know may come, so nothing is confirmed.
    """
    declared = {incident_key(NAMESPACE, item.incident): item for item in sorted(asked, key=lambda item: not item.confirmed)}
    head = ledger.role is Role.AUTHORIZATION
    confirming = {key for key, item in declared.items() if head and item.confirmed and item.lineage == ledger.lineage.generation}
    new = sorted(declared.keys() - ledger.incidents.keys() - confirming)
    if new:
        numbers = {key: Epoch(ledger.restored + 1 + place) for place, key in enumerate(new)}
        counts = {"restored": ledger.restored + len(new)} if head else {}
        return reborn(ledger, fresh.after(ledger.lineage), incidents={**ledger.incidents, **numbers}, **counts)
    return _confirmed(ledger, declared, confirming) if confirming and heard else ledger


def _confirmed(head: Ledger, declared: Mapping[str, Restoration], confirming: Iterable[str]) -> Ledger:
    """The head, with all restores confirmed that come before those of which somebody still says that they are not."""
    numbers = {**{key: Epoch(head.restored) for key in confirming}, **head.incidents}
    still_open = min((numbers[key] for key, item in declared.items() if not item.confirmed), default=MAX_EPOCH)
    confirmed = max(head.confirmed, min(head.restored, still_open - 1))
    if (confirmed, numbers) == (head.confirmed, head.incidents):
        return head
    return advanced(head, confirmed=confirmed, incidents=numbers)


def _sure(state: Authorization, witnesses: Iterable[Ledger], known: Authorization | None) -> bool:
    """Whether no revocation can be lost."""
    proofs = [witness for witness in witnesses if is_restored(state, witness)]
    if not all(covers(state.head, witness) or _remembers(known, witness) for witness in proofs):
        return False
    return not state.lost or (known is not None and not known.lost and _remembers(known, state.head))


def _remembers(known: Authorization | None, head: Ledger) -> bool:
    """Whether what the operator holds in memory is at or after a state."""
    return known is not None and (known.head.knows(head.mark) or known.head.forgot(head.mark) or covers(known.head, head))


def _merged_shard(name: str, floors: Mapping[TargetName, Floor], *, base: Epoch, fresh: Lineage) -> Ledger:
    own = {target: floor for target, floor in floors.items() if shard_name(target) == name}
    return Ledger(Role.SHARD, fresh, 1, base=base, floors=own, changed=dict.fromkeys(own, 1))


def _seen(name: str, heads: Iterable[Ledger], parts: Iterable[Mapping[str, Ledger]]) -> list[Lineage]:
    """All lineages of a shard that anybody saw."""
    return [
        *(head.shards[name].lineage for head in heads if name in head.shards),
        *(shard.lineage for shard in _named(name, parts)),
    ]


def _named(name: str, parts: Iterable[Mapping[str, Ledger]]) -> list[Ledger]:
    return [shards[name] for shards in parts if name in shards]


def _later(fresh: Lineage, seen: Iterable[Lineage]) -> Lineage:
    later = fresh.after(*seen)
    if later.generation > MAX_EPOCH:
        raise SpecError(f"a lineage of generation {later.generation - 1} was seen, and none comes after it; see who wrote it")
    return later


def _base(known: Iterable[Ledger]) -> Epoch:
    return max(item.base for item in known)


def _floors(known: Sequence[Ledger], targets: Iterable[TargetName]) -> dict[TargetName, Floor]:
    return {
        target: reduce(Floor.joined, (item.floor(target) for item in known if target in item.floors)) for target in sorted(targets)
    }


def _flags(known: Sequence[Ledger], incidents: Mapping[str, Epoch]) -> Flags:
    """The maximum; what is on for anybody stays on, and above all incidents unless one ledger knew them all."""
    joined = reduce(Flags.joined, (item.flags for item in known))
    on = [item.flags for item in _latest(known) if item.flags.stops_public or item.flags.bypasses]
    if not on:
        return joined
    joined = replace(joined, resumed=min(flags.resumed for flags in on))
    numbers = (joined.public_stopped, joined.bypassed)
    if any((item.flags.public_stopped, item.flags.bypassed) == numbers and item.incidents == incidents for item in known):
        return joined
    above = Epoch(min(MAX_EPOCH, max(*numbers, *incidents.values(), *(item.flags.resumed for item in known)) + 1))
    stops, bypasses = (any(flags) for flags in zip(*((flags.stops_public, flags.bypasses) for flags in on), strict=True))
    return replace(joined, **({"public_stopped": above} if stops else {}), **({"bypassed": above} if bypasses else {}))


def _latest(known: Sequence[Ledger]) -> list[Ledger]:
    """Without those that are merely older: another one lists them, as what it went on from or holds all of."""
    listed = {name for item in known for name in (*item.history[:-1], *(item.ancestors or ()))}
    return [item for item in known if short(item.digest) not in listed]


def _incidents(known: Iterable[Ledger]) -> dict[str, Epoch]:
    found: dict[str, Epoch] = {}
    for item in known:
        found |= {key: max(value, found.get(key, value)) for key, value in item.incidents.items()}
    return found
