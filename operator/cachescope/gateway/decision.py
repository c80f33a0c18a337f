"""The decision: one request in, one answer or one forwarded request out. Fails closed: a fault inside is a 503.

Order: configuration, credential, revocation, route, what the headers say; then the body; then the first three again, pool, scope
and class, endpoint, record, salt, permit. Nothing that a client sends chooses any of them but its credential and the model's name;
what it says of its data and its compartment narrows (`core.classes`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from cachescope.api.pools import ServingPool
from cachescope.core.classes import Placement
from cachescope.core.endpoints import pool_key
from cachescope.core.handles import Expectation, Outcome
from cachescope.core.identity import cache_keys
from cachescope.core.keys import Key
from cachescope.core.permits import PERMIT_HEADER, write_permit
from cachescope.core.record import IdentityRecord
from cachescope.core.salts import NONCE_BYTES, salt
from cachescope.core.types import CacheIdentity, Reuse
from cachescope.engines.facts import EngineType
from cachescope.engines.routes import Route
from cachescope.gateway import binding, handles
from cachescope.gateway.admitting import Admitted, is_known, let_in, model_not_found, unacceptable_form
from cachescope.gateway.audit import Audit, Told, request_id
from cachescope.gateway.bodies import BadBody, Sanitized, content_digest, with_bypass, with_salt
from cachescope.gateway.context import BadHeader, said
from cachescope.gateway.errors import ErrorName, answer
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.fitting import Fit, may_be_fresh, may_be_sent
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.own_routes import (
    MODELS,
    OWN,
    Purpose,
    cache_keys_answer,
    handle_answer,
    models_answer,
)
from cachescope.gateway.placing import placement_of
from cachescope.gateway.policy import Served
from cachescope.gateway.snapshot import Snapshot
from cachescope.gateway.standing import InForce
from cachescope.gateway.understanding import LARGE_BODY_BYTES, Asked, Understood, read_enclosed, understood
from cachescope.logs import fault_of

log = logging.getLogger(__name__)

# What a client may pass through: nothing that names a cache, a rank, a session or a priority.
KEPT_HEADERS = frozenset({"accept", "content-type", "user-agent", "x-request-id"})
UNDECIDED_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Known:
    """Who asks, and what decisions about him are made with."""

    in_force: InForce
    identity: Identity


@dataclass(frozen=True, slots=True)
class Grant:
    """Who may use which engine, under which configuration, with or without the gateway's own right."""

    in_force: InForce
    identity: Identity
    asker: binding.Asker
    placement: Placement
    engine: binding.Engine

    def is_proven(self, cleaned: Sanitized) -> bool:
        """Whether its engine was shown to keep such requests apart. The probe needs no right to reuse: its salts are its own."""
        proofs = self.in_force.snapshot.policy.proofs[self.asker.pool.uid]
        return self.identity.prober is None and proofs.cover(self.engine.statement, cleaned)


@dataclass(frozen=True, slots=True)
class Made:
    """The record of a request, and what the cache may do for it."""

    record: IdentityRecord
    reuse: Reuse


Verdict = TypeVar("Verdict", "Admitted | Answer", "Forward | Answer")


def _fit(known: Known, pool: ServingPool, asker: binding.Asker, route: Route) -> Fit:
    """What a request needs of an endpoint. The probe looks for what nobody knows yet."""
    prober = known.identity.prober
    proofs = known.in_force.snapshot.policy.proofs[pool.uid] if route.cached and prober is None else None
    refuses = pool.spec.isolation.unverified == "Refuse"
    return Fit(pool.spec.engine.type, asker.cache, prober.boot_id if prober else "", proofs, refuses)


def _nobody_listens(_pool_uid: str, _cache: CacheIdentity) -> None:
    """Note nothing."""


def _nobody_counts(_key: Key, _asker: binding.Asker, _record: IdentityRecord, _cleaned: Sanitized) -> None:
    """Count nothing."""


