"""The fleet: endpoints as the cluster reports them, proofs and leases as the guards give them, requests in flight.

An endpoint is routable when it is ready, its guard proved itself a moment ago (`challenges`), and that very process holds a
lease. One loop challenges what is due; the decision asks for the choice and never waits here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cachescope.core.endpoints import Endpoint, choose
from cachescope.core.errors import ClusterError, WireFormatError
from cachescope.core.log_lines import fault_of
from cachescope.core.statements import Statement
from cachescope.core.types import NO_CACHE, CacheIdentity
from cachescope.gateway.challenges import ChallengeAnswer, PoolTrust, Proof, due, kept, problem, proven
from cachescope.gateway.fitting import Fit
from cachescope.gateway.steady import Steady

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.1
ROUTABLE = "routable"
ANY = Fit()


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


class Leases(Protocol):
    """What guards hold in the Kubernetes API."""

    def problem(self, endpoint: Endpoint, trust: PoolTrust, boot_id: str) -> str | None:
        """Why a guard process holds no valid lease, or `None`."""

    def cache(self, endpoint: Endpoint, trust: PoolTrust, boot_id: str) -> CacheIdentity:
        """Identity that a pod's cache belongs to, as its lease says; nobody's without a valid one."""


class Fleet:
    """All endpoints of all pools, and what is known of their guards.

    Args:
        source: Where endpoints come from.
        challenger: How challenges are sent.
        leases: The leases of guards.
        clock: Milliseconds of a clock that only rises.
    """

    def __init__(self, source: EndpointSource, challenger: Challenger, leases: Leases, *, clock: Callable[[], int]) -> None:
        self._source = source
        self._challenger = challenger
        self._leases = leases
        self._clock = clock
        # By endpoint, address included: a proof is worth nothing for another address that claims the same pod.
        self._proofs: dict[Endpoint, Proof] = {}
        self._last_sent: dict[Endpoint, int] = {}
        self._under_way: dict[Endpoint, asyncio.Task[None]] = {}
        self._in_flight: Counter[str] = Counter()
        self._faults: dict[Endpoint, str] = {}

    def choose(
        self, pool: str, trust: PoolTrust, key: bytes, adapter: str = "", *, model: str = "", fit: Fit = ANY
    ) -> tuple[Endpoint, Proof] | None:
        """The endpoint for a key and its guard's latest proof, or `None` when nobody is routable who serves what is asked for.

        Args:
            pool: The pool (`pool_key`).
            trust: What its guards are held against.
            key: What requests of one scope have in common.
            adapter: The adapter that is asked for, or empty for the model.
            model: Name of the pool's model.
            fit: What the request needs of it.
        """
        now = self._clock()
        fresh = [
            endpoint
            for endpoint in self._source.endpoints(pool)
            if self._problem(endpoint, trust, now) is None and self._proofs[endpoint].serves(adapter, model)
        ]
        endpoint = choose(key, self._best(fresh, trust, fit), self._in_flight)
        return (endpoint, self._proofs[endpoint]) if endpoint else None

    def _best(self, endpoints: Sequence[Endpoint], trust: PoolTrust, fit: Fit) -> Sequence[Endpoint]:
        """Those that fit best, if any does."""
        ranked: defaultdict[int, list[Endpoint]] = defaultdict(list)
        for endpoint in endpoints:
            statement = self._proofs[endpoint].statement
            # A lease tells of a binding at once, a statement with the next challenge.
            bound = statement.cache or (self._leases.cache(endpoint, trust, statement.boot_id) if fit.cache else NO_CACHE)
            if (rank := fit.rank(statement, bound)) is not None:
                ranked[rank].append(endpoint)
        return ranked[min(ranked)] if ranked else ()

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
        """For each ready pod and its address: `routable`, or why it is not."""
        now = self._clock()
        return {
            f"{endpoint.pod_uid} {endpoint.address}": self._problem(endpoint, trust, now) or ROUTABLE
            for endpoint in self._source.endpoints(pool)
        }

    def statements(self, pool: str) -> dict[str, Statement]:
        """The latest statement of each ready pod's guard, by pod and address as in `states`."""
        ready = self._source.endpoints(pool)
        return {f"{item.pod_uid} {item.address}": self._proofs[item].statement for item in ready if item in self._proofs}

    def routable(self, trusts: Mapping[str, PoolTrust]) -> dict[str, tuple[str, ...]]:
        """UIDs of the pods that requests may go to, by pool UID; pools without any are left out."""
        now = self._clock()
        found = {
            trust.pool_uid: sorted({e.pod_uid for e in self._source.endpoints(pool) if self._problem(e, trust, now) is None})
            for pool, trust in trusts.items()
        }
        return {uid: tuple(pods) for uid, pods in found.items() if pods}

    async def watch(self, trusts: Callable[[], Mapping[str, PoolTrust]]) -> None:
        """Challenge what is due, until cancelled.

        Args:
            trusts: Gives what to hold answers against, by pool (`pool_key`), as configured at that moment.
        """
        steady = Steady("challenges")
        while True:
            with steady:
                self.step(trusts())
            await asyncio.sleep(PERIOD_SECONDS)

    def step(self, trusts: Mapping[str, PoolTrust]) -> None:
        """Start the challenges that are due and forget endpoints that left."""
        endpoints = {endpoint: trust for pool, trust in trusts.items() for endpoint in self._source.endpoints(pool)}
        self._proofs = kept(self._proofs, endpoints)
        self._last_sent = kept(self._last_sent, endpoints)
        self._faults = kept(self._faults, endpoints)
        now = self._clock()
        for endpoint, trust in endpoints.items():
            if endpoint not in self._under_way and due(self._proofs.get(endpoint), self._last_sent.get(endpoint), trust, now=now):
                self._last_sent[endpoint] = now
                self._start(endpoint, trust)

    def _problem(self, endpoint: Endpoint, trust: PoolTrust, now: int) -> str | None:
        proof = self._proofs.get(endpoint)
        if proof is None:
            return self._faults.get(endpoint, "not challenged yet")
        return problem(proof, trust, now=now) or self._leases.problem(endpoint, trust, proof.statement.boot_id)

    def _start(self, endpoint: Endpoint, trust: PoolTrust) -> None:
        task = asyncio.create_task(self._prove(endpoint, trust))
        self._under_way[endpoint] = task
        task.add_done_callback(lambda _: self._under_way.pop(endpoint, None))

    async def _prove(self, endpoint: Endpoint, trust: PoolTrust) -> None:
        nonce, sent_at = secrets.token_urlsafe(24), self._clock()
        try:
            answer = await self._challenger.challenge(endpoint.address, nonce)
            proof = proven(endpoint, trust, answer, nonce=nonce, sent_at=sent_at, before=self._proofs.get(endpoint))
        except WireFormatError as error:
            self._proofs.pop(endpoint, None)  # whoever answers there now is not our guard: do not wait until the old proof ages
            self._refuse(endpoint, str(error))
            return
        except ClusterError as error:
            self._refuse(endpoint, str(error))
            return
        except Exception as error:  # whoever holds the pool's key may sign whatever he likes
            self._proofs.pop(endpoint, None)
            self._refuse(endpoint, f"its answer cannot be read ({fault_of(error)['error']}); see who answers at its address")
            return
        if self._faults.pop(endpoint, None) or endpoint not in self._proofs:
            boot_id = proof.statement.boot_id
            log.info("guard proved itself", extra={"pool": endpoint.pool, "pod_uid": endpoint.pod_uid, "boot_id": boot_id})
        self._proofs[endpoint] = proof

    def _refuse(self, endpoint: Endpoint, fault: str) -> None:
        if self._faults.get(endpoint) != fault:
            log.warning("endpoint not proven", extra={"pod_uid": endpoint.pod_uid, "fault": fault})
        self._faults[endpoint] = fault
