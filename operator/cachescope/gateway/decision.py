"""The decision: one request in, one answer or one forwarded request out. Fails closed: a fault inside is a 503.

Order: configuration, credential, revocation, route, what the headers say; then the body; then the first three again, pool, scope
and class, endpoint, record, salt, permit. Nothing that a client sends chooses any of them but its credential and the model's name;
what it says of its data and its compartment narrows (`core.classes`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar, cast

import orjson

from cachescope.api.pools import ServingPool
from cachescope.core.classes import Context, DataClass, Placement
from cachescope.core.endpoints import pool_key
from cachescope.core.permits import PERMIT_HEADER, write_permit
from cachescope.engines.routes import Route
from cachescope.engines.vllm import ROUTES
from cachescope.gateway import binding
from cachescope.gateway.audit import Audit, Told
from cachescope.gateway.bodies import BadBody, Sanitized, content_digest, parse_body, sanitize, toolset_digest, with_salt
from cachescope.gateway.context import BadHeader, Said, said
from cachescope.gateway.errors import ErrorName, answer
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.identity.credentials import Forbidden, Identity, KeysUnavailable, Unauthenticated
from cachescope.gateway.placing import Sent, placement_of
from cachescope.gateway.sent_texts import sent_texts
from cachescope.gateway.snapshot import Snapshot
from cachescope.gateway.standing import InForce
from cachescope.logs import fault_of

log = logging.getLogger(__name__)

# What a client may pass through: nothing that names a cache, a rank, a session or a priority.
KEPT_HEADERS = frozenset({"accept", "content-type", "user-agent", "x-request-id"})
MODELS = ("GET", "/v1/models")
LARGE_BODY_BYTES = 128 * 1024
UNDECIDED_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request whose headers were accepted: its body is worth reading. Nothing here decides once the body is there."""

    head: RequestHead
    route: Route
    said: Said


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, cleaned, with its digests."""

    cleaned: Sanitized
    content: binding.Content
    sent: Sent


@dataclass(frozen=True, slots=True)
class Known:
    """Who asks, and what decisions about him are made with."""

    in_force: InForce
    identity: Identity


@dataclass(frozen=True, slots=True)
class Grant:
    """Who may use which engine, under which configuration, with or without the gateway's own right."""

    in_force: InForce
    asker: binding.Asker
    placement: Placement
    engine: binding.Engine


