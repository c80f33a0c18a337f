"""Rules by which the ledger of one pool changes: values in, values out.

Rules, beside those of `declarations`:

- another pool, also one of the same name, is another target: its incidents and floors are its own;
- an incident of the pool that stops public sharing or bypasses reuse latches that flag at its epoch, also when that was
  added later: guards judge by flags too, so that it needs no further epoch;
- flags are cleared by `resume_after` alone, naming the pool's latest incident; an older one changes nothing, nor does one of two
  that have the same epoch, which a restore can make: neither came after the other;
- a flag that is declared and was resumed after is held, so that one that is declared and not held is on;
- an incident of the pool is given an epoch above every flag, so that resuming after it clears all of them;
- a ledger that has no room goes on in a new lineage without what nobody declares any more: what was cached before is unreachable.
  Of the pool's own incidents it keeps what people resumed after, or declare to, and the latest ones that fit: an old one that comes
  back would be counted as the latest, and resumed after.

Reading and writing the object is left to the controller, restores to `restores`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cachescope.core.declarations import (
    NAMESPACE,
    Declaration,
    Hold,
    Raised,
    Superseded,
    TakenBack,
    by_target,
    incident_key,
    of_target,
    raised,
)
from cachescope.core.epochs import FIRST_EPOCH
from cachescope.core.errors import SpecError
from cachescope.core.ledgers import FIRST_BASE, Flags, Ledger, Lineage, Role, advanced, reborn
from cachescope.core.types import Epoch, TargetName

MAX_INCIDENTS = 256
MAX_FLOORS = 1024
KEPT = 3 / 4
"""Share of a ledger's incidents up to which a new lineage keeps what is only useful: the rest is free for what comes."""
RESUMED = TakenBack(
    "people resumed after this incident or a later one, and it switches nothing off now; to do so again, name another incident id"
)


@dataclass(frozen=True)
class Decision:
    """What declarations make of a ledger.

    Attributes:
        ledger: The ledger that must stand; the same one when nothing changed.
        epochs: The epoch that stands for a declaration's target, by the declaration's name.
        held: Why a declaration changed nothing, by its name.
        given: The epoch that a declaration's incident was given, by its name.
    """

    ledger: Ledger
    epochs: Mapping[str, Epoch] = field(default_factory=dict)
    held: Mapping[str, Hold] = field(default_factory=dict)
    given: Mapping[str, Epoch] = field(default_factory=dict)


def first_ledger(lineage: Lineage) -> Ledger:
    """The ledger of a pool that never had one. Its generation is to be the seconds since 1970: above all that were before."""
    return Ledger(Role.POOL, lineage, 1, base=FIRST_BASE)


def resumable_incident(ledger: Ledger, pool: TargetName) -> Epoch | None:
    """The epoch of the pool's latest incident, declared or not; `None` where it has none that people can resume after."""
    epochs = list(of_target(ledger.incidents, pool).values())
    latest = max(epochs, default=FIRST_EPOCH)
    above = max(ledger.flags.public_stopped, ledger.flags.bypassed) <= latest
    return latest if above and epochs.count(latest) == 1 else None


def decide(ledger: Ledger, declarations: Iterable[Declaration], *, pool: TargetName, resume_after: str | None) -> Decision:
    """What declarations make of a pool's ledger; `compacted` first.

    Args:
        ledger: The ledger that stands.
        declarations: All that is declared for the pool and its scopes, in any order.
        pool: The pool's own target.
        resume_after: The id of an incident of the pool that people resumed after.
    """
    asked = by_target(declarations)
    own, above = asked.get(pool, ()), max(ledger.flags.public_stopped, ledger.flags.bypassed)
    made = {
        target: raised(ledger.floor(target), ledger.incidents, items, above=above if target == pool else FIRST_EPOCH)
        for target, items in asked.items()
    }
    incidents = {**ledger.incidents, **{key: value for item in made.values() for key, value in item.counted.items()}}
    flags = _flags(ledger.flags, own, _given(made))
    flags = _resumed(flags, of_target(incidents, pool), incident_key(pool, resume_after or ""))
    floors = {target: item.floor for target, item in made.items() if item.floor != ledger.floor(target)}
    if floors or flags != ledger.flags or len(incidents) > len(ledger.incidents):
        ledger = advanced(ledger, floors={**ledger.floors, **floors}, flags=flags, incidents=incidents)
    epochs = {item.name: ledger.epoch(target) for target, items in asked.items() for item in items}
    held = {name: hold for item in made.values() for name, hold in item.held.items()}
    return Decision(ledger, epochs, {**held, **_resumed_after(own, flags, held)}, _given(made))


