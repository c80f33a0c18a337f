"""Leases: what a guard or gateway process says of itself in its `FenceLease`, signed, and how long its right lasts.

Rules:

- a lease belongs to one process: its name is the pod's UID and a boot id that was drawn after the fork, and no other process takes
  it over;
- a right runs for its length from the **send** of the write that the API server committed, and is granted only after a read that
  began after that write was answered;
- a right that had ended before the next was granted, noticed or not, starts a new generation: what belongs to an older one ends;
- a guard without a right may serve `Fresh` for some time after its end, and then nothing: nobody waits for it for ever;
- what a statement says beside what is known here is passed over, so that an older operator goes on with guards of a later version;
- a statement is written deflated: a fence is a write of every guard, and what each costs the API server grows with its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cachescope.core.errors import SpecError, WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.ledger_documents import parse_mark
from cachescope.core.ledgers import AUTHORIZATION, Mark, authorization_key, write_mark
from cachescope.core.record import EngineDigests
from cachescope.core.signed import claimed, read_signed, sign, without_empty
from cachescope.core.types import NO_CACHE, CacheIdentity, Digest

GUARD = "Guard"
GATEWAY = "Gateway"
MAX_CHARACTERS = 524_288
"""Length of a statement: a gateway's names the heads of a thousand pools and the pods that it routes to."""
_MOST_BYTES = 8 * MAX_CHARACTERS
"""Of what is inflated. Names and digests are random: deflated they are a half, so that no statement of that length comes close."""
_PURPOSE = "lease"
MAX_LEASE_MS = 3_600_000
MOST_GUARD_MS = 600_000
"""The longest right, and the longest answer without one, that a guard is given: the API has no longer one."""
MAX_COUNTER = 2**53 - 1
FRESH_TIMES = 5
"""For how many of the longest answers a guard goes on without a right; with the defaults as long as a gateway does."""


@dataclass(frozen=True)
class LeaseStatement:
    """A process, as it describes itself.

    Attributes:
        holder: `Guard` or `Gateway`.
        pod_uid: Its pod.
        boot_id: Random id of the process.
        tick: Milliseconds since the process started, on the boot clock; higher in every attempt to write.
        lease_ms: Length of its right.
        version: Version of CacheScope in the process.
        acknowledged: The ledger states that it applied, and below which it closed everything: by pool UID, and by
            `ledgers.authorization_key` for a namespace's authorization head. Also, by `shard_key`, the states of shards
            that a gateway holds and that were taken back.
        witnesses: Copies of the heads that it read last (`ledger_seals.witness`), by the same names: of a guard all, of a gateway
            the authorization heads.
        pool_uid: The pool of a guard; empty for a gateway.
        fresh_ms: How long it may go on without a right: of a guard the longest `Fresh` request, of a gateway how long it issues
            `Fresh` permits; 0 when it refuses everything.
        engine: What the engine loaded; `None` for a gateway, and while it is not known.
        adapters: Digest of each LoRA adapter that it loaded, by name; a lease without any is written as before there were any.
        released: Whether the process ended cleanly: it holds no right, and never will again.
        routable: Of a gateway: UIDs of the pods that it routes to, by pool UID.
        cache: Of a guard whose engine knows no salts: identity that its cache belongs to; not written while it is nobody's.
        wanted: Of a gateway: identities that it found no pod for a moment ago, by UID of the pool; not written without any.
        engine_version: Of a guard: the version that its engine says it has; not written where it is not known.
        used_ms: Of a guard: its tick when it last had a request under way; not written while it is 0, for never.
    """

    holder: str
    pod_uid: str
    boot_id: str
    tick: int
    lease_ms: int
    version: str
    acknowledged: Mapping[str, Mark] = field(default_factory=dict)
    witnesses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pool_uid: str = ""
    fresh_ms: int = 0
    released: bool = False
    engine: EngineDigests | None = None
    adapters: Mapping[str, Digest] = field(default_factory=dict)
    routable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cache: CacheIdentity = NO_CACHE
    wanted: Mapping[str, tuple[CacheIdentity, ...]] = field(default_factory=dict)
    used_ms: int = 0
    engine_version: str = ""


def fresh_for_ms(fresh_ms: int) -> int:
    """For how long after the end of its right a guard serves `Fresh`, each answer for at most `fresh_ms`."""
    return FRESH_TIMES * fresh_ms


def lease_name(pod_uid: str, boot_id: str) -> str:
    """Name of the `FenceLease` of one process."""
    return f"{pod_uid}.{boot_id}"


def shard_key(namespace: str, name: str) -> str:
    """By what leases name a shard, which only gateways do, and only one that was taken back (`restores.taken_back`)."""
    return f"{authorization_key(namespace)}/{name}"


def namespace_of(key: str) -> str:
    """The namespace of an authorization ledger that a lease names."""
    return key.removeprefix(AUTHORIZATION).partition("/")[0]


def lease_keys(root: KeyRing) -> KeyRing:
    """The keys that gateways sign their leases with; guards use their pool's permit keys."""
    return root.derive("gateway-lease")


def write_lease(key: Key, statement: LeaseStatement) -> str:
    """Sign what a process says of itself."""
    marks = {name: write_mark(mark) for name, mark in statement.acknowledged.items()}
    engine = asdict(statement.engine) if statement.engine else None
    written = {**vars(statement), "acknowledged": marks, "engine": engine}
    return sign(key, _PURPOSE, without_empty(written, "adapters", "cache", "wanted", "used_ms", "engine_version"), deflated=True)