Verdict = TypeVar("Verdict", "Admitted | Answer", "Forward | Answer")


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
        settled: Waits a moment for what is being loaded.
    """

    current: Callable[[], InForce | None]
    fleet: Fleet
    audit: Audit
    now: Callable[[], float]
    entropy: Callable[[int], bytes] = secrets.token_bytes
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
        return self._told(verdict)

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:
        """Decide with the whole body."""
        try:
            verdict = await self._decide(cast("Admitted", admitted), body)
        except BadBody as error:
            name: ErrorName = "unsupported_parameter" if error.code == "unsupported_parameter" else "invalid_request"
            verdict = answer(name, str(error), param=error.param)
        except Exception as error:
            log.error("decision failed", extra=fault_of(error))
            verdict = answer("gateway_not_ready")
        return self._told(verdict)

    def _told(self, verdict: Verdict) -> Verdict:
        if isinstance(verdict, Answer):
            self.audit.answered(verdict)
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
        route = ROUTES.get((head.method, head.path))
        if route is None:
            return answer("not_found")
        try:
            return unacceptable_form(head) or Admitted(head, route, said(head))
        except BadHeader as error:
            return answer("invalid_request", str(error))

    async def _decide(self, admitted: Admitted, body: bytes) -> Forward | Answer:
        asked = await understood(admitted, body)
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
        if served.pool.uid not in snapshot.states:
            return answer("no_endpoint")
        placement = placement_of(snapshot, identity, served.pool, asked.sent, now=self.now())
        if isinstance(placement, Answer):
            return placement
        grant = self._grant(known, served.pool, placement)
        return self._forward(admitted, asked, grant) if grant else answer("no_endpoint")

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

    def _grant(self, known: Known, pool: ServingPool, placement: Placement) -> Grant | None:
        """Which engine of a pool serves an identity; `None` when none is routable, or nobody knows which epochs stand."""
        snapshot, name = known.in_force.snapshot, pool_key(pool.namespace, pool.name)
        trust = snapshot.trusts.get(name)
        if trust is None:
            return None
        asker = snapshot.askers.of(known.identity, pool, placement)
        chosen = self.fleet.choose(name, trust, asker.namespace.encode())
        return Grant(known.in_force, asker, placement, binding.Engine(chosen[0], chosen[1].statement)) if chosen else None

    def _forward(self, admitted: Admitted, asked: Asked, grant: Grant) -> Forward:
        snapshot, asker, engine, route = grant.in_force.snapshot, grant.asker, grant.engine, admitted.route
        bound = binding.record(asker, asked.content, engine.statement)
        reuse = binding.reuse_of(asker, engine.statement, right=not grant.in_force.fresh_only)
        salt = binding.salt_of(snapshot.keys, bound, reuse, self.entropy)
        upstream = binding.Upstream(route.method, route.path, with_salt(asked.cleaned, salt), engine)
        permit = binding.permit(asker, bound, upstream, reuse=reuse, permit_id=self.entropy(16).hex())
        signed = write_permit(binding.signing_key(snapshot.permits[asker.pool.uid], engine.statement), permit)
        request_id = admitted.head.one("x-request-id") or ""
        told = Told(asked.cleaned.stripped, grant.placement.reasons, context=admitted.said.context is not None)
        self.audit.forwarded(request_id, route.path, asker, permit, told)
        self.fleet.started(engine.endpoint.address)
        return Forward(engine.endpoint.address, route.path, {PERMIT_HEADER: signed}, KEPT_HEADERS, upstream.body)


async def understood(admitted: Admitted, body: bytes) -> Asked:
    """Parse, clean and digest a body; a large one in a thread, so that it holds up nobody else.

    Raises:
        BadBody: It cannot be sent to an engine.
    """
    if len(body) <= LARGE_BODY_BYTES:
        return _understood(admitted, body)
    return await asyncio.to_thread(_understood, admitted, body)


def _understood(admitted: Admitted, body: bytes) -> Asked:
    cleaned, context = sanitize(admitted.route, parse_body(body)), admitted.said.context or Context()
    content = binding.Content(content_digest(cleaned.content), toolset_digest(cleaned.tools), context)
    texts = sent_texts(cleaned) if context.data_class is DataClass.PUBLIC else None
    return Asked(cleaned, content, Sent(admitted.said, texts, content.toolset))


async def let_in(found: InForce, head: RequestHead) -> Identity | Answer:
    """Who asks, or why he is refused."""
    identity = await authenticated(found.snapshot, head)
    if isinstance(identity, Answer):
        return identity
    refusal = found.snapshot.revocations.refusal(identity)
    if refusal is not None:
        return answer(refusal)
    high = found.snapshot.policy.tenants[identity.tenant_uid].high
    return answer("gateway_not_ready") if high and found.fresh_only else identity


async def authenticated(snapshot: Snapshot, head: RequestHead) -> Identity | Answer:
    """Whose credential it is, or the refusal."""
    try:
        return await snapshot.authenticator.authenticate(head)
    except Unauthenticated as error:
        return answer("authentication_required", str(error))
    except Forbidden as error:
        return answer("permission_denied", str(error))
    except KeysUnavailable as error:
        return answer("gateway_not_ready", str(error))


def unacceptable_form(head: RequestHead) -> Answer | None:
    """Refuse a body that could be read in two ways: encoded, or not declared as JSON in UTF-8."""
    if head.values("content-encoding") not in ([], ["identity"]):
        return answer("unsupported_media_type")
    kind, _, parameters = (head.one("content-type") or "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    known = kind.strip().lower() == "application/json" and charset in {"", "charset=utf-8"}
    return None if known else answer("unsupported_media_type")


def model_not_found(*, alone: bool) -> Answer:
    """The answer where no pool serves a model; for a tenant that shares none (`alone`) the same whether or not others have one."""
    message = "No pool that serves this tenant alone has the model. List its models at `/v1/models`, or ask the platform team."
    return answer("model_not_found", message if alone else None, param="model")


def models_answer(models_of_tenant: Collection[str]) -> Answer:
    """The list of the models that a tenant may use, as OpenAI gives it."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "cachescope"} for name in sorted(models_of_tenant)]
    return Answer(200, orjson.dumps({"object": "list", "data": models}), "models")
