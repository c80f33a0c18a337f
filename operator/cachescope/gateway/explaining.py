"""What the gateway would decide of one request, and which rule set each field of its record: by the code that decides, offline.

Rules:

- policy, placement, record and what the body may hold are the gateway's own; what only a running installation knows (keys, epochs,
  denials, what an engine loaded) is made up, the same each time, and not shown as if it were known: nobody is denied here;
- no salt and no namespace is shown: those that were computed here are nobody's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cachescope.api.pools import ServingPool
from cachescope.api.settings import Settings
from cachescope.core.classes import Reason
from cachescope.core.digests import sha256
from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.ledgers import Ledger, Lineage, Role
from cachescope.core.record import EngineDigests, IdentityRecord
from cachescope.core.scopes import Credential
from cachescope.core.statements import Statement
from cachescope.core.types import Reuse, ScopeClass
from cachescope.engines.facts import EngineType
from cachescope.engines.routes import Route
from cachescope.engines.tables import TABLES
from cachescope.gateway import binding, readings
from cachescope.gateway.admitting import model_not_found
from cachescope.gateway.authorizations import Authorization
from cachescope.gateway.context import Said
from cachescope.gateway.errors import answer
from cachescope.gateway.exchange import Answer
from cachescope.gateway.identity.api_keys import ApiKeys
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.identity.jwt_tokens import JwtTokens
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.ledger_heads import Standings
from cachescope.gateway.placing import placement_of
from cachescope.gateway.policy import Declared, Policy
from cachescope.gateway.snapshot import Snapshot, snapshot_of
from cachescope.gateway.strict_json import Json
from cachescope.gateway.understanding import asked_of
from cachescope.kube.watched import Name

Document = dict[str, Any]

_KINDS: Final = ("ServingPool", "Tenant", "CacheScope", "PublicSource", "Namespace")
_KEY: Final = Key("explained", b"explained, and used by nobody...")
_POOL_LEDGER: Final = Ledger(Role.POOL, Lineage(1, "explained"), 1)
_HEAD: Final = Ledger(Role.AUTHORIZATION, Lineage(1, "explained"), 1)
_LOADED: Final = EngineDigests(*(sha256(name) for name in (b"model", b"tokenizer", b"runtime")))

_BECAUSE: Final[Mapping[Reason, str]] = {
    Reason.SCOPE: "the CacheScope's class, or `Tenant` where none names this tenant and pool",
    Reason.DATA_CLASS: "what the context says of its data, by the CacheScope's classification",
    Reason.COMPARTMENT_NAMED: "the client names a compartment that it is authorized for",
    Reason.HIGH_SENSITIVITY: "the tenant's sensitivity is High",
    Reason.ENGINES_OF_ITS_OWN: "the engines are this tenant's alone",
    Reason.NO_COMPARTMENT: "the class is Compartment, and the credential has not exactly one",
    Reason.NO_CONTEXT: "not public: no application says what the data is",
    Reason.DATA_NOT_PUBLIC: "not public: the context's data class is not `public`",
    Reason.APPLICATION_NOT_LISTED: "not public: not every CacheScope lists the application",
    Reason.NO_SOURCE: "not public: no source is named",
    Reason.SOURCE_NOT_LISTED: "not public: a source is not in `publicSources` of every CacheScope, or does not exist",
    Reason.SOURCE_NOT_USABLE: "not public: a source is not approved now, has expired, or was withdrawn",
    Reason.SOURCE_NOT_SENT: "not public: a source is named and its text is not sent",
    Reason.OTHER_CONTENT: "not public: something is sent that is the text of no source",
    Reason.TOOLSET_NOT_APPROVED: "not public: the tools are no approved toolset",
    Reason.BUNDLE_NOT_APPROVED: "not public: the prompt bundle is not approved",
    Reason.STAGE_NOT_PUBLIC: "not public: the pool's stage is not `Public`",
    Reason.PUBLIC_STOPPED: "not public: an incident stopped public sharing",
}


@dataclass(frozen=True)
class Who:
    """Whose request it is.

    Attributes:
        tenant: Name of the Tenant.
        credential: Whom his credential speaks for.
        compartments: Compartments that his token lists.
    """

    tenant: str
    credential: Credential
    compartments: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Question:
    """One request.

    Attributes:
        namespace: Where the pool is.
        pool: Its name.
        who: Whose request it is.
        path: Where it goes.
        body: Its body.
        said: What its headers say.
        now: Seconds since 1970, by which sources are usable.
        home: The installation's namespace, whose pools may serve others; where the pool is, without it.
    """

    namespace: str
    pool: str
    who: Who
    path: str
    body: dict[str, Json]
    said: Said
    now: float
    home: str = ""


@dataclass(frozen=True)
class Line:
    """One field: its value, and the rule that set it."""

    name: str
    value: str
    rule: str


@dataclass(frozen=True)
class Explanation:
    """What would be decided.

    Attributes:
        verdict: `forwarded`, the name of the refusal, or `other_pool` where the model's name goes to another pool.
        message: What the client would read, of a refusal; which pool it is, of another one.
        scope_class: The class; `None` of a refusal.
        reuse: What the cache may do.
        stripped: Fields of the body that are removed.
        lines: The record, field by field.
        faults: What is wrong with resources that were read.
    """

    verdict: str
    message: str = ""
    scope_class: ScopeClass | None = None
    reuse: Reuse | None = None
    stripped: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    faults: tuple[str, ...] = ()


def explain(documents: Iterable[Document], question: Question, settings: Settings | None = None) -> Explanation:
    """What the gateway would decide.

    Args:
        documents: ServingPools, Tenants, CacheScopes, PublicSources and Namespaces; others are passed over. UIDs may be missing.
        question: The request.
        settings: Those of the installation.

    Raises:
        SpecError: The pool or the tenant is not among the documents, or one of them has no name.
        BadBody: The body cannot be sent to an engine.
    """
    given = settings or Settings()
    found = [_completed(item, question.namespace) for item in documents if item.get("kind") in _KINDS]
    declared, faults = _declared(found, question.home or question.namespace, given)
    snapshot = _snapshot(declared, given)
    try:
        identity = _identity(snapshot.policy, question)
    except SpecError as error:
        raise SpecError("; ".join((str(error), *faults))) from error
    return replace(_decided(snapshot, identity, question), faults=faults)


def _decided(snapshot: Snapshot, identity: Identity, question: Question) -> Explanation:
    asked = asked_of(_route(snapshot.policy, question), question.body, question.said)
    tenant = snapshot.policy.tenants[identity.tenant_uid]
    if tenant.refused:
        return Explanation("permission_denied", "the tenant is suspended, or cannot be read; see spec.suspended and its conditions")
    served = snapshot.policy.models(identity.tenant_uid).get(asked.cleaned.model)
    if served is None:
        return _refused(model_not_found(alone=tenant.high))
    pool = served.pool
    if (pool.namespace, pool.name) != (question.namespace, question.pool):
        return Explanation(
            "other_pool",
            f"the model goes to {pool.namespace}/{pool.name}, which comes before {question.namespace}/{question.pool}; ask of that",
        )
    serving = snapshot.policy.serving(identity.tenant_uid, pool)
    if not serving:
        return _refused(answer("no_endpoint"))
    pool = serving[0]
    placement = placement_of(snapshot, identity, pool, asked.sent, now=question.now)
    if isinstance(placement, Answer):
        return _refused(placement)
    asker = snapshot.askers.of(identity, pool, placement)
    statement = _statement(pool)
    # As once the probe has been there: a file says nothing of processes.
    reuse = binding.reuse_of(asker, statement, right=True, cached=asked.cleaned.route.cached, proven=True)
    record = binding.record(asker, asked.content, statement.loaded.serving(served.adapter))
    lines = tuple(Line(name, show(record, asker), rule) for name, show, rule in _LINES)
    why = "; ".join(_BECAUSE[reason] for reason in placement.reasons)
    first = Line("scope", placement.scope_class.value, why)
    return Explanation("forwarded", "", placement.scope_class, reuse, asked.cleaned.stripped, (first, *lines))


def _refused(refusal: Answer) -> Explanation:
    """A refusal, in the words that the client would read."""
    return Explanation(refusal.reason, json.loads(refusal.body)["error"]["message"])


def _subject(record: IdentityRecord, asker: binding.Asker) -> str:
    """Whom the class separates, in words."""
    parts: dict[ScopeClass, str] = {
        ScopeClass.PUBLIC: f"the sources {', '.join(asker.placement.sources)}",
        ScopeClass.TENANT: "this tenant",
        ScopeClass.COMPARTMENT: "this tenant's compartment",
        ScopeClass.PRINCIPAL: "this principal" + (" in this compartment" if asker.placement.compartment else ""),
        ScopeClass.REQUEST: "this request alone",
    }
    return parts[record.scope]


_Show = Callable[[IdentityRecord, binding.Asker], str]
_LINES: Final[tuple[tuple[str, _Show, str], ...]] = (
    ("cacheObject", lambda record, _: record.cache_object, "prefix blocks of this pool"),
    ("namespace", _subject, "a keyed hash of class, CacheScope and whom the class separates"),
    ("contentDigest", lambda record, _: record.content_digest, "all fields of the body that can change the prompt's tokens"),
    ("modelDigest", lambda *_: "of the chosen engine", "what its guard computed from the files that it loaded"),
    ("tokenizerDigest", lambda *_: "of the chosen engine", "tokenizer and chat template, by the same guard"),
    ("runtimeDigest", lambda *_: "of the chosen engine", "engine, version, hash algorithm and arguments, by the same guard"),
    (
        "adapterDigest",
        lambda record, _: "of the chosen engine" if record.engine.adapter else "none",
        "of the LoRA adapter that `model` names, by the same guard; none where it names the pool's own model",
    ),
    ("promptBundleDigest", lambda record, _: record.prompt_bundle_digest or "none", "`promptBundle` of the context"),
    ("toolsetDigest", lambda record, _: record.toolset_digest or "none", "the tools of the body"),
    (
        "policyRevision",
        lambda record, _: str(record.policy_revision),
        "generation of the CacheScope whose class holds; 1 where none names the tenant and the pool",
    ),
    (
        "authorizationEpoch",
        lambda *_: "as the ledger stands",
        "of tenant, compartment and principal, as far as the class reaches; all of them in the permit",
    ),
    ("cacheEpoch", lambda *_: "as the ledger stands", "of the pool and of the CacheScope"),
    (
        "sources",
        lambda record, _: ", ".join(name if epoch is None else f"{name}@{epoch}" for name, epoch in record.sources) or "none",
        "`sources` of the context",
    ),
)


def _declared(documents: list[Document], home: str, settings: Settings) -> tuple[Declared, tuple[str, ...]]:
    def read(kind: str, reader: Callable[[Document], readings.Reading[Any]]) -> dict[tuple[str, str], readings.Reading[Any]]:
        return {_name(item): readings.whatever(reader)(item) for item in documents if item.get("kind") == kind}

    pools, tenants = read("ServingPool", readings.read_pool), read("Tenant", readings.read_tenant)
    scopes, sources = read("CacheScope", readings.read_scope), read("PublicSource", readings.read_public_source)
    namespaces = read("Namespace", readings.read_namespace)
    by_kind = dict(zip(_KINDS, (pools, tenants, scopes, sources, namespaces), strict=True))
    faults = tuple(
        f"{kind} {name[0]}/{name[1]}: {reading.fault}"
        for kind, items in by_kind.items()
        for name, reading in items.items()
        if reading.fault
    )
    declared = Declared(
        pools=[item.value for item in pools.values() if item.value],
        tenants=[item.value for item in tenants.values() if item.value],
        scopes=[item.value for item in scopes.values() if item.value],
        sources={name: item.value for name, item in sources.items() if item.value},
        sealed=frozenset(name[0] for name, item in scopes.items() if item.value is None),
        namespaces={name[1]: reading.value or {} for name, reading in namespaces.items()},
        home=home,
        shared=frozenset(settings.shared_pool_namespaces),
    )
    return declared, faults


def _snapshot(declared: Declared, settings: Settings) -> Snapshot:
    policy, keys = Policy(declared), GatewayKeys(KeyRing.of(_KEY), _KEY)
    authorization = Authorization(_HEAD)
    standings = Standings(
        {Name(pool.namespace, pool.name): _POOL_LEDGER for pool in policy.pools.values()},
        {pool.namespace: authorization for pool in policy.pools.values()},
    )
    nobody = Authenticator(ApiKeys({}), JwtTokens([], [], lambda: 0.0))
    return snapshot_of(settings, policy, keys, standings=standings, authenticator=nobody)


def _route(policy: Policy, question: Question) -> Route:
    """The route of the pool's engine.

    Raises:
        SpecError: It has none of that path.
    """
    named = [pool for pool in policy.pools.values() if (pool.namespace, pool.name) == (question.namespace, question.pool)]
    engine = EngineType(named[0].spec.engine.type) if named else EngineType.VLLM
    route = TABLES[engine].get(("POST", question.path))
    if route is None:
        known = ", ".join(sorted(known for _, known in TABLES[engine]))
        raise SpecError(f"{question.path} is no route of {engine.value}; a client would read 404. Routes: {known}")
    return route


def _identity(policy: Policy, question: Question) -> Identity:
    if not any((pool.namespace, pool.name) == (question.namespace, question.pool) for pool in policy.pools.values()):
        raise SpecError(f"the pool {question.namespace}/{question.pool} is not among the resources; name the file that holds it")
    who = question.who
    found = [tenant for tenant in policy.tenants.values() if tenant.name == who.tenant]
    if len(found) != 1:
        raise SpecError(f"{len(found)} Tenants among the resources are named {who.tenant}; name the files of one namespace")
    return Identity(found[0].uid, who.credential, compartments=who.compartments)


def _statement(pool: ServingPool) -> Statement:
    adapters = {adapter.name: sha256(adapter.name.encode()) for adapter in pool.spec.engine.adapters}
    made = Statement("explained", pool.uid, "pod", "boot", 0, _LOADED, "explained", 1, "explained", 1, right_ms=1, version="0.0.0")
    return replace(made, adapters=adapters)


def _completed(document: Document, namespace: str) -> Document:
    """A document with what the API server would have given it.

    Raises:
        SpecError: It has no name.
    """
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise SpecError(f"a {document['kind']} among the resources has no metadata with a name; correct the file that holds it")
    given = {"namespace": namespace, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    made = {**document, "metadata": given}
    uid = sha256("/".join((str(document.get("kind")), *_name(made))).encode()).removeprefix("sha256:")
    return {**made, "metadata": {"uid": uid, **given}}


def _name(document: Document) -> tuple[str, str]:
    metadata = document.get("metadata", {})
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
