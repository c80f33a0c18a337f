"""Leases of guards and gateways, judged on the operator's own clock.

Rules:

- a lease is live while it moved (another version of the object) within its length and a margin, on this process's clock; no time
  that another machine wrote is ever compared;
- one that was there when this process began says nothing before it moves: whoever wrote it may be long dead;
- what a lease says counts only as far as its statement verifies, under the key of whose lease it is (`lease_speakers`);
- a tick alone is no news: who asks is told when something changed that he could see;
- whoever may act is in the roster, by which fences are completed: nobody is left out there because his statement does not verify.
  He acknowledges nothing then, and may act for as long as anybody in his place: what nobody can verify shortens no fence, and makes
  none longer than silence does.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from cachescope.api.ledgers import EpochLedger
from cachescope.controller.lease_speakers import LeaseSpeakers, Speaker
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Key, Store, version_of
from cachescope.core.errors import CacheScopeError
from cachescope.core.leases import GATEWAY, GUARD, MAX_CHARACTERS, MAX_LEASE_MS, MOST_GUARD_MS, LeaseStatement
from cachescope.core.ledger_seals import claimed_mark
from cachescope.core.ledgers import Mark, Role
from cachescope.core.rights import read_rights
from cachescope.core.rosters import Longest, Member, Roster
from cachescope.core.signed import key_id_of
from cachescope.kube.rest import Document
from cachescope.logs import fault_of

log = logging.getLogger(__name__)

MARGIN_SECONDS = 5.0
MAX_LEASE_SECONDS = 3600
MOST_COPIES = 1024
MOST_GENERATIONS = 2**52
"""What is counted at most of lineages that no seal proves: whoever makes a greater one up leaves as many for those that follow."""


class Life(Enum):
    """What is known of the process behind a lease."""

    LIVE = "Live"
    UNSEEN = "Unseen"
    """The lease was there when this process began, and has not moved since."""
    LAPSED = "Lapsed"


@dataclass(frozen=True)
class Process:
    """One lease.

    Attributes:
        uid: UID of the object.
        pod: Name of the pod, as the process says.
        created: When the object was made (RFC 3339).
        seconds: Its length.
        moved_at: When it last moved, on this process's clock.
        statement: What it says, verified, or `None`.
        speaker: Whose it is.
        life: Whether it moved recently enough, when that was last judged.
        key_id: Of a gateway: the id of the key that its statement is signed with, the newest that it has.
    """

    uid: str
    pod: str
    created: str
    seconds: float
    moved_at: float
    statement: LeaseStatement | None
    speaker: Speaker
    life: Life = Life.LIVE
    key_id: str = ""

    @property
    def used_at(self) -> float:
        """When a guard last had a request under way, as it says, on this process's clock; 0.0 for never."""
        said = self.statement
        return self.moved_at - max(0, said.tick - said.used_ms) / 1000 if said is not None and said.used_ms else 0.0

    def lapsed(self, now: float) -> bool:
        """Whether it did not move for longer than its length."""
        return now - self.moved_at > self.seconds + MARGIN_SECONDS


News = Callable[[set[str], bool], None]
"""Told for which ledgers (a pool by its UID, as leases name them) something changed that shows, and whether it is urgent."""