def compacted(
    ledger: Ledger, declarations: Iterable[Declaration], *, pool: TargetName, resume_after: str | None, fresh: Lineage
) -> Ledger:
    """The ledger, or when it has no room one of a new lineage without what nobody declares any more. Write that one as it is.

    Args:
        ledger: The ledger that stands.
        declarations: All that is declared for the pool and its scopes.
        pool: The pool's own target; its floor stays, and of its incidents what the rules say.
        resume_after: The id of an incident of the pool that people resumed after.
        fresh: A lineage that nobody used. Its generation is raised above the ledger's where it is not.

    Raises:
        SpecError: More is declared than a ledger holds.
    """
    asked = list(declarations)
    keys, targets = {item.key for item in asked if item.key}, {pool, *(item.target for item in asked)}
    kept = keys | _needed(ledger, pool, resume_after)
    if len(keys) >= MAX_INCIDENTS or len(kept) > MAX_INCIDENTS or len(targets) > MAX_FLOORS:
        raise SpecError(
            f"{len(keys)} incidents of {len(targets)} targets are declared for one pool, and fewer than {MAX_INCIDENTS} incidents "
            f"and at most {MAX_FLOORS} targets fit; delete old CacheEpochs"
        )
    if len(keys | ledger.incidents.keys()) <= MAX_INCIDENTS and len(targets | ledger.floors.keys()) <= MAX_FLOORS:
        return ledger
    others = sorted(of_target(ledger.incidents, pool).items(), key=lambda item: item[1], reverse=True)
    useful = [key for key, _ in others if key not in kept]
    kept |= set(useful[: max(0, int(MAX_INCIDENTS * KEPT) - len(kept))])
    incidents = {key: value for key, value in ledger.incidents.items() if key in kept}
    floors = {target: floor for target, floor in ledger.floors.items() if target in targets}
    return reborn(ledger, fresh.after(ledger.lineage), floors=floors, incidents=incidents)


def _needed(ledger: Ledger, pool: TargetName, resume_after: str | None) -> set[str]:
    """Incidents that a ledger never forgets: of restores, the pool's latest, and those that people resumed after or declare to."""
    named, own = incident_key(pool, resume_after or ""), of_target(ledger.incidents, pool)
    epochs = (max(own.values(), default=FIRST_EPOCH), ledger.flags.resumed)
    return {*of_target(ledger.incidents, NAMESPACE), *(key for key, value in own.items() if key == named or value in epochs)}


def _flags(flags: Flags, asked: Sequence[Declaration], given: Mapping[str, Epoch]) -> Flags:
    """The flags of all incidents of the pool, whenever they were declared to set one."""
    stopped = [given[item.name] for item in asked if item.stop_public and item.name in given]
    bypassed = [given[item.name] for item in asked if item.bypass and item.name in given]
    return flags.joined(Flags(max(stopped, default=FIRST_EPOCH), max(bypassed, default=FIRST_EPOCH)))


def _resumed(flags: Flags, own: Mapping[str, Epoch], key: str) -> Flags:
    epoch = own.get(key)
    if epoch is None or any(other >= epoch for name, other in own.items() if name != key):
        return flags
    return replace(flags, resumed=max(flags.resumed, epoch))


def _resumed_after(asked: Sequence[Declaration], flags: Flags, held: Mapping[str, Hold]) -> dict[str, Hold]:
    """What is declared to be off and is not, where nothing holds it that may yet pass."""
    off = (item.name for item in asked if (item.stop_public and not flags.stops_public) or (item.bypass and not flags.bypasses))
    return {name: RESUMED for name in off if isinstance(held.get(name, RESUMED), Superseded)}


def _given(made: Mapping[TargetName, Raised]) -> dict[str, Epoch]:
    return {name: epoch for item in made.values() for name, epoch in item.given.items()}