def read_lease(keys: KeyRing, text: str, *, name: str) -> LeaseStatement:
    """Verify and read a lease.

    Args:
        keys: Permit keys of the guard's pool, or `lease_keys` for a gateway.
        text: The statement.
        name: Name of the object that it was found in.

    Raises:
        WireFormatError: Nobody of this pool or installation signed it, or it was copied into another object.
    """
    payload = read_signed(keys, _PURPOSE, text, most=MAX_CHARACTERS, most_inflated=_MOST_BYTES)
    try:
        statement = _parse(payload)
    except (KeyError, TypeError, AttributeError, ValueError, SpecError) as error:
        raise WireFormatError(f"the lease's fields cannot be read ({error!r}); update the older side") from error
    if lease_name(statement.pod_uid, statement.boot_id) != name:
        raise WireFormatError(f"the lease {name} holds another process's statement; whoever wrote it there, it proves nothing")
    return statement


def claimed_lease(text: str) -> dict[str, Any]:
    """What a statement says, whoever wrote it: for people to look at, never to act on.

    Raises:
        WireFormatError: It is no statement.
    """
    return claimed(text, most=MAX_CHARACTERS, most_inflated=_MOST_BYTES)


def _parse(payload: Mapping[str, Any]) -> LeaseStatement:
    released = payload["released"]
    if type(released) is not bool:
        raise TypeError("released is of another type")
    texts = {name: _text(name, payload[name]) for name in ("holder", "pod_uid", "boot_id", "version", "pool_uid")}
    statement = LeaseStatement(
        **texts,
        tick=_counter(payload["tick"]),
        lease_ms=_counter(payload["lease_ms"]),
        fresh_ms=_counter(payload["fresh_ms"]),
        acknowledged={str(name): parse_mark(item) for name, item in payload["acknowledged"].items()},
        witnesses={str(name): _object(item) for name, item in payload["witnesses"].items()},
        routable={str(pool): tuple(map(str, pods)) for pool, pods in payload["routable"].items()},
        engine=_engine(payload["engine"]),
        adapters={str(name): _text(name, item) for name, item in payload.get("adapters", {}).items()},
        released=released,
        cache=_text("cache", payload.get("cache", NO_CACHE)),
        wanted={str(pool): tuple(_text("wanted", item) for item in found) for pool, found in payload.get("wanted", {}).items()},
        used_ms=_counter(payload.get("used_ms", 0)),
        engine_version=_text("engine_version", payload.get("engine_version", "")),
    )
    _check(statement)
    return statement


def _engine(found: Mapping[str, Any] | None) -> EngineDigests | None:
    return EngineDigests(**{item.name: _text(item.name, found[item.name]) for item in fields(EngineDigests)}) if found else None


def _check(statement: LeaseStatement) -> None:
    """A guard speaks of its own pool alone, and a gateway of no pool as its own: the key of one pool says nothing of others."""
    if max(statement.lease_ms, statement.fresh_ms) > MAX_LEASE_MS:
        raise ValueError(f"{statement.lease_ms} or {statement.fresh_ms} ms is longer than {MAX_LEASE_MS}")
    named = {name for name in (*statement.acknowledged, *statement.witnesses) if not name.startswith(AUTHORIZATION)}
    guard = statement.holder == GUARD and named <= {statement.pool_uid} and not statement.routable and not statement.wanted
    gateway = statement.holder == GATEWAY and not statement.pool_uid and not statement.cache and not statement.used_ms
    if not guard and not gateway:
        raise ValueError("the holder speaks of what is not its own")


def _object(item: object) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise TypeError("a witness is of another type")
    return item


def _text(name: str, value: object) -> Any:  # noqa: ANN401 - it becomes the field of a dataclass
    if type(value) is not str:
        raise TypeError(f"{name} is of another type")
    return value


def _counter(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_COUNTER:
        raise ValueError(f"{value!r} is no number from 0 to {MAX_COUNTER}")
    return value


class Right:
    """The right of one process to act on what it read. All times are milliseconds of one clock that only rises.

    Attributes:
        generation: Number of the unbroken chain of rights that holds now; 0 before the first.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._sent_at = 0
        self._until: int | None = None
        self._granted_until = 0

    def grant(self, *, sent_at: int, lease_ms: int, now: int) -> bool:
        """Grant or renew it, after the read that followed the write was applied; whether a new generation began.

        Args:
            sent_at: When the write was sent whose tick the API server's answer shows.
            lease_ms: Its length.
            now: The present, at which the last one must not have ended.
        """
        begins = not self.live(now)
        self.generation += int(begins)
        self._sent_at, self._until = sent_at, sent_at + lease_ms
        self._granted_until = self._until
        return begins

    def revoke(self) -> None:
        """End it now: the lease is gone."""
        self._until = None

    def left_ms(self, now: int) -> int:
        """Milliseconds until it ends; 0 without one."""
        return max(0, self._until - now) if self._until is not None else 0

    def age_ms(self, now: int) -> int | None:
        """Milliseconds since the send that it rests on, also after it ran out; `None` before the first, and once it was revoked."""
        return now - self._sent_at if self._until is not None else None

    def lapsed_ms(self, now: int) -> int | None:
        """Milliseconds since it ran out; `None` while it lasts, before the first, and once it was revoked."""
        return now - self._until if self._until is not None and now >= self._until else None

    def over_ms(self, now: int) -> int:
        """Milliseconds since the last one ran out, or would have if it had not been revoked."""
        return max(0, now - self._granted_until)

    def live(self, now: int) -> bool:
        """Whether it lasts."""
        return self.left_ms(now) > 0
