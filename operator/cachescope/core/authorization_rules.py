"""Rules by which the authorization ledgers of one namespace change, the head and its shards: values in, values out.

Rules, beside those of `declarations`:

- shards are written first and the head last, so that the head never names a state that is not there;
- the head announces **every** difference of a shard that no head has announced, whoever wrote it; an incident is given its epoch
  only by that: a process that ends between the two writes leaves the rest to the next decision, which counts nothing twice;
- the head lists the targets that changed last, at most `MAX_LISTED`, and reaches back to where the list begins: whoever saw less
  cannot be judged by it;
- the first state of a namespace holds at once what is declared for it: whoever dies after writing it leaves nobody undenied;
- nothing that was announced is taken back: a shard that vanished or fell behind keeps its mark until `restores` deals with it;
- a shard that gets full is folded in two steps. First it and the head get a higher `base`, chosen so that enough entries are no
  higher; once that head is fenced, those entries are dropped. The other way round a guard would take the old epochs as current;
- an entry that is more than an epoch is never dropped, also when its denial was taken back: its incident may still be declared,
  and would deny again; and whoever missed the state without the entry would find that it fell;
- a shard that is full of incidents goes on in a new lineage, without those that nobody declares any more. It keeps those that may
  have been readmissions: one that Git brings back would be counted as the latest, and take back a later denial. All its entries are
  announced again, since nobody can tell from the shard alone what a head that may have been put back knew; no salt and no permit
  depends on the lineage of a shard;
- a decision changes few targets at a time, and the next one goes on (`shard_room`): who follows head after head finds every change
  in their lists, so that a bulk of declarations cuts nobody else. What waits for its turn is held until then: it does not stand.

Reading and writing the objects is left to the controller, restores to `restores`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cachescope.core import shard_room
from cachescope.core.declarations import (
    NAMESPACE,
    Declaration,
    Hold,
    Postponed,
    Raised,
    Restoration,
    by_target,
    incident_key,
    is_met,
    of_target,
    raised,
)
from cachescope.core.ledgers import (
    AUTHORIZATION_HEAD,
    BIRTH_REACH,
    FIRST_BASE,
    Floor,
    Ledger,
    Lineage,
    Mark,
    Role,
    advanced,
    reborn,
    shard_name,
)
from cachescope.core.shard_room import MAX_STEP, Change, Taken, late, no_room
from cachescope.core.types import Digest, Epoch, TargetName

MAX_LISTED = 256
FOLDED_ABOVE = 768
"""Entries that a shard may hold before it is folded: a quarter stays free for what comes until the fold is fenced."""
FOLDED_TO = 512
"""Entries that folding aims at, so that it is seldom needed."""

Declared = Mapping[TargetName, Sequence[Declaration]]


@dataclass(frozen=True)
class Authorization:
    """The authorization ledgers of one namespace.

    Attributes:
        head: What guards and gateways read.
        shards: All floors, by the name of the object that holds them.
    """

    head: Ledger
    shards: Mapping[str, Ledger] = field(default_factory=dict)

    def floor(self, target: TargetName) -> Floor:
        """What stands for a target: the maximum of all that says something about it."""
        floor = self.head.floor(target)
        shard = self.shards.get(shard_name(target))
        return floor if shard is None else floor.joined(shard.floor(target))

    @property
    def behind(self) -> tuple[str, ...]:
        """Shards that are not at or above the state that the head announced, in its lineage: with these nothing may be issued."""
        return tuple(name for name, mark in self.head.shards.items() if not _reaches(self.shards.get(name), mark))

    @property
    def lost(self) -> tuple[str, ...]:
        """Shards that vanished or were put back: nothing may be decided. One of a later lineage only waits for its head."""
        return tuple(name for name, mark in self.head.shards.items() if not _holds(self.shards.get(name), mark))


@dataclass(frozen=True)
class AuthorizationDecision:
    """What declarations make of a namespace's ledgers.

    Attributes:
        state: What must stand; its parts are the same objects where nothing changed. See `writes`.
        epochs: The epoch that stands for a declaration's target, by the declaration's name.
        held: Why a declaration changed nothing, by its name.
        given: The epoch that a declaration's incident was given, by its name; once all writes were made.
    """

    state: Authorization
    epochs: Mapping[str, Epoch]
    held: Mapping[str, Hold]
    given: Mapping[str, Epoch]


def first_head(lineage: Lineage) -> Ledger:
    """The head of a namespace that never had one. Its generation is to be the seconds since 1970."""
    return Ledger(Role.AUTHORIZATION, lineage, 1, base=FIRST_BASE, reach=BIRTH_REACH)


def first(
    lineage: Lineage,
    shards: Mapping[str, Ledger],
    declarations: Iterable[Declaration],
    *,
    restores: Iterable[Restoration] = (),
    policy: Mapping[str, Digest],
    fresh: Lineage,
    now: int,
) -> AuthorizationDecision:
    """The first ledgers of a namespace that never had a head, with all that is declared.

    Args:
        lineage: Of the head, as for `first_head`.
        shards: Those that are there: somebody ended before he wrote the head.
        declarations: As for `decide`, as the last three.
        restores: What is said of restores; those that somebody confirmed were of other ledgers.
        policy: Digests of what policy is made of.
        fresh: A lineage for shards that are made.
        now: Seconds since 1970.
    """
    nothing = replace(first_head(lineage), sequence=0, reach=0, history=())
    made = decide(Authorization(nothing, shards), declarations, policy=policy, fresh=fresh, now=now, step=None)
    # What is announced in it is of sequence 1, so that its list reaches back to before that.
    said = {incident_key(NAMESPACE, item.incident): Epoch(not item.confirmed) for item in restores}
    numbers = {**said, **made.state.head.incidents}
    head = replace(made.state.head, sequence=1, previous="", history=(), incidents=numbers, restored=max(said.values(), default=0))
    return replace(made, state=Authorization(head, made.state.shards))


def decide(
    state: Authorization,
    declarations: Iterable[Declaration],
    *,
    policy: Mapping[str, Digest],
    fresh: Lineage,
    now: int,
    step: int | None = MAX_STEP,
) -> AuthorizationDecision:
    """What declarations make of a namespace's ledgers; `compacted` first, and `restores` where shards are `lost`.

    Args:
        state: The head, and the shards as they were read after it.
        declarations: All that is declared for tenants and principals of the namespace, in any order.
        policy: Digests of what policy is made of, by kind.
        fresh: A lineage that nobody used, for shards that are made.
        now: Seconds since 1970: how late a moment may be.
        step: How many targets may change; the others wait for the next decision.
    """
    asked = by_target(declarations)
    drafts = {name: _drafted(state, name, _of_shard(asked, name), now) for name in {*map(shard_name, asked), *state.shards}}
    waiting = _waiting(state, asked, drafts, step)
    drafts = {
        name: {**draft, **{target: waiting[target] for target in draft if target in waiting}} for name, draft in drafts.items()
    }
    written = {name: _written(state, name, draft, fresh=fresh) for name, draft in drafts.items()}
    shards = {name: shard for name, shard in written.items() if shard is not None}
    after = Authorization(announced(state.head, shards, policy), shards)
    results = [item for draft in drafts.values() for item in draft.values()]
    return AuthorizationDecision(
        after,
        {item.name: after.floor(target).epoch for target, items in asked.items() for item in items},
        {name: hold for item in results for name, hold in item.held.items()},
        {name: epoch for item in results for name, epoch in item.given.items()},
    )


def awaits_head(head: Ledger, name: str, known: Ledger, newer: Ledger) -> bool:
    """Whether a gateway keeps the shard that it knows, since no head that it knows names the other lineage of the newer one.

    Shards are written before their head: after a restore one may have lost what only the new head makes up for, by refusing all.
    """
    mark = head.shards.get(name)
    return newer.lineage != known.lineage and mark is not None and mark.lineage != newer.lineage


def writes(before: Authorization, after: Authorization) -> tuple[tuple[str, Ledger], ...]:
    """What is to be written, by name and in this order; what did not change is left out."""
    shards = [(name, shard) for name, shard in sorted(after.shards.items()) if shard != before.shards.get(name)]
    return (*shards, *([(AUTHORIZATION_HEAD, after.head)] if after.head != before.head else []))


def compacted(state: Authorization, declarations: Iterable[Declaration], *, fresh: Lineage) -> Authorization:
    """The ledgers, where shards full of incidents go on in a new lineage. Write those as they are, before anything is decided."""
    wanted = {item.key for item in declarations if item.key}
    return replace(state, shards={name: _compacted(name, shard, wanted, fresh) for name, shard in state.shards.items()})


def folded(state: Authorization, *, fenced_base: Epoch) -> Authorization:
    """The second step of folding: entries that a fenced base made needless are dropped, and the head names the shards anew.

    Args:
        state: The head, and the shards as they were read after it.
        fenced_base: The base of a head whose fence is complete.
    """
    base = min(fenced_base, state.head.base)
    shards = {name: _folded(shard, base) for name, shard in state.shards.items()}
    return Authorization(announced(state.head, shards, state.head.policy), shards)


def announced(head: Ledger, shards: Mapping[str, Ledger], policy: Mapping[str, Digest]) -> Ledger:
    """The head that announces all that shards hold; the same one when it does already."""
    current = {name: shard for name, shard in shards.items() if name not in head.shards or _holds(shard, head.shards[name])}
    news = {
        target: floor for name, shard in current.items() for target, floor in _unannounced(shard, head.shards.get(name)).items()
    }
    marks = {**head.shards, **{name: shard.mark for name, shard in current.items()}}
    base = max(head.base, *(shard.base for shard in current.values()), head.base)
    if not news and (marks, policy, base) == (head.shards, head.policy, head.base):
        return head
    joined = {target: floor.joined(head.floors.get(target, floor)) for target, floor in news.items()}
    listed = {target: head.changed.get(target, head.sequence) for target in head.floors}
    changed = {**listed, **dict.fromkeys(news, head.sequence + 1)}
    reach = max(head.reach, _cut(changed))
    kept = {target: sequence for target, sequence in changed.items() if sequence > reach}
    floors = {target: floor for target, floor in {**head.floors, **joined}.items() if target in kept}
    return advanced(head, base=base, floors=floors, changed=kept, reach=reach, shards=marks, policy=dict(policy))


def _cut(changed: Mapping[TargetName, int]) -> int:
    """The sequence up to which changes must leave the list so that at most `MAX_LISTED` are left."""
    return sorted(changed.values(), reverse=True)[MAX_LISTED] if len(changed) > MAX_LISTED else 0


def _unannounced(shard: Ledger, mark: Mark | None) -> Mapping[TargetName, Floor]:
    """What changed since the state that a head announced; of another lineage, all of it."""
    since = mark.sequence if mark and mark.lineage == shard.lineage else 0
    return {target: floor for target, floor in shard.floors.items() if shard.changed.get(target, shard.sequence) > since}


def _holds(shard: Ledger | None, mark: Mark) -> bool:
    return shard is not None and (shard.lineage.generation > mark.lineage.generation or _reaches(shard, mark))


def _reaches(shard: Ledger | None, mark: Mark) -> bool:
    return shard is not None and (shard.knows(mark) or shard.forgot(mark))


def _of_shard(asked: Declared, name: str) -> Declared:
    return {target: items for target, items in asked.items() if shard_name(target) == name}


def _drafted(state: Authorization, name: str, asked: Declared, now: int) -> Mapping[TargetName, Raised]:
    """What declarations make of the targets of one shard, as long as it has room."""
    shard = state.shards.get(name)
    floors, incidents = (set(shard.floors), dict(shard.incidents)) if shard else (set[TargetName](), dict[str, Epoch]())
    taken = {space: Taken.by(items, floors, incidents) for space, items in _by_namespace(asked).items()}
    drafts: dict[TargetName, Raised] = {}
    for target, items in asked.items():
        standing, space = state.floor(target), items[0].namespace
        made = raised(standing, incidents, items, now=now)
        if made.counted or made.floor != standing:
            more = Taken(int(target not in floors), len(made.counted))
            hold = _LOST if name in state.lost else no_room(Taken(len(floors), len(incidents)), taken[space], more, space)
            made = made if hold is None else _unchanged(standing, incidents, items, hold)
        if made.floor != standing:
            taken[space] += Taken(int(target not in floors), len(made.counted))
            floors.add(target)
            incidents |= made.counted
        drafts[target] = made
    return drafts


def _by_namespace(asked: Declared) -> Mapping[str, Sequence[Declaration]]:
    found: dict[str, list[Declaration]] = {}
    for items in asked.values():
        found.setdefault(items[0].namespace, []).extend(items)
    return found


_LOST = Postponed("the ledger of this target was deleted or restored; the operator deals with that first: see its events")


_TURN = Postponed(
    f"more than {MAX_STEP} tenants and principals change at once; it has its turn with one of the next heads, in seconds"
)


def _waiting(
    state: Authorization, asked: Declared, drafts: Mapping[str, Mapping[TargetName, Raised]], step: int | None
) -> Mapping[TargetName, Raised]:
    """Targets whose change waits for the next decision, and what they are until then."""
    made = {target: item for draft in drafts.values() for target, item in draft.items()}
    changes = {
        target: Change(asked[target][0].namespace, item.floor.denies)
        for target, item in made.items()
        if item.floor != state.floor(target)
    }
    waiting = late(changes, step) if step is not None else []
    return {target: _until_its_turn(state, asked[target], made[target]) for target in waiting}


def _until_its_turn(state: Authorization, asked: Sequence[Declaration], made: Raised) -> Raised:
    """What stands. Of an incident that is not counted yet nobody takes that for all; of everything else it is said."""
    target = asked[0].target
    found = _unchanged(state.floor(target), _incidents(state, target), asked)
    counted = [item for item in asked if item.key is None or item.name in found.given]
    return replace(found, held={item.name: made.held.get(item.name, _TURN) for item in counted if not is_met(item, found.floor)})


def _incidents(state: Authorization, target: TargetName) -> Mapping[str, Epoch]:
    shard = state.shards.get(shard_name(target))
    return shard.incidents if shard else {}


def _unchanged(floor: Floor, incidents: Mapping[str, Epoch], asked: Sequence[Declaration], hold: Hold | None = None) -> Raised:
    given = {item.name: incidents[item.key] for item in asked if item.key and item.key in incidents}
    return Raised(floor, {}, {item.name: hold for item in asked} if hold else {}, given)


def _written(state: Authorization, name: str, draft: Mapping[TargetName, Raised], *, fresh: Lineage) -> Ledger | None:
    """The shard with a draft in it, and with a higher base when it gets full; the same one when nothing changed."""
    news = {target: made.floor for target, made in draft.items() if made.floor != state.floor(target)}
    counted = {key: epoch for made in draft.values() for key, epoch in made.counted.items()}
    shard = state.shards.get(name)
    if shard is None:
        shard = Ledger(Role.SHARD, fresh, 0, base=state.head.base) if news else None
    if shard is None:
        return None
    floors = {**shard.floors, **news}
    base = _base_with_room(shard.base, floors)
    if not news and base == shard.base:
        return shard
    changed = {**shard.changed, **dict.fromkeys(news, shard.sequence + 1)}
    incidents = {**shard.incidents, **counted}
    if shard.sequence == 0:
        return Ledger(Role.SHARD, fresh, 1, base=base, floors=floors, changed=changed, incidents=incidents)
    return advanced(shard, base=base, floors=floors, changed=changed, incidents=incidents)


def _base_with_room(base: Epoch, floors: Mapping[TargetName, Floor]) -> Epoch:
    """A base that makes enough entries needless once a shard gets full. What it was raised to is enough the next time too."""
    epochs = sorted(floor.epoch for floor in floors.values() if _foldable(floor))
    needless = sum(epoch <= base for epoch in epochs)
    if len(floors) - needless <= FOLDED_ABOVE or needless == len(epochs):
        return base
    return epochs[min(len(floors) - FOLDED_TO, len(epochs)) - 1]


def _foldable(floor: Floor) -> bool:
    """Whether an entry is no more than an epoch, which is all that a base can stand in for."""
    return floor.denied == floor.readmitted == floor.issued_before == 0


def _folded(shard: Ledger, base: Epoch) -> Ledger:
    kept = {target: floor for target, floor in shard.floors.items() if floor.epoch > base or not _foldable(floor)}
    if len(kept) == len(shard.floors):
        return shard
    changed = {target: sequence for target, sequence in shard.changed.items() if target in kept}
    return advanced(shard, base=max(base, shard.base), floors=kept, changed=changed)


def _compacted(name: str, shard: Ledger, wanted: set[str], fresh: Lineage) -> Ledger:
    own = {key for key in wanted if shard_name(TargetName(key)) == name}
    if len(own | shard.incidents.keys()) <= shard_room.MAX_INCIDENTS:
        return shard
    own |= of_target(shard.incidents, NAMESPACE).keys() | _maybe_readmissions(shard)
    kept = {key: epoch for key, epoch in shard.incidents.items() if key in own}
    if len(kept) == len(shard.incidents):
        return shard
    return reborn(shard, fresh.after(shard.lineage), incidents=kept, changed=dict.fromkeys(shard.floors, 1))


def _maybe_readmissions(shard: Ledger) -> set[str]:
    """Incidents up to a readmission of their target, and the one that only a denial of its own overruled."""
    last = {target: floor.readmitted + 1 for target, floor in shard.floors.items() if floor.readmitted}
    return {key for target, epoch in last.items() for key, value in of_target(shard.incidents, target).items() if value <= epoch}
