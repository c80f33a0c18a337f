"""Scope classes: whom the cache of one request may be shared with, and why. Pure; the moment is a parameter.

Each rule is an upper bound, and the narrowest of all bounds holds: nothing that a client or an application says widens anything.

1. the class of the CacheScope, which is `Tenant` where none was declared;
2. with a context that names a data class: what the CacheScope's map says of it, and at most the widest class of that data;
3. a compartment that the client names: `Compartment`; one that his credential is not authorized for is refused;
4. a tenant of sensitivity High: `Tenant`;
5. what is `Public` by all of these is so only if everything of the following holds, and is `Tenant` otherwise: a context of an
   application that may send one, with data class `public`; at least one source; every source is in the inventory of the CacheScope
   and usable at this moment; every text of the request is one of the sources, every source is sent, and nothing else is; tools and
   prompt bundle are absent or approved; the pool's stage is `Public`, and no incident stopped public sharing;
6. `Compartment` needs one: the one that is named, or else the only one that the credential is authorized for; without it,
   `Principal`.

A context is refused from whom no CacheScope lists as an application: to pass over it would share what it wants kept apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from cachescope.core.public_sources import Source, Usability
from cachescope.core.record import ABSENT
from cachescope.core.scopes import Credential
from cachescope.core.types import Digest, ScopeClass


class DataClass(str, Enum):
    """What an application says of the data of a request; from what is for everybody to what is for nobody else."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    PERSONAL = "personal"
    SECRET = "secret"  # noqa: S105 - a class of data


WIDEST: Final[Mapping[DataClass, ScopeClass]] = MappingProxyType(
    {
        DataClass.PUBLIC: ScopeClass.PUBLIC,
        DataClass.INTERNAL: ScopeClass.TENANT,
        DataClass.CONFIDENTIAL: ScopeClass.COMPARTMENT,
        DataClass.PERSONAL: ScopeClass.PRINCIPAL,
        DataClass.SECRET: ScopeClass.REQUEST,
    }
)
"""The widest class of each data class, whatever a CacheScope says."""


class Reason(str, Enum):
    """Which rules decided; for the audit line, so a closed list."""

    SCOPE = "Scope"
    DATA_CLASS = "DataClass"
    COMPARTMENT_NAMED = "CompartmentNamed"
    HIGH_SENSITIVITY = "HighSensitivity"
    NO_COMPARTMENT = "NoCompartment"
    NO_CONTEXT = "NoContext"
    DATA_NOT_PUBLIC = "DataNotPublic"
    APPLICATION_NOT_LISTED = "ApplicationNotListed"
    NO_SOURCE = "NoSource"
    SOURCE_NOT_LISTED = "SourceNotListed"
    SOURCE_NOT_USABLE = "SourceNotUsable"
    SOURCE_NOT_SENT = "SourceNotSent"
    OTHER_CONTENT = "OtherContent"
    TOOLSET_NOT_APPROVED = "ToolsetNotApproved"
    BUNDLE_NOT_APPROVED = "BundleNotApproved"
    STAGE_NOT_PUBLIC = "StageNotPublic"
    PUBLIC_STOPPED = "PublicStopped"
    ENGINES_OF_ITS_OWN = "EnginesOfItsOwn"


class Refusal(Enum):
    """Why a request is not placed at all."""

    APPLICATION_NOT_LISTED = "a context comes from an application that no CacheScope lists"
    COMPARTMENT_NOT_AUTHORIZED = "the credential is not authorized for the compartment that is named"
    OTHER_TOOLSET = "the context names another toolset than the tools that are sent"