class LeaseBook:
    """All leases.

    Args:
        store: Where pools are found.
        keys: The root keys.
        home: Namespace of the installation, where gateways write.
        clock: Seconds of a clock that only rises.
        news: Told what changed.
    """

    def __init__(self, store: Store, keys: RootKeys, *, home: str, clock: Callable[[], float], news: News) -> None:
        self._store = store
        self._speakers = LeaseSpeakers(store, keys, home)
        self._clock = clock
        self._news = news
        self._processes: dict[Key, Process] = {}
        self._gateways: dict[Key, Process] = {}
        self._loaded = False
        self._seen: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.roster = Roster()

    def hear(self, key: Key, old: Document | None, new: Document | None) -> None:
        """Take a change of the store over; leases matter, and the longest rights of which ledgers tell."""
        if key.kind == EpochLedger.KIND and new is not None:
            self._allow(key, new.get("spec"))
        if key.kind != "FenceLease":
            return
        same = old is not None and new is not None and old["metadata"]["uid"] == new["metadata"]["uid"]
        before = self._processes.get(key) if same else None
        if old is not None and not same:
            self.roster.vanished(old["metadata"]["uid"], self.now_ms())
        if new is None:
            self._put(key, None)
            return
        found = self._read(key, new, before)
        self.roster.saw(self._member(key, new, found), self.now_ms())
        self._put(key, found if self._loaded or old is not None else replace(found, life=Life.UNSEEN))

    def _allow(self, key: Key, ledger: object) -> None:
        rights, role = read_rights(ledger), ledger.get("role") if isinstance(ledger, dict) else None
        if role == Role.AUTHORIZATION.value:
            self.roster.allow_gateways(rights.lease * 1000, rights.fresh * 1000)
        elif role == Role.POOL.value:
            self.roster.allow((key.namespace, key.name), rights.lease * 1000, rights.fresh * 1000)

    def now_ms(self) -> int:
        """The present, on the roster's clock."""
        return int(self._clock() * 1000)

    def judge(self) -> None:
        """Look which leases lapsed since, and tell. It is done from time to time once everything that there was is loaded."""
        self._loaded = True
        self.roster.forget(self.now_ms())
        now = self._clock()
        for key, process in list(self._processes.items()):
            if process.life is not Life.LAPSED and process.lapsed(now):
                self._put(key, replace(process, life=Life.LAPSED))

    def verify_again(self) -> None:
        """Judge every statement by the keys that are in force now."""
        for key, process in list(self._processes.items()):
            document = self._store.get(*key)
            if document is not None:
                speaker, statement = self._statement(key, document, process, complain=False)
                verified = replace(process, statement=statement, speaker=speaker, key_id=_key_id(document, statement))
                self.roster.judged(self._member(key, document, verified))
                self._put(key, verified)

    def guards(self, pool_uid: str) -> list[Process]:
        """Guards of a pool, verified, one a pod: that of the latest lease."""
        return _latest(item for item in self._processes.values() if _guarded(item) == pool_uid)

    def guards_by_pool(self) -> dict[str, list[Process]]:
        """The same of all pools that have any, by their UIDs."""
        pools: defaultdict[str, list[Process]] = defaultdict(list)
        for item in self._processes.values():
            if uid := _guarded(item):
                pools[uid].append(item)
        return {uid: _latest(found) for uid, found in pools.items()}

    def gateways(self) -> list[Process]:
        """Gateways, verified, those that lapsed left out."""
        return [item for item in self._gateways.values() if item.life is not Life.LAPSED]

    def oldest_key(self) -> str | None:
        """Of the keys that gateways sign with the oldest id, those that ended left out; `None` without gateways."""
        statements = ((item.key_id, item.statement) for item in self.gateways())
        return min((key_id for key_id, statement in statements if statement and not statement.released), default=None)

    def generation(self, name: str, *, beside: int = 0) -> int:
        """The greatest number of a lineage that any process says it applied of a ledger, by its name in leases; 0 for none.

        Args:
            name: The ledger.
            beside: Number of the lineage of another pool's ledger that is stored under the pool's name: a gateway finds ledgers by
                that name, so that its word for that lineage says nothing of this one.
        """
        statements = [item.statement for item in self._processes.values() if item.statement and name in item.statement.acknowledged]
        found = ((item.holder, item.acknowledged[name].lineage.generation) for item in statements)
        numbers = (number for holder, number in found if holder != GATEWAY or number != beside)
        return min(max(numbers, default=0), MOST_GENERATIONS)

    def witnesses(self, name: str) -> list[Mapping[str, Any]]:
        """The different copies of a ledger that processes hold, by its name in leases; each has to be verified."""
        return [copy for copy, _ in self._copies(name)]

    def held(self, name: str) -> list[Mark]:
        """The different states of a ledger that processes say they hold, by its name in leases."""
        statements = (item.statement for item in self._processes.values() if item.statement)
        return list(dict.fromkeys(item.acknowledged[name] for item in statements if name in item.acknowledged))

    def unsealed(self, name: str, unsealed: Callable[[Mapping[str, Any]], bool]) -> list[Mark]:
        """The states of a ledger that processes say they hold, and of which their copies carry no seal, or are not there.

        A process that began since publishes the copy that another left in its pod, and has acknowledged nothing: the copy says it.
        """
        copies = [(copy, holders) for copy, holders in self._copies(name) if unsealed(copy)]
        holders = [holder for _, holders in copies for holder in holders]
        holders += [item.statement for item in self._processes.values() if item.statement and name not in item.statement.witnesses]
        marks = [item.acknowledged[name] for item in holders if name in item.acknowledged]
        return list({*marks, *(claimed_mark(copy) for copy, _ in copies)})

    def latest(self) -> set[Key]:
        """Of the leases of each pod that of the latest process: the last that was made, and of one second the last that moved."""
        found: dict[tuple[str, str], Key] = {}
        for key, _ in sorted(self._processes.items(), key=lambda item: (item[1].created, item[1].moved_at)):
            found[key.namespace, key.name.partition(".")[0]] = key
        return set(found.values())

    def unmoved(self, *, factor: float, at_least: float) -> list[Key]:
        """Leases that did not move for a multiple of their length."""
        now = self._clock()
        return [key for key, item in self._processes.items() if now - item.moved_at > max(at_least, factor * item.seconds)]

    def _copies(self, name: str) -> list[tuple[Mapping[str, Any], list[LeaseStatement]]]:
        """The different copies of a ledger, and who holds each: a thousand processes hold one or two, and verifying takes long."""
        by_digest: defaultdict[str, list[tuple[Mapping[str, Any], list[LeaseStatement]]]] = defaultdict(list)
        for process in self._processes.values():
            copy = process.statement.witnesses.get(name) if process.statement else None
            if process.statement is None or copy is None:
                continue
            same = by_digest[str(copy.get("digest"))]
            holders = next((holders for known, holders in same if known is copy or known == copy), None)
            if holders is None:
                same.append((copy, [process.statement]))
            else:
                holders.append(process.statement)
        return [item for same in by_digest.values() for item in same]

    def _read(self, key: Key, document: Document, before: Process | None) -> Process:
        spec, metadata = document.get("spec") or {}, document["metadata"]
        complain = before is None or before.statement is not None
        speaker, statement = self._statement(key, document, before, complain=complain)
        declared = statement.lease_ms / 1000 if statement else spec.get("leaseSeconds") or 0
        seconds = min(float(declared), MAX_LEASE_SECONDS)
        created = metadata.get("creationTimestamp", "")
        return Process(
            metadata["uid"],
            str(spec.get("pod", "")),
            created,
            seconds,
            self._clock(),
            statement,
            speaker,
            key_id=_key_id(document, statement),
        )

    def _statement(
        self, key: Key, document: Mapping[str, Any], before: Process | None, *, complain: bool
    ) -> tuple[Speaker, LeaseStatement | None]:
        presumed = self._speakers.presumed(key, before.speaker if before else None)
        try:
            speaker, statement = self._speakers.read(key, document.get("spec") or {}, presumed)
            return speaker, self._shared(statement)
        except Exception as error:  # whoever holds a key signs what he likes: that is a fault of this lease alone
            if complain:
                fault = str(error) if isinstance(error, CacheScopeError) else fault_of(error)["error"]
                log.warning("lease not believed", extra={"namespace": key.namespace, "lease": key.name, "fault": fault})
            return presumed, None

    def _member(self, key: Key, document: Document, process: Process) -> Member:
        """A lease as the roster has it."""
        speaker, statement = process.speaker, process.statement
        longest = self.roster.presumed(speaker.holder, key.namespace, speaker.pool)
        if statement is not None:
            longest = Longest(statement.lease_ms, statement.fresh_ms)
        elif not longest.lease_ms:  # no ledger tells of any right there: as it says
            longest = Longest(int(process.seconds * 1000))
        most = MOST_GUARD_MS if speaker.holder == GUARD else MAX_LEASE_MS
        return Member(
            uid=process.uid,
            namespace=key.namespace,
            name=key.name,
            version=version_of(document),
            holder=speaker.holder,
            pool=speaker.pool,
            lease_ms=min(longest.lease_ms, most),
            fresh_ms=min(longest.fresh_ms, most),
            released=bool(statement and statement.released),
            acknowledged=statement.acknowledged if statement else {},
            pool_uid=speaker.pool_uid,
        )

    def _shared(self, statement: LeaseStatement) -> LeaseStatement:
        """A statement whose witnesses are the same objects as equal ones of others: that keeps comparing and keeping them cheap."""
        if len(self._seen) > MOST_COPIES:
            self._seen.clear()
        known = {name: self._seen.setdefault((name, str(item.get("digest"))), item) for name, item in statement.witnesses.items()}
        return replace(
            statement, witnesses={name: known[name] if known[name] == item else item for name, item in statement.witnesses.items()}
        )

    def _put(self, key: Key, after: Process | None) -> None:
        before, common = self._processes.pop(key, None), self._common()
        self._gateways.pop(key, None)
        if after is not None:
            self._processes[key] = after
            if after.statement is not None and after.statement.holder == GATEWAY:
                self._gateways[key] = after
        changed = _changed(_visible(before), _visible(after))
        if self._common() != common:  # the first gateway, or the last one: every pool says so. Or all of them took a key over
            changed |= {item["metadata"]["uid"] for item in self._store.all("ServingPool")}
        if changed:
            self._news(changed, True)
        if moved := _changed(_held(before), _held(after)) - changed:
            self._news(moved, False)

    def _common(self) -> tuple[set[Life], str | None]:
        return {item.life for item in self.gateways()}, self.oldest_key()


