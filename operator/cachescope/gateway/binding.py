"""Binding: from who asks and what is asked to the record, the salt and the permit. Pure; random bytes are passed in.

Rules:

- the salt carries the epochs of the targets at or above the class, of `Public` those of pool and scope alone, which all who share
  have; the permit carries those of every target of the request, so that a revoked principal is refused also where its cache is
  shared;
- cache epochs (pool, scope) stand in the pool's ledger, authorization epochs (tenant, compartment, principal) in its namespace's;
- a permit allows reuse only under the gateway's own right, to a guard that has one, where nothing switched reuse off, and of what
  was proven to be kept apart (`proofs`);
- the salt is made for what the chosen endpoint loaded, be it for an adapter, and the permit says so;
- a permit is signed with the key that the guard last signed with: after a rotation the guard may not have the newest one yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cachescope.api.pools import ServingPool
from cachescope.core.caches import Caching, cache_identity
from cachescope.core.classes import Context, Placement
from cachescope.core.digests import sha256
from cachescope.core.endpoints import Endpoint
from cachescope.core.epochs import EpochVector, target_name
from cachescope.core.heads import Epochs, Seen
from cachescope.core.keys import Key, KeyRing
from cachescope.core.permits import Permit
from cachescope.core.record import ABSENT, EngineDigests, IdentityRecord
from cachescope.core.salts import NONCE_BYTES, salt
from cachescope.core.scopes import Subject, namespace
from cachescope.core.statements import SignedStatement, Statement
from cachescope.core.types import NO_CACHE, CacheIdentity, Digest, Namespace, Reuse, Salt, ScopeClass, TargetKind, TargetName
from cachescope.gateway.authorizations import PoolState
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.policy import EffectiveScope

Entropy = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, of which pool, under which rule.

    Attributes:
        pool: The pool.
        scope: The effective scope.
        placement: Where the request belongs.
        seen: The ledger states that stand for the pool.
        namespace: Whom it separates.
        shared: Epochs of the targets at or above the class; part of the salt.
        all: Epochs of every target of the request; part of the permit.
        bypassed: Whether nothing of the pool is reused: an incident switched it off, or its stage is `Observe`.
        cache: Identity of the cache that the asker may use in engines of its own; nobody's elsewhere.
    """

    pool: ServingPool
    scope: EffectiveScope
    placement: Placement
    seen: Seen
    namespace: Namespace
    shared: EpochVector
    all: Epochs
    bypassed: bool
    cache: CacheIdentity = NO_CACHE