class NamedSource(NamedTuple):
    """A source as an application names it: a PublicSource, or an artifact of its own with its epoch."""

    id: str
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What a trusted application says of one request.

    Attributes:
        data_class: What its data is, or `None` when it does not say.
        sources: What its texts were taken from.
        prompt_bundle: The prompt bundle that it was made with, or empty.
        toolset: The digest of its tools, or `None` when it does not say.
    """

    data_class: DataClass | None = None
    sources: tuple[NamedSource, ...] = ()
    prompt_bundle: Digest = ABSENT
    toolset: Digest | None = None


@dataclass(frozen=True, slots=True)
class Approved:
    """What may be public; of several CacheScopes, what all of them approve.

    Attributes:
        applications: Who may say so.
        sources: Sources by name.
        bundles: Prompt bundles.
        toolsets: Digests of tool declarations.
    """

    applications: frozenset[Credential] = frozenset()
    sources: Mapping[str, Source] = field(default_factory=dict)
    bundles: frozenset[Digest] = frozenset()
    toolsets: frozenset[Digest] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """The sharing rule of one tenant on one pool.

    Attributes:
        scope_class: The widest class.
        classification: The widest class by data class, where it is narrower than `WIDEST`.
        applications: Who may send a context.
        approved: What may be public.
    """

    scope_class: ScopeClass = ScopeClass.TENANT
    classification: Mapping[DataClass, ScopeClass] = field(default_factory=dict)
    applications: frozenset[Credential] = frozenset()
    approved: Approved = Approved()


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request brings.

    Attributes:
        speakers: The verified credentials that speak for it; one of them may be a listed application's.
        context: What an application says of it, if any does.
        compartment: The compartment that the client names, if it names one.
        authorized: The compartments that it is authorized for.
        texts: Digests of all texts that are sent; `None` when something is sent that is no text of a source.
        toolset: Digest of the tools that are sent, or empty.
    """

    speakers: frozenset[Credential]
    context: Context | None = None
    compartment: str | None = None
    authorized: frozenset[str] = frozenset()
    texts: frozenset[Digest] | None = None
    toolset: Digest = ABSENT


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What holds at this moment.

    Attributes:
        now: Seconds since 1970.
        public_stage: Whether the pool's stage allows public sharing.
        public_stopped: Whether an incident stopped it.
        high: Whether the tenant is of sensitivity High.
        own_engines: Whether the pool is this tenant's alone, so that there is nobody to share with.
    """

    now: float
    public_stage: bool = False
    public_stopped: bool = False
    high: bool = False
    own_engines: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request belongs.

    Attributes:
        scope_class: Its class.
        compartment: Its compartment, where the class is `Compartment` or narrower and there is one.
        sources: Sorted digests of its public sources; of class `Public` alone.
        reasons: Which rules made it so; not part of what separates.
    """

    scope_class: ScopeClass
    compartment: str | None = None
    sources: tuple[Digest, ...] = ()
    reasons: tuple[Reason, ...] = field(default=(), compare=False)


class _Bound(NamedTuple):
    scope_class: ScopeClass
    reason: Reason


def place(rule: Rule, asked: Asked, around: Circumstances) -> Placement | Refusal:
    """Where a request belongs, or why it belongs nowhere.

    Args:
        rule: What is declared for its tenant on its pool.
        asked: What it brings.
        around: What holds at this moment.
    """
    refusal = _refusal(rule, asked)
    if refusal is not None:
        return refusal
    bounds = list(_bounds(rule, asked, around))
    if _narrowest(bounds) is ScopeClass.PUBLIC:
        bounds += [_Bound(ScopeClass.TENANT, reason) for reason in _lacking(rule.approved, asked, around)]
    compartment = asked.compartment or _only(asked.authorized)
    if _narrowest(bounds) is ScopeClass.COMPARTMENT and compartment is None:
        bounds.append(_Bound(ScopeClass.PRINCIPAL, Reason.NO_COMPARTMENT))
    found = _narrowest(bounds)
    return Placement(
        scope_class=found,
        compartment=compartment if found.width >= ScopeClass.COMPARTMENT.width else None,
        sources=_digests(rule.approved, asked.context) if found is ScopeClass.PUBLIC else (),
        reasons=tuple(dict.fromkeys(bound.reason for bound in bounds if bound.scope_class is found)),
    )


