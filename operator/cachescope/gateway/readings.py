"""What the gateway takes of each object of the Kubernetes API. Pure, and done once for each version of an object.

Rules:

- nothing here raises: what cannot be read is a reading with a fault, and harms nobody but its owner;
- statuses are the operator's words for people and are left out, but for the claims that a Tenant holds;
- a Tenant that cannot be read keeps its claims and is refused, so that none of its credentials falls to another Tenant;
- a ServingPool that cannot be read keeps its model name and is not routable, so that no younger pool takes over who it served;
- a fault in one entry of a Secret is that entry's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cachescope.api.claims import Claim, claims_of, read_claim
from cachescope.api.documents import AnyResource, parse
from cachescope.api.pools import ServingPool
from cachescope.api.scopes import CacheScope
from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.core.log_lines import fault_of
from cachescope.gateway.identity.api_keys import check

Document = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What an object says.

    Attributes:
        value: What can be relied on, or `None`.
        fault: What is wrong with it, or empty.
    """

    value: T | None
    fault: str = ""


class Held(NamedTuple):
    """A claim that a Tenant holds, and since when, in milliseconds since 1970."""

    since: int
    claim: Claim


@dataclass(frozen=True, slots=True)
class KnownTenant:
    """What decisions need of a Tenant.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its UID.
        refused: Whether its credentials are refused: it is suspended, or cannot be read.
        held: The claims that it holds.
    """

    namespace: str
    name: str
    uid: str
    refused: bool
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class KnownPool:
    """A ServingPool, and whether requests may go to it.

    Attributes:
        pool: The pool. Of one that cannot be read only metadata, model name and allowed tenants mean anything.
        readable: Whether all of it is known.
    """

    pool: ServingPool
    readable: bool = True


class KeyEntry(NamedTuple):
    """One API key of a Secret."""

    key_id: str
    hash: str
    principal: str


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


def read_pool(document: Document) -> Reading[KnownPool]:
    """A ServingPool."""
    pool, fault = _parsed(ServingPool, document)
    if pool is None:
        pool = _first(lambda: _unreadable_pool(document, allowed=True), lambda: _unreadable_pool(document, allowed=False))
    return Reading(KnownPool(pool, not fault) if pool else None, fault)


def read_tenant(document: Document) -> Reading[KnownTenant]:
    """A Tenant with the claims that it holds: those that the operator accepted and that it still declares."""
    tenant, fault = _parsed(Tenant, document)
    held = tuple(_held(document, set(claims_of(tenant)) if tenant else None))
    if tenant is None:
        tenant, _ = _parsed(Tenant, {**document, "spec": {"suspended": True}})
    if tenant is None:
        return Reading(None, fault)
    return Reading(KnownTenant(tenant.namespace, tenant.name, tenant.uid, tenant.spec.suspended, held), fault)


def read_scope(document: Document) -> Reading[CacheScope]:
    """A CacheScope."""
    return Reading(*_parsed(CacheScope, document))


def read_ledger(document: Document) -> Reading[Head]:
    """The head in an EpochLedger."""
    try:
        return Reading(parse_head(document.get("spec")))
    except SpecError as error:
        return Reading(None, str(error))


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


def _unreadable_pool(document: Document, *, allowed: bool) -> ServingPool | None:
    model = {"source": _NO_SOURCE, "name": _at(document, "spec", "model", "name")}
    spec: dict[str, Any] = {"model": model, "engine": _NO_ENGINE}
    if allowed:
        spec["allowedTenants"] = _at(document, "spec", "allowedTenants") or {}
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
        entry = KeyEntry(key_id, str(fields["hash"]), str(fields["principal"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # The type alone: the text of the error could quote what somebody stored there by mistake.
        what = type(error).__name__
        raise SpecError(f"{key_id!r} is no API key entry ({what}); make one: `cachescope keys create`") from error
    check(*entry)
    return entry


def _first(*ways: Callable[[], T | None]) -> T | None:
    return next((found for way in ways if (found := way()) is not None), None)


def _at(value: object, *path: str) -> Any:  # noqa: ANN401 - any JSON
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