@dataclass(frozen=True, slots=True)
class Content:
    """What is asked: everything that can change the tokens and the tool schemas (or empty) as digests, and what is said of it."""

    content: Digest
    toolset: Digest = ABSENT
    context: Context = field(default_factory=Context)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a request belongs, on which pool, by which scope."""

    pool: ServingPool
    scope: EffectiveScope
    placement: Placement


def ask(keys: GatewayKeys, state: PoolState, *, identity: Identity, placed: Placed) -> Asker:
    """Derive namespace and epochs of a request from verified identity and from where it belongs."""
    pool, scope, placement = placed.pool, placed.scope, placed.placement
    by_class = _targets_by_class(keys.targets, identity, placement)
    cache = state.pool.vector(*_cache_targets(keys.targets, pool, scope))
    shared = state.authorization.vector(*_at_or_above(by_class, placement.scope_class))
    asker = Asker(
        pool=pool,
        scope=scope,
        placement=placement,
        seen=state.heads.seen,
        namespace=namespace(keys.namespace, subject_of(scope, placement, identity)),
        shared=EpochVector.of(dict(cache.entries + shared.entries)),
        all=Epochs(cache, state.authorization.vector(*by_class.values())),
        bypassed=state.pool.flags.bypasses or pool.spec.sharing.stage == "Observe",
    )
    return replace(asker, cache=_cache_of(keys, asker)) if pool.spec.dedicated_to else asker


def _cache_of(keys: GatewayKeys, asker: Asker) -> CacheIdentity:
    """What is asked, and what loaded it, is no part of it."""
    return cache_identity(keys.salt, record(asker, Content(ABSENT), EngineDigests(ABSENT, ABSENT, ABSENT)))


def subject_of(scope: EffectiveScope, placement: Placement, identity: Identity) -> Subject:
    """Whom a class separates: no more than it needs, so that those meet who may, and no less."""
    found = placement.scope_class
    if found is ScopeClass.PUBLIC:
        return Subject(found, scope.uid, sources=placement.sources)
    credential = identity.credential if found.width >= ScopeClass.PRINCIPAL.width else None
    return Subject(found, scope.uid, identity.tenant_uid, placement.compartment, credential)


def _targets_by_class(key: Key, identity: Identity, placement: Placement) -> dict[ScopeClass, TargetName]:
    """The authorization targets of a request, each with the widest class whose caches are its own."""
    tenant, principal = targets_of(key, identity)
    found = {ScopeClass.TENANT: tenant, ScopeClass.PRINCIPAL: principal}
    if placement.compartment is not None:
        found[ScopeClass.COMPARTMENT] = compartment_target(key, identity.tenant_uid, placement.compartment)
    return found


def _at_or_above(targets: dict[ScopeClass, TargetName], scope_class: ScopeClass) -> list[TargetName]:
    return [target for widest, target in targets.items() if widest.width <= scope_class.width]


def compartment_target(key: Key, tenant_uid: str, compartment: str) -> TargetName:
    """A compartment of a tenant, as ledgers name it."""
    return target_name(key, TargetKind.COMPARTMENT, tenant_uid, compartment)


def targets_of(key: Key, identity: Identity) -> tuple[TargetName, TargetName]:
    """The tenant and the principal of an identity, as ledgers name them."""
    who = identity.credential
    return (
        target_name(key, TargetKind.TENANT, identity.tenant_uid),
        target_name(key, TargetKind.PRINCIPAL, identity.tenant_uid, who.kind, who.issuer, who.subject),
    )


def record(asker: Asker, content: Content, loaded: EngineDigests) -> IdentityRecord:
    """The identity record of a request on one endpoint, which loaded the model and the adapter that serve it."""
    return IdentityRecord(
        cache_object="kv",
        pool_uid=asker.pool.uid,
        scope=asker.placement.scope_class,
        namespace=asker.namespace,
        content_digest=content.content,
        engine=loaded,
        prompt_bundle_digest=content.context.prompt_bundle,
        toolset_digest=content.toolset,
        policy_revision=asker.scope.policy_revision,
        lineages=asker.seen.lineages,
        epochs=asker.shared,
        sources=tuple((source.id, source.epoch) for source in content.context.sources),
    )


def reuse_of(asker: Asker, statement: Statement, *, right: bool, cached: bool, proven: bool) -> Reuse:
    """What the cache may do for a request.

    Args:
        asker: Who asks.
        statement: The latest of the chosen guard.
        right: Whether the gateway's own right lasts.
        cached: Whether requests of this route reach the cache at all.
        proven: Whether it was shown that the guard's engine keeps them apart.
    """
    if not cached:
        return Reuse.NONE
    off = asker.bypassed or asker.placement.scope_class is ScopeClass.REQUEST or statement.caching == Caching.OFF.value
    return Reuse.SALTED if right and proven and statement.right_ms and not off else Reuse.FRESH


def salt_of(keys: GatewayKeys, identity_record: IdentityRecord, reuse: Reuse, entropy: Entropy) -> Salt | None:
    """The salt of a record: one that nobody else ever gets, unless it may be reused; `None` where there is no cache."""
    if reuse is Reuse.NONE:
        return None
    return salt(keys.salt, identity_record, None if reuse is Reuse.SALTED else entropy(NONCE_BYTES))


@dataclass(frozen=True, slots=True)
class Engine:
    """The chosen endpoint, the latest statement of its guard, and the adapter that the request asks for, or empty."""

    endpoint: Endpoint
    statement: SignedStatement
    adapter: str = ""

    @property
    def loaded(self) -> EngineDigests:
        """What serves the request there."""
        return self.statement.loaded.serving(self.adapter)


@dataclass(frozen=True, slots=True)
class Upstream:
    """What goes upstream, and where: method, path, exact body, engine."""

    method: str
    path: str
    body: bytes
    engine: Engine


def permit(asker: Asker, identity_record: IdentityRecord, upstream: Upstream, *, reuse: Reuse, permit_id: str) -> Permit:
    """The permit of one request on one guard."""
    statement = upstream.engine.statement
    return Permit(
        id=permit_id,
        pool_uid=asker.pool.uid,
        pod_uid=upstream.engine.endpoint.pod_uid,
        boot_id=statement.boot_id,
        tick=statement.tick,
        method=upstream.method,
        path=upstream.path,
        body_digest=sha256(upstream.body),
        record_digest=identity_record.digest(),
        runtime_digest=statement.engine.runtime,
        adapter_digest=identity_record.engine.adapter,
        cache=asker.cache,
        scope=identity_record.scope,
        epochs=asker.all,
        seen=asker.seen,
        reuse=reuse,
    )


def signing_key(keys: KeyRing, statement: SignedStatement) -> Key:
    """The key for a guard's permits: the one that it is known to hold, unless that was dropped here."""
    return keys.find(statement.key_id) or keys.current


def _cache_targets(key: Key, pool: ServingPool, scope: EffectiveScope) -> tuple[TargetName, TargetName]:
    return target_name(key, TargetKind.POOL, pool.epoch_uid), target_name(key, TargetKind.SCOPE, scope.uid)
