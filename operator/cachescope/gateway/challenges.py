"""Challenges: which endpoints may be routed to, because their guard proved itself a moment ago.

Rules:

- an endpoint is routable only after a request without a permit got this guard's own 401 with a statement for our nonce;
- the statement must be of this pool and this pod, in the lineages that stand for the pool, of a version that is not shut out, and
  its tick must have moved within half of the maximal age of a permit, counted on our clock from the send of the challenge;
- a proof is dropped with its endpoint: what left and came back proves itself again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from packaging.version import InvalidVersion, Version

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.statements import SignedStatement, Statement, read_statement

Known = TypeVar("Known")


@dataclass(frozen=True)
class Proof:
    """What is known of one guard.

    Attributes:
        statement: Its latest statement; it names the key that the guard signs with.
        moved_at: Our clock, in milliseconds, at the send of the challenge that last showed a higher tick.
    """

    statement: SignedStatement
    moved_at: int

    def serves(self, adapter: str, model: str = "") -> bool:
        """Whether the engine loaded an adapter; without a name, whether it serves its model under that of the model.

        In a rollout that gives a model the name of an adapter, engines of before serve that adapter by it.
        """
        return adapter in self.statement.adapters if adapter else model not in self.statement.adapters


@dataclass(frozen=True)
class PoolTrust:
    """What an answer is held against.

    Attributes:
        pool_uid: The pool.
        keys: Its permit keys.
        lineages: Ids of the lineages that stand for it: of its ledger, and of the authorization head.
        max_age_ms: Maximal age of a permit.
        minimum_version: Guards below it get no requests; `None` takes any.
        leaked: Boot ids of processes that leaked: they get no requests.
    """

    pool_uid: str
    keys: KeyRing
    lineages: tuple[str, str]
    max_age_ms: int
    minimum_version: Version | None = None
    leaked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ChallengeAnswer:
    """How an endpoint answered: HTTP status and the statement header, if there was one."""

    status: int
    statement: str | None


def proven(
    endpoint: Endpoint, trust: PoolTrust, answer: ChallengeAnswer, *, nonce: str, sent_at: int, before: Proof | None
) -> Proof:
    """Judge the answer to a challenge.

    Raises:
        WireFormatError: It proves nothing; the endpoint must not be routed to.
    """
    if answer.status != 401 or answer.statement is None:
        raise WireFormatError(
            f"the engine answered {answer.status} without a guard's statement; if it goes on, see whether its guard is loaded and "
            "reads its ledgers"
        )
    statement = read_statement(trust.keys, answer.statement, nonce=nonce)
    if (statement.pool_uid, statement.pod_uid) != (trust.pool_uid, endpoint.pod_uid):
        raise WireFormatError("the statement is of another pool or pod; check the guard's environment")
    return Proof(statement, sent_at if _moved(statement, before) else before.moved_at if before else sent_at)


def problem(proof: Proof, trust: PoolTrust, *, now: int) -> str | None:
    """Why an endpoint with this proof is not routable now, or `None`."""
    if now - proof.moved_at > trust.max_age_ms // 2:
        return "its guard did not prove itself for too long; see its pod, and the network between gateway and engine"
    if (proof.statement.lineage, proof.statement.authorization_lineage) != trust.lineages:
        return "its guard holds another lineage; wait until both sides have read the same ledger"
    if trust.minimum_version and not _at_least(proof.statement.version, trust.minimum_version):
        return f"its guard is {proof.statement.version}, below {trust.minimum_version}; roll it out (guardUpdates: Now)"
    if proof.statement.boot_id in trust.leaked:
        return "the probe found that its engine does not keep tenants apart; see the pool's condition IsolationVerified"
    return None


def due(proof: Proof | None, last_sent: int | None, trust: PoolTrust, *, now: int) -> bool:
    """Whether to challenge now: at once when unknown, then twice a second until proven, then every quarter of the maximal age."""
    if last_sent is None:
        return True
    pause = trust.max_age_ms // 4 if proof and problem(proof, trust, now=now) is None else 500
    return now - last_sent >= pause


def kept(known: Mapping[Endpoint, Known], endpoints: Collection[Endpoint]) -> dict[Endpoint, Known]:
    """What is known of endpoints that are still ready."""
    return {endpoint: value for endpoint, value in known.items() if endpoint in endpoints}


@lru_cache(64)
def _at_least(version: str, minimum: Version) -> bool:
    try:
        return Version(version) >= minimum
    except InvalidVersion:
        return False


def _moved(statement: Statement, before: Proof | None) -> bool:
    return before is None or statement.boot_id != before.statement.boot_id or statement.tick > before.statement.tick
