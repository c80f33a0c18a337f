"""What the gateway takes of each object of the Kubernetes API. Pure, and done once for each version of an object.

Rules:

- nothing here raises: what cannot be read is a reading with a fault, and harms nobody but its owner;
- statuses are the operator's words for people and are left out, but for the claims that a Tenant holds, and for what was proven of
  a ServingPool's processes;
- a Tenant that cannot be read keeps its claims and is refused, so that none of its credentials falls to another Tenant;
- a ServingPool that cannot be read keeps the names of its model and adapters and is not routable, so that no younger pool takes
  over who it served;
- a PublicSource that cannot be read is none: its text is not public;
- a fault in one entry of a Secret is that entry's.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cachescope.api.claims import Claim, claims_of, read_claim
from cachescope.api.documents import AnyResource, parse
from cachescope.api.pools import ServingPool
from cachescope.api.public_sources import PublicSource
from cachescope.api.scopes import CacheScope
from cachescope.api.tenants import Compartments, Tenant
from cachescope.core.adapters import served_names
from cachescope.core.errors import SpecError
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledger_seals import witness
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, Role, is_shard
from cachescope.core.log_lines import fault_of
from cachescope.core.policy_digest import element, policy_items
from cachescope.core.public_sources import Source
from cachescope.core.scopes import Credential
from cachescope.engines.facts import Mode
from cachescope.engines.pool_modes import choice_of
from cachescope.gateway.identity.api_keys import check
from cachescope.gateway.proofs import NO_PROOFS, Proofs, read_proofs

Document = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What an object says.

    Attributes:
        value: What can be relied on, or `None`.
        fault: What is wrong with it, or empty.
        element: Of an object that policy is compiled from: what it adds to the digest of its kind (`core.policy_digest`).
    """

    value: T | None
    fault: str = ""
    element: int = field(default=0, repr=False)


class Held(NamedTuple):
    """A claim that a Tenant holds, and since when, in milliseconds since 1970."""

    since: int
    claim: Claim