def _key_id(document: Document, statement: LeaseStatement | None) -> str:
    if statement is None or statement.holder != GATEWAY:
        return ""
    return key_id_of(str(document["spec"]["statement"]), most=MAX_CHARACTERS)


def _visible(process: Process | None) -> dict[str, tuple[Any, ...]]:
    """What can be seen of a lease, by pool UID: all but its tick, and what it holds of ledgers."""
    if process is None or process.statement is None:
        return {}
    statement = process.statement
    if statement.holder == GATEWAY:
        pods, wanted = statement.routable, statement.wanted
        uids = pods.keys() | wanted.keys()
        return {uid: (process.uid, process.life, frozenset(pods.get(uid, ())), frozenset(wanted.get(uid, ()))) for uid in uids}
    return {statement.pool_uid: (process.uid, process.life, statement.version, statement.engine, statement.cache)}


def _held(process: Process | None) -> dict[str, Any]:
    """What a process holds of ledgers, by their names; of what it witnesses the digest is enough."""
    if process is None or process.statement is None:
        return {}
    acknowledged, witnesses = process.statement.acknowledged, process.statement.witnesses
    names = acknowledged.keys() | witnesses.keys()
    return {name: (acknowledged.get(name), witnesses.get(name, {}).get("digest")) for name in names}


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def _guarded(process: Process) -> str:
    """UID of the pool of a guard; empty for what is none, or does not verify."""
    statement = process.statement
    return statement.pool_uid if statement is not None and statement.holder == GUARD else ""


def _latest(guards: Iterable[Process]) -> list[Process]:
    """One a pod."""
    latest: dict[str, Process] = {}
    for process in sorted(guards, key=lambda item: (item.created, item.moved_at)):
        if process.statement is not None:
            latest[process.statement.pod_uid] = process
    return sorted(latest.values(), key=lambda item: item.pod)
