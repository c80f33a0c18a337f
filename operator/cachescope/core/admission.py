"""Admission: whether a guard lets one request reach the engine.

Rules, in the order in which they are checked:

1. the guard had a right since it began, and knows what its engine loaded, else nothing passes;
2. the permit names this pool, this pod and this process;
3. it is for this method and path, and for these exact body bytes;
4. its tick is not above the guard's own and not older than the maximal age (the guard's own clock alone decides);
5. it was made for what this engine loaded, adapter included;
6. its epochs name the pool, and are those that stand (`heads.judge`): of another lineage, denied, or behind, it is refused; ahead
   of what this guard has read, the guard reads again, once;
7. it reuses no more than this guard may let it: nothing but `Fresh` without a right or while an incident bypasses reuse, and
   nothing public while an incident stopped that;
8. where the engine knows no salts it is for the identity that the pod's cache belongs to, or for the first one of a cache that is
   nobody's yet; where it does it names none; and where nothing is reused it asks for no more than `Fresh`;
9. it was not used before; ids are kept until their tick is too old, and a full memory refuses instead of forgetting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cachescope.core.caches import Caching
from cachescope.core.heads import Heads, Standing, judge
from cachescope.core.permits import Permit
from cachescope.core.record import ABSENT, Loaded
from cachescope.core.types import NO_CACHE, CacheIdentity, Digest, Reuse, ScopeClass, TargetName


class Refusal(Enum):
    """Why a guard refuses: HTTP status, stable code, what to do, and seconds for `Retry-After` where a retry helps."""

    PERMIT_REQUIRED = (401, "permit_required", "send the request to the gateway, which adds a permit", None)
    PERMIT_INVALID = (401, "permit_invalid", "send the request to the gateway; a permit cannot be made elsewhere", None)
    NO_RIGHT = (503, "guard_without_right", "the guard has no fresh ledger head; see the pool's status", 1)
    OTHER_PROCESS = (
        403,
        "permit_for_another_process",
        "the permit names another engine; send the request to the gateway",
        None,
    )
    OTHER_BOOT = (409, "permit_before_restart", "the engine restarted since; retry through the gateway", 0)
    OTHER_REQUEST = (
        403,
        "permit_for_another_request",
        "method, path or body differ from the permit; do not rebuild requests",
        None,
    )
    TICK_AHEAD = (403, "permit_tick_ahead", "the permit names a tick that this guard never published", None)
    TOO_OLD = (409, "permit_too_old", "the gateway's view of this engine is stale; retry through the gateway", 1)
    OTHER_RUNTIME = (409, "permit_for_another_runtime", "the engine was rolled out since; retry through the gateway", 0)
    OTHER_LINEAGE = (409, "permit_of_another_lineage", "the ledger was restored since; retry through the gateway", 0)
    NO_POOL_EPOCH = (
        403,
        "permit_without_pool_epoch",
        "the permit does not name the pool's epoch; update the gateway",
        None,
    )
    UNCONFIRMED = (503, "restore_unconfirmed", "the cluster was restored; confirm it: `kubectl cachescope restored --confirm`", 30)
    REVOKED = (403, "revoked", "the credential was revoked; ask whoever runs this service", None)
    LEASE_LOST = (409, "guard_lease_lost", "this engine serves without reuse for now; retry through the gateway", 1)
    BYPASSED = (409, "reuse_bypassed", "an incident switched reuse off since; retry through the gateway", 0)
    PUBLIC_STOPPED = (409, "public_sharing_stopped", "an incident stopped public sharing since; retry through the gateway", 0)
    FRESH_OVER = (503, "fresh_time_over", "the engine has been without a right for too long; retry through the gateway", 1)
    BEHIND = (409, "permit_behind", "the epoch rolled forward since; retry through the gateway", 0)
    GUARD_BEHIND = (409, "guard_behind", "the ledger that the gateway saw has not reached this guard; retry", 1)
    USED = (403, "permit_used", "a permit is good for one request; send the request to the gateway again", None)
    MEMORY_FULL = (503, "permit_memory_full", "too many requests for this guard's memory of used permits; retry", 1)
    OTHER_CACHE = (409, "permit_for_another_cache", "this engine's cache belongs to another identity; retry through the gateway", 1)
    REUSE_OFF = (403, "reuse_switched_off", "nothing is reused in this pool; send the request through its gateway", None)
    NOT_KEPT = (503, "cache_identity_not_kept", "the pod cannot keep whom its cache belongs to; see its log", 1)
    TOO_LARGE = (413, "body_too_large", "the body is larger than the guard accepts; shorten it", None)

    def __init__(self, status: int, code: str, advice: str, retry_after: int | None) -> None:
        """Name the parts of the table."""
        self.status = status
        self.code = code
        self.advice = advice
        self.retry_after = retry_after


@dataclass(frozen=True)
class Request:
    """What the guard sees of a request.

    Attributes:
        method: HTTP method.
        path: Raw path, and `?` with the query if there is one.
        body_digest: SHA-256 of the whole body, or `None` while it has not been read.
    """

    method: str
    path: str
    body_digest: Digest | None


@dataclass(frozen=True)
class GuardState:
    """What the guard knows of itself at one moment.

    Attributes:
        pool_uid: Its pool.
        pool_target: Name of the pool's epoch target.
        pod_uid: Its pod.
        boot_id: Its process.
        tick: Its own tick now, in milliseconds.
        max_age_ms: How old a permit's tick may be.
        loaded: What its engine loaded, or `None` while it is not known.
        heads: The heads that it applied last, or `None` before its first right.
        right: Whether its right lasts.
        fresh: Whether it serves `Fresh` permits without a right.
        caching: What keeps requests apart in its engine.
        cache: Identity that its cache belongs to, with `ONE_CACHE`; empty while it is nobody's.
    """

    pool_uid: str
    pool_target: TargetName
    pod_uid: str
    boot_id: str
    tick: int
    max_age_ms: int
    loaded: Loaded | None
    heads: Heads | None
    right: bool
    fresh: bool = False
    caching: Caching = Caching.SALTED
    cache: CacheIdentity = NO_CACHE


def refusal(permit: Permit, request: Request, state: GuardState) -> Refusal | None:
    """Apply rules 1 to 8; `None` means that only single use is left to check."""
    if state.heads is None or state.loaded is None or not (state.right or state.fresh):
        return Refusal.NO_RIGHT
    return (
        _wrong_process(permit, state)
        or _wrong_request(permit, request)
        or _wrong_age(permit, state)
        or _wrong_engine(permit, state.loaded)
        or _wrong_epochs(permit, state, state.heads)
        or _wrong_reuse(permit, state, state.heads)
        or _wrong_cache(permit, state)
    )


def _wrong_process(permit: Permit, state: GuardState) -> Refusal | None:
    if (permit.pool_uid, permit.pod_uid) != (state.pool_uid, state.pod_uid):
        return Refusal.OTHER_PROCESS
    return Refusal.OTHER_BOOT if permit.boot_id != state.boot_id else None


def _wrong_request(permit: Permit, request: Request) -> Refusal | None:
    if (permit.method, permit.path) != (request.method, request.path):
        return Refusal.OTHER_REQUEST
    return Refusal.OTHER_REQUEST if request.body_digest not in {None, permit.body_digest} else None


def _wrong_age(permit: Permit, state: GuardState) -> Refusal | None:
    if permit.tick > state.tick:
        return Refusal.TICK_AHEAD
    return Refusal.TOO_OLD if state.tick - permit.tick > state.max_age_ms else None


def _wrong_engine(permit: Permit, loaded: Loaded) -> Refusal | None:
    known = permit.adapter_digest == ABSENT or permit.adapter_digest in loaded.adapters.values()
    return None if known and permit.runtime_digest == loaded.engine.runtime else Refusal.OTHER_RUNTIME


REFUSED: Final[Mapping[Standing, Refusal]] = {
    Standing.OTHER_LINEAGE: Refusal.OTHER_LINEAGE,
    Standing.UNCONFIRMED: Refusal.UNCONFIRMED,
    Standing.DENIED: Refusal.REVOKED,
    Standing.BEHIND: Refusal.BEHIND,
    Standing.AHEAD: Refusal.GUARD_BEHIND,
}
"""What is answered to epochs that do not stand."""


def _wrong_epochs(permit: Permit, state: GuardState, heads: Heads) -> Refusal | None:
    if permit.epochs.cache.get(state.pool_target) is None:
        return Refusal.NO_POOL_EPOCH
    return REFUSED.get(judge(heads, permit.epochs, permit.seen))


def _wrong_reuse(permit: Permit, state: GuardState, heads: Heads) -> Refusal | None:
    if permit.reuse is Reuse.SALTED and not state.right:
        return Refusal.LEASE_LOST
    return switched_off(permit, heads)


def switched_off(permit: Permit, heads: Heads) -> Refusal | None:
    """Whether an incident switched off what the permit wants to share or reuse."""
    if heads.pool.flags.stops_public and permit.scope is ScopeClass.PUBLIC:
        return Refusal.PUBLIC_STOPPED
    return Refusal.BYPASSED if heads.pool.flags.bypasses and permit.reuse is Reuse.SALTED else None


def _wrong_cache(permit: Permit, state: GuardState) -> Refusal | None:
    if state.caching is Caching.OFF and permit.reuse is Reuse.SALTED:
        return Refusal.REUSE_OFF
    if state.caching is not Caching.ONE_CACHE:
        return Refusal.OTHER_CACHE if permit.cache else None
    return None if permit.cache and state.cache in {NO_CACHE, permit.cache} else Refusal.OTHER_CACHE


class UsedPermits:
    """The ids of permits that were used, for as long as they would still be young enough.

    Args:
        capacity: Most ids that are kept; beyond it nothing is admitted, and nothing is forgotten.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ticks: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """Ids kept now."""
        return len(self._ticks)

    def use(self, permit: Permit, *, tick: int, max_age_ms: int) -> Refusal | None:
        """Use a permit that passed `refusal` in this very moment; the second use of an id is refused."""
        if permit.id in self._ticks:
            return Refusal.USED
        self._forget_older_than(tick - max_age_ms)
        if len(self._ticks) >= self._capacity:
            return Refusal.MEMORY_FULL
        self._ticks[permit.id] = permit.tick
        return None

    def _forget_older_than(self, oldest: int) -> None:
        """Forget from the front, where the first used are; one that is young holds those behind it a little longer."""
        while self._ticks and next(iter(self._ticks.values())) < oldest:
            self._ticks.popitem(last=False)
