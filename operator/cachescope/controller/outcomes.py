"""What ledgers made of each CacheEpoch: told by whoever decides a ledger, read by whoever writes the CacheEpoch's status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cachescope.controller.store import Key
from cachescope.core.declarations import Hold
from cachescope.core.ledgers import Lineage
from cachescope.core.types import Epoch


@dataclass(frozen=True, slots=True)
class Version:
    """Which version of a CacheEpoch was decided: what is asked later, by it or by another of its name, is answered later.

    Attributes:
        uid: UID of the CacheEpoch.
        generation: Number of its spec.
        target: What it meant; an object that was made anew under the same name is another target.
    """

    uid: str
    generation: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one ledger made of one CacheEpoch.

    Attributes:
        version: What was decided.
        epoch: The epoch of its target that stands; `None` while the ledger cannot be used.
        given: The epoch that its incident was given, or `None`.
        hold: Why its floor does not stand, or `None`.
        lineage: Lineage of the ledger; `None` while it cannot be used.
        sequence: State of the ledger that holds all of it; 0 while none does.
        fault: Why the ledger cannot be used.
        unconfirmed: Whether everything is refused until a restore is confirmed.
    """

    version: Version
    epoch: Epoch | None = None
    given: Epoch | None = None
    hold: Hold | None = None
    lineage: Lineage | None = None
    sequence: int = 0
    fault: str = ""
    unconfirmed: bool = False

    def of(self, uid: str, generation: int) -> bool:
        """Whether it answers that version of the CacheEpoch."""
        return (self.version.uid, self.version.generation) == (uid, generation)


class Outcomes:
    """Outcomes by CacheEpoch and ledger.

    Args:
        changed: Told the key of each CacheEpoch whose outcomes changed.
    """

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._by_epoch: dict[Key, dict[str, Outcome]] = {}
        self._by_ledger: defaultdict[str, set[Key]] = defaultdict(set)

    def of(self, epoch: Key) -> Mapping[str, Outcome]:
        """Outcomes of a CacheEpoch, by the names of ledgers."""
        return self._by_epoch.get(epoch, {})

    def told(self, ledger: str, outcomes: Mapping[Key, Outcome]) -> None:
        """A ledger was decided; these CacheEpochs and no others concern it."""
        for key in self._by_ledger[ledger] - outcomes.keys():
            self._by_epoch.get(key, {}).pop(ledger, None)
            self._changed(key)
        self._by_ledger[ledger] = set(outcomes)
        for key, outcome in outcomes.items():
            known = self._by_epoch.setdefault(key, {})
            if known.get(ledger) != outcome:
                known[ledger] = outcome
                self._changed(key)

    def concerned(self, ledger: str) -> Iterable[Key]:
        """CacheEpochs that a ledger knows."""
        return tuple(self._by_ledger.get(ledger, ()))

    def forget(self, epoch: Key) -> None:
        """A CacheEpoch is gone."""
        for ledger in self._by_epoch.pop(epoch, {}):
            self._by_ledger[ledger].discard(epoch)
