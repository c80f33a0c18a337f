"""Binding: from who asks and what is asked to the record, the salt and the permit. Pure; random bytes are passed in.

Rules:

- the salt carries the epochs of the targets at or above the class; the permit carries those of every target of the request, so that
  a revoked principal is refused also where its cache is shared with its tenant;
- the salt is made for what the chosen endpoint loaded, and the permit says so;
- a permit is signed with the key that the guard last signed with: after a rotation the guard may not have the newest one yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cachescope.api.pools import ServingPool
from cachescope.core.digests import sha256
from cachescope.core.endpoints import Endpoint
from cachescope.core.epochs import EpochVector, target_name, vector_at
from cachescope.core.heads import Head
from cachescope.core.keys import Key, KeyRing
from cachescope.core.permits import Permit
from cachescope.core.record import ABSENT, IdentityRecord
from cachescope.core.salts import NONCE_BYTES, salt
from cachescope.core.scopes import Subject, namespace
from cachescope.core.statements import SignedStatement, Statement
from cachescope.core.types import Digest, Namespace, Reuse, Salt, ScopeClass, TargetKind, TargetName
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.policy import EffectiveScope

Entropy = Callable[[int], bytes]
_OF_ONE_PRINCIPAL = frozenset({ScopeClass.PRINCIPAL, ScopeClass.REQUEST})


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, of which pool, under which rule.

    Attributes:
        identity: The verified identity.
        pool: The pool.
        scope: The effective scope.
        head: The epochs that stand for the pool.
        namespace: Whom it separates.
        shared: Epochs of the targets at or above the class; part of the salt.
        all: Epochs of every target of the request; part of the permit.
    """

    identity: Identity
    pool: ServingPool
    scope: EffectiveScope
    head: Head
    namespace: Namespace
    shared: EpochVector
    all: EpochVector


@dataclass(frozen=True, slots=True)
class Content:
    """What is asked, as digests: everything that can change the tokens, and the tool schemas (or empty)."""

    content: Digest
    toolset: Digest = ABSENT


def ask(keys: GatewayKeys, head: Head, *, identity: Identity, pool: ServingPool, scope: EffectiveScope) -> Asker:
    """Derive namespace and epochs of a request from verified identity alone."""
    one_principal = scope.scope_class in _OF_ONE_PRINCIPAL
    subject = Subject(scope.scope_class, scope.uid, identity.tenant_uid, credential=identity.credential if one_principal else None)
    shared, principal = _targets(keys.targets, identity, pool, scope)
    return Asker(
        identity=identity,
        pool=pool,
        scope=scope,
        head=head,
        namespace=namespace(keys.namespace, subject),
        shared=vector_at(head.floors, [*shared, principal] if one_principal else shared),
        all=vector_at(head.floors, [*shared, principal]),
    )


def record(asker: Asker, content: Content, statement: Statement) -> IdentityRecord:
    """The identity record of a request on one endpoint."""
    return IdentityRecord(
        cache_object="kv",
        pool_uid=asker.pool.uid,
        scope=asker.scope.scope_class,
        namespace=asker.namespace,
        content_digest=content.content,
        engine=statement.engine,
        prompt_bundle_digest=ABSENT,
        toolset_digest=content.toolset,
        policy_revision=asker.scope.policy_revision,
        lineage=asker.head.lineage,
        epochs=asker.shared,
    )


def salt_of(keys: GatewayKeys, identity_record: IdentityRecord, entropy: Entropy) -> tuple[Salt, Reuse]:
    """The salt of a record, and what it lets the cache do."""
    if identity_record.scope is ScopeClass.REQUEST:
        return salt(keys.salt, identity_record, entropy(NONCE_BYTES)), Reuse.FRESH
    return salt(keys.salt, identity_record), Reuse.SALTED


@dataclass(frozen=True, slots=True)
class Engine:
    """The chosen endpoint and the latest statement of its guard."""

    endpoint: Endpoint
    statement: SignedStatement


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
        scope=identity_record.scope,
        epochs=asker.all,
        lineage=asker.head.lineage,
        sequence=asker.head.sequence,
        reuse=reuse,
    )


def signing_key(keys: KeyRing, statement: SignedStatement) -> Key:
    """The key for a guard's permits: the one that it is known to hold, unless that was dropped here."""
    return keys.find(statement.key_id) or keys.current


def _targets(key: Key, identity: Identity, pool: ServingPool, scope: EffectiveScope) -> tuple[list[TargetName], TargetName]:
    who = identity.credential
    shared = [
        target_name(key, TargetKind.POOL, pool.uid),
        target_name(key, TargetKind.SCOPE, scope.uid),
        target_name(key, TargetKind.TENANT, identity.tenant_uid),
    ]
    return shared, target_name(key, TargetKind.PRINCIPAL, identity.tenant_uid, who.kind, who.issuer, who.subject)