def narrowest(classes: Iterable[ScopeClass]) -> ScopeClass:
    """The narrowest of some classes; `Public` bounds nothing."""
    return max(classes, key=lambda item: item.width, default=ScopeClass.PUBLIC)


def _refusal(rule: Rule, asked: Asked) -> Refusal | None:
    if asked.context is not None and not asked.speakers & rule.applications:
        return Refusal.APPLICATION_NOT_LISTED
    if asked.compartment is not None and asked.compartment not in asked.authorized:
        return Refusal.COMPARTMENT_NOT_AUTHORIZED
    named = asked.context.toolset if asked.context else None
    return Refusal.OTHER_TOOLSET if named is not None and named != asked.toolset else None


def _bounds(rule: Rule, asked: Asked, around: Circumstances) -> Iterator[_Bound]:
    """Rules 1 to 4."""
    yield _Bound(rule.scope_class, Reason.SCOPE)
    if asked.context is not None and asked.context.data_class is not None:
        data_class = asked.context.data_class
        widest = WIDEST[data_class]
        yield _Bound(narrowest([widest, rule.classification.get(data_class, widest)]), Reason.DATA_CLASS)
    if asked.compartment is not None:
        yield _Bound(ScopeClass.COMPARTMENT, Reason.COMPARTMENT_NAMED)
    if around.high:
        yield _Bound(ScopeClass.TENANT, Reason.HIGH_SENSITIVITY)
    if around.own_engines:
        yield _Bound(ScopeClass.TENANT, Reason.ENGINES_OF_ITS_OWN)


def _lacking(approved: Approved, asked: Asked, around: Circumstances) -> Iterator[Reason]:
    """Rule 5: all that a request lacks for being public."""
    if not around.public_stage:
        yield Reason.STAGE_NOT_PUBLIC
    if around.public_stopped:
        yield Reason.PUBLIC_STOPPED
    context = asked.context
    if context is None:
        yield Reason.NO_CONTEXT
        return
    if not asked.speakers & approved.applications:
        yield Reason.APPLICATION_NOT_LISTED
    if context.data_class is not DataClass.PUBLIC:
        yield Reason.DATA_NOT_PUBLIC
    if context.prompt_bundle and context.prompt_bundle not in approved.bundles:
        yield Reason.BUNDLE_NOT_APPROVED
    if asked.toolset and asked.toolset not in approved.toolsets:
        yield Reason.TOOLSET_NOT_APPROVED
    yield from _sources_lacking(approved, context, around.now)
    yield from _texts_lacking(frozenset(_digests(approved, context)), asked.texts)


def _sources_lacking(approved: Approved, context: Context, now: float) -> Iterator[Reason]:
    if not context.sources:
        yield Reason.NO_SOURCE
    if any(named.id not in approved.sources for named in context.sources):
        yield Reason.SOURCE_NOT_LISTED
    known = [approved.sources[named.id] for named in context.sources if named.id in approved.sources]
    if any(source.usability(now) is not Usability.APPROVED for source in known):
        yield Reason.SOURCE_NOT_USABLE


def _texts_lacking(sources: frozenset[Digest], texts: frozenset[Digest] | None) -> Iterator[Reason]:
    if texts is None or texts - sources:
        yield Reason.OTHER_CONTENT
    if texts is None or sources - texts:
        yield Reason.SOURCE_NOT_SENT


def _digests(approved: Approved, context: Context | None) -> tuple[Digest, ...]:
    named = context.sources if context else ()
    return tuple(sorted({approved.sources[item.id].digest for item in named if item.id in approved.sources}))


def _narrowest(bounds: Iterable[_Bound]) -> ScopeClass:
    return narrowest(bound.scope_class for bound in bounds)


def _only(compartments: frozenset[str]) -> str | None:
    return next(iter(compartments)) if len(compartments) == 1 else None
