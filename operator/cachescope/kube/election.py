"""Leader election by a Lease of coordination.k8s.io.

Rules:

- whoever leads does so for `renew` seconds from the **send** of the write that the API server answered, never from its answer;
- others wait until they have seen the same version of the Lease for `duration` seconds on their own clock, counted from the answer
  that first showed it: what another machine's clock wrote is never compared;
- every write is a compare-and-swap on the UID and version that were read; an attempt ends with the right that it wants to prolong;
- a Lease that vanished counts as one that changed: only its leader, and who never saw one, creates it at once.

So two lead at once only if clocks run apart by more than `duration / renew`, or if somebody deletes the Lease. A process that is
stopped between two lines learns of it late: what must not be done twice asks `leading` first, and is itself a compare-and-swap.

The client library's own election is not used: it reads the wall clock, counts from the answer, and a request that hangs keeps a
lost leader at work for minutes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cachescope.core.errors import ClusterError
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, NotFoundError, Rest

log = logging.getLogger(__name__)


def boot_seconds() -> float:
    """Seconds of the clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Election:
    """One candidate.

    Args:
        rest: The API.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Who this is, for people; a random end makes it that of this process.
        duration: Seconds that others wait for a leader that does not write.
        renew: Seconds that a leader leads from a write on; less than `duration`.
        retry: Seconds between two writes of a leader, and between two looks of the others.
        clock: Seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        rest: Rest,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = 15.0,
        renew: float = 10.0,
        retry: float = 2.0,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        if not 0 < retry < renew < duration:
            raise RuntimeError(f"retry ({retry}) < renew ({renew}) < duration ({duration}) must hold; give other times")
        self.identity = f"{identity}_{secrets.token_hex(4)}"
        self._rest = rest
        self._list = collection_of("Lease", namespace)
        self._name = name
        self._duration, self._renew, self._retry = duration, renew, retry
        self._clock = clock
        self._ours: Document | None = None
        self._until = -math.inf
        self._seen: tuple[str, ...] | None = None
        self._seen_at = -math.inf
        self._fault = ""

    @property
    def leading(self) -> bool:
        """Whether this process leads now."""
        return self._clock() < self._until

    async def won(self) -> None:
        """Wait until this process leads; call `held` at once afterwards."""
        while not self.leading:
            if not await self.attempt():
                await asyncio.sleep(self._retry * random.uniform(1.0, 1.2))  # noqa: S311 - it spreads requests, no secret
        log.info("leading", extra={"lease": self._name, "identity": self.identity})

    async def held(self) -> None:
        """Keep leading; returns when it is lost, and the caller ends the process."""
        while self.leading:
            await asyncio.sleep(min(self._retry, max(0.0, self._until - self._clock())))
            if self.leading:
                await self.attempt()
        log.error("no longer leading", extra={"lease": self._name, "identity": self.identity})

    async def release(self) -> None:
        """Stop leading, and let another begin at once. Nobody may be inside `held` any more."""
        ours, self._ours, self._until = self._ours, None, -math.inf
        if ours is None:
            return
        try:
            async with asyncio.timeout(self._renew):
                await self._write(ours, holderIdentity="", leaseDurationSeconds=1)
        except (ClusterError, TimeoutError) as error:
            log.warning("lease not released; it runs out", extra={"lease": self._name, "fault": str(error)})

    async def attempt(self) -> bool:
        """Try once to win or to renew; whether that was answered with yes."""
        limit = self._until - self._clock() if self.leading else self._renew
        try:
            async with asyncio.timeout(limit):
                return await self._try()
        except (ClusterError, TimeoutError) as error:
            if str(error) != self._fault:
                log.warning("lease not written", extra={"lease": self._name, "fault": str(error)})
            self._fault = str(error)
            return False

    async def _try(self) -> bool:
        # Kept only once it is written: after a lost answer or a conflict it is read again.
        lease, self._ours = self._ours, None
        if lease is None:
            lease = await self._read()
            if not self._may_take(lease):
                return False
        sent = self._clock()
        self._ours = await (self._create() if lease is None else self._renewed(lease))
        self._until, self._fault = sent + self._renew, ""
        return True

    async def _read(self) -> Document | None:
        try:
            return await self._rest.get(f"{self._list}/{self._name}")
        except NotFoundError:
            return None

    def _may_take(self, lease: Document | None) -> bool:
        spec = (lease or {}).get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder == self.identity:
            return True
        may_create = self._seen is None or self.leading
        self._until = -math.inf
        version = ("",) if lease is None else (lease["metadata"]["uid"], lease["metadata"]["resourceVersion"])
        if version != self._seen:
            self._seen, self._seen_at = version, self._clock()
        if not holder and (lease is not None or may_create):
            return True
        return self._clock() - self._seen_at >= max(self._duration, spec.get("leaseDurationSeconds") or 0)

    async def _create(self) -> Document:
        meta = {"name": self._name}
        spec = {**self._record(), "acquireTime": _now(), "leaseTransitions": 0}
        return await self._rest.create(
            self._list, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        )

    async def _renewed(self, lease: Document) -> Document:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") == self.identity:
            return await self._write(lease, **self._record())
        transitions = (spec.get("leaseTransitions") or 0) + 1
        return await self._write(lease, **self._record(), acquireTime=_now(), leaseTransitions=transitions)

    async def _write(self, lease: Document, **fields: Any) -> Document:  # noqa: ANN401 - fields of a LeaseSpec
        # With its UID and version in it: without the UID, a PUT creates a Lease that is not there.
        document = {**lease, "spec": {**(lease.get("spec") or {}), **fields}}
        return await self._rest.replace(f"{self._list}/{self._name}", document)

    def _record(self) -> dict[str, Any]:
        return {"holderIdentity": self.identity, "leaseDurationSeconds": math.ceil(self._duration), "renewTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