async def _at_once() -> None:
    """Wait for nothing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Implements `Gate` over the current snapshot and the fleet.

    Attributes:
        current: Gives what is in force, or `None` while nothing may be decided.
        fleet: The endpoints.
        audit: Where decisions are told.
        now: Gives the seconds since 1970; approvals of public sources end by it.
        entropy: Gives random bytes.
        wanted: Notes that a pool has no engine for a cache identity.
        observed: Counts what would be reused of a request, where its pool's stage says so.
        settled: Waits a moment for what is being loaded.
    """

    current: Callable[[], InForce | None]
    fleet: Fleet
    audit: Audit
    now: Callable[[], float]
    entropy: Callable[[int], bytes] = secrets.token_bytes
    wanted: Callable[[str, CacheIdentity], None] = _nobody_listens
    observed: Callable[[Key, binding.Asker, IdentityRecord, Sanitized], None] = _nobody_counts
    settled: Callable[[], Awaitable[None]] = _at_once

    @property
    def max_request_bytes(self) -> int:
        """Largest body that is accepted. One that was begun when nothing may be decided any more is read, and answered with 503."""
        found = self.current()
        return found.snapshot.settings.max_request_bytes if found else UNDECIDED_BODY_BYTES

    async def admit(self, head: RequestHead) -> Admitted | Answer:
        """Decide from the headers alone."""
        try:
            verdict = await self._admit(head)
        except Exception as error:
            log.error("admission failed", extra=fault_of(error))
            verdict = answer("gateway_not_ready")
        return self._told(verdict, head)

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:
        """Decide with the whole body."""
        known = cast("Admitted", admitted)
        try:
            verdict = await self._decide(known, body)
        except BadBody as error:
            name: ErrorName = "unsupported_parameter" if error.code == "unsupported_parameter" else "invalid_request"
            verdict = answer(name, str(error), param=error.param)
        except Exception as error:
            log.error("decision failed", extra=fault_of(error))
            verdict = answer("gateway_not_ready")
        return self._told(verdict, known.head)

    def _told(self, verdict: Verdict, head: RequestHead) -> Verdict:
        if isinstance(verdict, Answer):
            self.audit.answered(verdict, request_id(head), head.path if is_known(head) else "")
        return verdict

    def finished(self, forward: Forward) -> None:
        """The forwarded request has ended."""
        self.fleet.ended(forward.endpoint)

    async def _admit(self, head: RequestHead) -> Admitted | Answer:
        known = await self._let_in(head)
        if isinstance(known, Answer):
            return known
        if (head.method, head.path) == MODELS:
            return models_answer(known.in_force.snapshot.policy.models(known.identity.tenant_uid))
        if not is_known(head):
            return answer("not_found")
        asked = (head.method, head.path)
        try:
            return unacceptable_form(head) or Admitted(head, OWN.get(asked, Purpose.ENGINE), said(head), known.identity.tenant_uid)
        except BadHeader as error:
            return answer("invalid_request", str(error))

    async def _decide(self, admitted: Admitted, body: bytes) -> Forward | Answer:
        found = await self._understood(admitted, body)
        if found is None:
            return answer("not_found")
        asked = found.asked
        # A body may take its time: what was true when it began (keys, suspensions, scopes, epochs) counts for nothing now.
        known = await self._let_in(admitted.head)
        if isinstance(known, Answer):
            return known
        snapshot, identity = known.in_force.snapshot, known.identity
        served = snapshot.policy.models(identity.tenant_uid).get(asked.cleaned.model)
        if served is None:
            return model_not_found(alone=snapshot.policy.tenants[identity.tenant_uid].high)
        refusal = snapshot.revocations.refusal(identity, served.pool.namespace)
        if refusal is not None:
            return answer(refusal)
        return self._served(admitted, found, known, served)

    def _served(self, admitted: Admitted, found: Understood, known: Known, served: Served) -> Forward | Answer:
        """By the first of the pools that may serve it."""
        if served.pool.spec.engine.type != found.engine:
            return answer("no_endpoint")  # it changed while the body was read
        for pool in known.in_force.snapshot.policy.serving(known.identity.tenant_uid, served.pool):
            grant = self._granted(known, Served(pool, served.adapter), found.asked)
            if grant is not None:
                return grant if isinstance(grant, Answer) else self._concluded(admitted, found, grant)
        return answer("no_endpoint")

    def _granted(self, known: Known, served: Served, asked: Asked) -> Grant | Answer | None:
        """Which engine of a pool serves a request, or why none does; `None` when there is none now."""
        snapshot, pool = known.in_force.snapshot, served.pool
        if pool.uid not in snapshot.states:
            return None
        placement = placement_of(snapshot, known.identity, pool, asked.sent, now=self.now())
        if isinstance(placement, Answer):
            return placement
        return self._grant(known, served, placement, asked.cleaned.route)

    async def _understood(self, admitted: Admitted, body: bytes) -> Understood | None:
        """Read a body for the engine that serves its model, by what is in force as it is read; `None` where that has no such route.

        Raises:
            BadBody: It cannot be sent to an engine.
        """
        enclosed = await read_enclosed(admitted, body)
        found = self.current()
        served = found.snapshot.policy.models(admitted.tenant_uid).get(str(enclosed.fields.get("model"))) if found else None
        engine = served.pool.spec.engine.type if served else EngineType.VLLM.value
        return await understood(admitted, enclosed, engine, large=len(body) > LARGE_BODY_BYTES)

    async def _let_in(self, head: RequestHead) -> Known | Answer:
        """Who asks, by what is in force once that is known, or why he is refused. Whoever goes on from here must not wait again."""
        while True:
            if self.current() is None:
                await self.settled()
            found = self.current()
            if found is None:
                return answer("gateway_not_ready")
            identity = await let_in(found, head)
            if isinstance(identity, Answer):
                return identity
            now = self.current()
            if now is not None and now.snapshot is found.snapshot and now.fresh_only == found.fresh_only:
                return Known(found, identity)
            # Keys may have been fetched meanwhile, and what changed since then may have been acknowledged already.

    def _grant(self, known: Known, served: Served, placement: Placement, route: Route) -> Grant | None:
        """Which engine serves an identity; `None` when none is routable that loaded it, or nobody knows which epochs stand."""
        pool = served.pool
        snapshot, name = known.in_force.snapshot, pool_key(pool.namespace, pool.name)
        trust = snapshot.trusts.get(name)
        if trust is None:
            return None
        asker = snapshot.askers.of(known.identity, pool, placement)
        fit = _fit(known, pool, asker, route)
        chosen = self.fleet.choose(name, trust, asker.namespace.encode(), served.adapter, model=pool.spec.model.name, fit=fit)
        if chosen is None and asker.cache:
            self.wanted(pool.uid, asker.cache)
        if chosen is None or not may_be_sent(snapshot, route, pool, chosen[1].statement):
            return None
        engine = binding.Engine(chosen[0], chosen[1].statement, served.adapter)
        return Grant(known.in_force, known.identity, asker, placement, engine)

    def _concluded(self, admitted: Admitted, found: Understood, grant: Grant) -> Forward | Answer:
        asked = found.asked
        bound = binding.record(grant.asker, asked.content, grant.engine.loaded)
        cached, right = asked.cleaned.route.cached, not grant.in_force.fresh_only
        proven = grant.is_proven(asked.cleaned)
        made = Made(bound, binding.reuse_of(grant.asker, grant.engine.statement, right=right, cached=cached, proven=proven))
        if not may_be_fresh(asked.cleaned.route, grant.engine.statement, made.reuse):
            return answer("no_endpoint")
        if admitted.purpose is Purpose.HANDLE:
            return self._handle(found.ttl_seconds, grant, made)
        if admitted.purpose is Purpose.CACHE_KEYS:
            return self._cache_keys(asked, grant, made)
        return self._forward(admitted, asked, grant, made)

    def _handle(self, ttl_seconds: int, grant: Grant, made: Made) -> Answer:
        if made.reuse is not Reuse.SALTED:
            return answer("invalid_request", "Nothing of this request is kept for reuse now. Send it without a handle.")
        expires_at = int(self.now()) + ttl_seconds
        key = grant.in_force.snapshot.keys.handles.current
        return handle_answer(handles.seal(key, Expectation(made.record, expires_at), self.entropy), expires_at)

    def _cache_keys(self, asked: Asked, grant: Grant, made: Made) -> Answer:
        if not grant.identity.credentials & grant.asker.scope.rule.applications:
            message = "No CacheScope lists this credential as an application. Ask the platform team to list it in `applications`."
            return answer("permission_denied", message)
        nonce = None if made.reuse is Reuse.SALTED else self.entropy(NONCE_BYTES)
        request = content_digest(asked.cleaned.route.dialect, asked.cleaned.fields)
        keys = cache_keys(grant.in_force.snapshot.keys.caches, made.record, request=request, nonce=nonce)
        return cache_keys_answer(keys, made.record.scope, made.reuse)

    def _forward(self, admitted: Admitted, asked: Asked, grant: Grant, made: Made) -> Forward:
        snapshot, asker, engine, route = grant.in_force.snapshot, grant.asker, grant.engine, asked.cleaned.route
        upstream = binding.Upstream(route.method, route.path, self._body(asked, grant, made), engine)
        permit = binding.permit(asker, made.record, upstream, reuse=made.reuse, permit_id=self.entropy(16).hex())
        signed = write_permit(binding.signing_key(snapshot.permits[asker.pool.uid], engine.statement), permit)
        told = Told(
            asked.cleaned.stripped,
            grant.placement.reasons,
            context=admitted.said.context is not None,
            handle=self._presented(admitted.said.handle, snapshot, made),
        )
        if grant.identity.prober is None:
            self.observed(snapshot.keys.salt, asker, made.record, asked.cleaned)
        self.audit.forwarded(request_id(admitted.head), route.path, asker, permit, told)
        self.fleet.started(engine.endpoint.address)
        return Forward(engine.endpoint.address, route.path, {PERMIT_HEADER: signed}, KEPT_HEADERS, upstream.body)

    def _body(self, asked: Asked, grant: Grant, made: Made) -> bytes:
        route = asked.cleaned.route
        if route.unsalted is not None:
            return with_bypass(asked.cleaned, reuse=made.reuse is Reuse.SALTED)
        prober, keys = grant.identity.prober, grant.in_force.snapshot.keys
        if prober is not None and route.cached:
            return with_salt(asked.cleaned, prober.salt(salt(keys.salt, made.record)))
        return with_salt(asked.cleaned, binding.salt_of(keys, made.record, made.reuse, self.entropy))

    def _presented(self, handle: str | None, snapshot: Snapshot, made: Made) -> Outcome | None:
        """What becomes of a handle; it changes nothing of the request, and nothing of the answer."""
        if handle is None:
            return None
        if made.reuse is not Reuse.SALTED:
            return Outcome.NOT_REUSED
        return handles.presented(snapshot.keys.handles, handle, made.record, now=self.now())