@dataclass(frozen=True, slots=True)
class KnownCompartments:
    """Who is authorized for which compartments of a Tenant.

    Attributes:
        claim: The claim of its tokens that lists them, or empty.
        members: Compartments by principal, beside those of the claim.
    """

    claim: str = ""
    members: Mapping[Credential, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownTenant:
    """What decisions need of a Tenant.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its UID.
        refused: Whether its credentials are refused: it is suspended, or cannot be read.
        held: The claims that it holds.
        high: Whether it shares no pool, and nothing is decided for it without a right (`sensitivity: High`).
        compartments: Who is authorized for which of its compartments.
    """

    namespace: str
    name: str
    uid: str
    refused: bool
    held: tuple[Held, ...]
    high: bool = False
    compartments: KnownCompartments = KnownCompartments()


@dataclass(frozen=True, slots=True)
class KnownPool:
    """A ServingPool, and whether requests may go to it.

    Attributes:
        pool: The pool. Of one that cannot be read only metadata, names of model and adapters, and allowed tenants mean anything.
        readable: Whether all of it is known.
        template: Whether each tenant has a pool of its own in its place.
        routes: Paths that may be routed to its engines; `None` for all that its engine serves.
        proofs: What was proven of its processes.
    """

    pool: ServingPool
    readable: bool = True
    template: bool = False
    routes: frozenset[str] | None = None
    proofs: Proofs = NO_PROOFS


@dataclass(frozen=True, slots=True)
class KnownLedger:
    """A ledger, and of an authorization head the copy that leases carry as a witness."""

    ledger: Ledger
    witness: Mapping[str, Any] | None = None


class KeyEntry(NamedTuple):
    """One API key of a Secret; `created` are seconds since 1970, where it says so."""

    key_id: str
    hash: str
    principal: str
    created: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseText:
    """The signed statement of a FenceLease; worth nothing before it is verified."""

    statement: str


_NO_SOURCE: Final = {"imagePath": "/"}
_NO_ENGINE: Final = {"version": "0.0.0", "image": "unreadable"}


def whatever(read: Callable[[dict[str, Any]], Reading[T]]) -> Callable[[dict[str, Any]], Reading[T]]:
    """A reader for which what nobody thought of is a fault of that object, and no end of the gateway."""

    def careful(document: dict[str, Any]) -> Reading[T]:
        try:
            return read(document)
        except Exception as error:
            where = fault_of(error)
            return Reading(None, f"it cannot be read ({where['error']} in {where['where']}); report this with the object")

    return careful


def of_policy(kind: str, read: Callable[[dict[str, Any]], Reading[T]]) -> Callable[[dict[str, Any]], Reading[T]]:
    """A reader of a kind that policy is compiled from: a reading also says what the object adds to the digest of its kind."""

    def counted(document: dict[str, Any]) -> Reading[T]:
        # Counted also when it cannot be read: the operator counts it too.
        return replace(whatever(read)(document), element=element(policy_items(kind, document)))

    return counted


def read_pool(document: Document) -> Reading[KnownPool]:
    """A ServingPool."""
    pool, fault = _parsed(ServingPool, document)
    if pool is not None:
        return Reading(_known_pool(pool, read_proofs(document.get("status"))), fault)
    pool = _unreadable_pool(document)
    return Reading(KnownPool(pool, readable=False) if pool else None, fault)


def _known_pool(pool: ServingPool, proofs: Proofs) -> KnownPool:
    """A pool, with what follows from its spec: worked out once for each version of it."""
    choice = choice_of(pool)
    routes = None if choice.routes is None else frozenset(choice.routes)
    template = pool.spec.dedicated_to is None and choice.mode is Mode.PER_TENANT
    return KnownPool(pool, template=template, routes=routes, proofs=proofs)


def read_tenant(document: Document) -> Reading[KnownTenant]:
    """A Tenant with the claims that it holds: those that the operator accepted and that it still declares."""
    tenant, fault = _parsed(Tenant, document)
    held = tuple(_held(document, set(claims_of(tenant)) if tenant else None))
    if tenant is None:
        tenant, _ = _parsed(Tenant, {**document, "spec": {"suspended": True}})
    if tenant is None:
        return Reading(None, fault)
    spec = tenant.spec
    known = KnownTenant(
        tenant.namespace,
        tenant.name,
        tenant.uid,
        spec.suspended,
        held,
        spec.sensitivity == "High",
        _compartments(spec.compartments),
    )
    return Reading(known, fault)


def read_scope(document: Document) -> Reading[CacheScope]:
    """A CacheScope."""
    return Reading(*_parsed(CacheScope, document))


def read_public_source(document: Document) -> Reading[Source]:
    """A PublicSource."""
    source, fault = _parsed(PublicSource, document)
    return Reading(source.source() if source else None, fault)


def read_ledger(document: Document) -> Reading[KnownLedger]:
    """The state in an EpochLedger, which is for what its name says."""
    spec, name = document.get("spec"), _at(document, "metadata", "name")
    try:
        ledger = parse_ledger(spec)
    except SpecError as error:
        return Reading(None, str(error))
    if ledger.role is not role_of(str(name)):
        return Reading(None, f"its role is {ledger.role.value}, which is not what its name says; the operator deals with it")
    return Reading(KnownLedger(ledger, witness(spec) if ledger.role is Role.AUTHORIZATION and spec else None))


def role_of(name: str) -> Role:
    """What a ledger of that name is for."""
    if is_shard(name):
        return Role.SHARD
    return Role.AUTHORIZATION if name == AUTHORIZATION_HEAD else Role.POOL


def read_lease(document: Document) -> Reading[LeaseText]:
    """The statement in a FenceLease."""
    statement = _at(document, "spec", "statement")
    return Reading(LeaseText(statement)) if isinstance(statement, str) else Reading(None, "the lease holds no statement")


def read_namespace(document: Document) -> Reading[dict[str, str]]:
    """The labels of a namespace."""
    labels = _at(document, "metadata", "labels") or {}
    return Reading({str(name): str(value) for name, value in labels.items()})


def read_secret(document: Document) -> Reading[tuple[KeyEntry, ...]]:
    """The API keys of a Secret."""
    entries, faults = [], []
    for key_id, content in sorted((document.get("data") or {}).items()):
        try:
            entries.append(_entry(key_id, content))
        except SpecError as error:
            faults.append(str(error))
    return Reading(tuple(entries), "; ".join(faults))


def _parsed(kind: type[AnyResource], document: Document) -> tuple[AnyResource | None, str]:
    try:
        return parse(kind, {name: value for name, value in document.items() if name != "status"}, "the API"), ""
    except SpecError as error:
        return None, str(error)


def _compartments(declared: Compartments) -> KnownCompartments:
    found: defaultdict[Credential, set[str]] = defaultdict(set)
    for item in declared.members:
        for who in item.principals:
            found[Credential(who.kind, who.issuer, who.subject)].add(item.name)
    return KnownCompartments(declared.claim, {who: frozenset(names) for who, names in found.items()})


def _unreadable_pool(document: Document) -> ServingPool | None:
    """What can be relied on of a pool; `None` for one that not even serves a name."""
    name = _at(document, "spec", "model", "name")
    model = {"source": _NO_SOURCE, "name": name}
    adapters = [{"source": _NO_SOURCE, "name": served} for served in served_names(document) if served != name]
    engine = {**_NO_ENGINE, "adapters": adapters}
    allowed = {"allowedTenants": _at(document, "spec", "allowedTenants") or {}}
    ways = [{"model": model, "engine": engine, **more} for more in (allowed, {})]
    return _first(*(partial(_spec_of_a_pool, document, spec) for spec in ways))


def _spec_of_a_pool(document: Document, spec: Document) -> ServingPool | None:
    return _parsed(ServingPool, {**document, "spec": spec})[0]


def _held(document: Document, declared: set[str] | None) -> Iterable[Held]:
    """The accepted claims; of a Tenant that can be read, those that it declares no more are not its any longer."""
    accepted = _at(document, "status", "accepted")
    for item in accepted if isinstance(accepted, list) else []:
        text, since = _at(item, "claim"), _at(item, "since")
        try:
            claim = read_claim(text) if isinstance(text, str) and isinstance(since, int) else None
        except SpecError:
            claim = None  # written by a newer operator: it is worth nothing here, and takes nothing from anybody
        if claim is not None and (declared is None or str(claim) in declared):
            yield Held(since, claim)


def _entry(key_id: str, content: str) -> KeyEntry:
    try:
        fields = json.loads(base64.b64decode(content, validate=True))
        entry = KeyEntry(key_id, _text(fields["hash"]), _text(fields["principal"]), _created(fields.get("created")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # The type alone: the text of the error could quote what somebody stored there by mistake.
        what = type(error).__name__
        raise SpecError(f"{key_id!r} is no API key entry ({what}); make one: `cachescope keys create`") from error
    check(key_id, entry.hash, entry.principal)
    return entry


def _text(value: object) -> str:
    """Two keys for `null` would otherwise be of one principal, named after what Python calls it."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _created(seconds: object) -> int | None:
    if seconds is not None and (type(seconds) is not int or seconds < 0):
        raise TypeError
    return seconds


def _first(*ways: Callable[[], T | None]) -> T | None:
    return next((found for way in ways if (found := way()) is not None), None)


def _at(value: object, *path: str) -> Any:  # noqa: ANN401 - any JSON
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
