"""The fleet: endpoints as the cluster reports them, proofs as the guards give them, requests in flight.

One loop challenges what is due; the decision asks for the choice and never waits here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cachescope.core.endpoints import Endpoint, choose
from cachescope.core.errors import ClusterError, WireFormatError
from cachescope.gateway.challenges import ChallengeAnswer, PoolTrust, Proof, due, kept, proven, routable

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.1


class EndpointSource(Protocol):
    """Where ready endpoints come from."""

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        """Ready endpoints of a pool, terminating ones left out."""


class Challenger(Protocol):
    """How a challenge travels."""

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Send a request without a permit.

        Raises:
            ClusterError: No answer came in time.
        """


class Fleet:
    """All endpoints of all pools, and what is known of their guards.

    Args:
        source: Where endpoints come from.
        challenger: How challenges are sent.
        clock: Milliseconds of a clock that only rises.
    """

    def __init__(self, source: EndpointSource, challenger: Challenger, clock: Callable[[], int]) -> None:
        self._source = source
        self._challenger = challenger
        self._clock = clock
        self._proofs: dict[str, Proof] = {}
        self._last_sent: dict[str, int] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._in_flight: Counter[str] = Counter()
        self._faults: dict[str, str] = {}

    def choose(self, pool: str, trust: PoolTrust, key: bytes) -> tuple[Endpoint, Proof] | None:
        """The endpoint for a key and its guard's latest proof, or `None` when nobody is routable."""
        now = self._clock()
        fresh = [
            endpoint
            for endpoint in self._source.endpoints(pool)
            if routable(self._proofs.get(endpoint.pod_uid), max_age_ms=trust.max_age_ms, now=now)
        ]
        endpoint = choose(key, fresh, self._in_flight)
        return (endpoint, self._proofs[endpoint.pod_uid]) if endpoint else None

    def started(self, address: str) -> None:
        """A request goes to that address."""
        self._in_flight[address] += 1

    def ended(self, address: str) -> None:
        """A request to that address has ended."""
        self._in_flight[address] -= 1
        if self._in_flight[address] <= 0:
            del self._in_flight[address]

    @property
    def under_way(self) -> Sequence[asyncio.Task[None]]:
        """Challenges that have not been answered yet."""
        return list(self._under_way.values())

    def states(self, pool: str, trust: PoolTrust) -> dict[str, str]:
        """For each ready pod: `routable`, or why it is not."""
        now = self._clock()
        uids = [endpoint.pod_uid for endpoint in self._source.endpoints(pool)]
        fresh = {uid: routable(self._proofs.get(uid), max_age_ms=trust.max_age_ms, now=now) for uid in uids}
        return {uid: "routable" if fresh[uid] else self._faults.get(uid, "not challenged yet") for uid in uids}

    async def watch(self, trusts: Callable[[], Mapping[str, PoolTrust]]) -> None:
        """Challenge what is due, until cancelled.

        Args:
            trusts: Gives what to hold answers against, by pool name, as configured at that moment.
        """
        while True:
            self.step(trusts())
            await asyncio.sleep(PERIOD_SECONDS)

    def step(self, trusts: Mapping[str, PoolTrust]) -> None:
        """Start the challenges that are due and forget endpoints that left."""
        endpoints = {item.pod_uid: (item, trust) for pool, trust in trusts.items() for item in self._source.endpoints(pool)}
        self._proofs = kept(self._proofs, {uid: item for uid, (item, _) in endpoints.items()})
        self._last_sent = {uid: sent for uid, sent in self._last_sent.items() if uid in endpoints}
        self._faults = {uid: fault for uid, fault in self._faults.items() if uid in endpoints}
        now = self._clock()
        for uid, (endpoint, trust) in endpoints.items():
            if uid not in self._under_way and due(
                self._proofs.get(uid), self._last_sent.get(uid), max_age_ms=trust.max_age_ms, now=now
            ):
                self._last_sent[uid] = now
                self._start(endpoint, trust)

    def _start(self, endpoint: Endpoint, trust: PoolTrust) -> None:
        task = asyncio.create_task(self._prove(endpoint, trust))
        self._under_way[endpoint.pod_uid] = task
        task.add_done_callback(lambda _: self._under_way.pop(endpoint.pod_uid, None))

    async def _prove(self, endpoint: Endpoint, trust: PoolTrust) -> None:
        uid, nonce, sent_at = endpoint.pod_uid, secrets.token_urlsafe(24), self._clock()
        try:
            answer = await self._challenger.challenge(endpoint.address, nonce)
            proof = proven(endpoint, trust, answer, nonce=nonce, sent_at=sent_at, before=self._proofs.get(uid))
        except WireFormatError as error:
            self._proofs.pop(uid, None)  # whoever answers there now is not our guard: do not wait until the old proof ages
            self._refuse(uid, str(error))
            return
        except ClusterError as error:
            self._refuse(uid, str(error))
            return
        if self._faults.pop(uid, None) or uid not in self._proofs:
            log.info("endpoint routable", extra={"pool": endpoint.pool, "pod_uid": uid, "boot_id": proof.statement.boot_id})
        self._proofs[uid] = proof

    def _refuse(self, uid: str, fault: str) -> None:
        if self._faults.get(uid) != fault:
            log.warning("endpoint not proven", extra={"pod_uid": uid, "fault": fault})
        self._faults[uid] = fault
