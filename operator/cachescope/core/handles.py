"""Handles: what a client expects to find cached, held against what this request really is.

Rules:

- a handle is an expectation and no credential: nothing is decided by it, and a request with a wrong one is served as without any;
- the record of this request is made first, from its own verified context; then every field of both is compared, none by a short
  digest;
- a difference is a miss. Which field differed is counted for operators and never told to the client: it would be an oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from cachescope.core.digests import Plain
from cachescope.core.epochs import EpochVector, epoch
from cachescope.core.errors import SpecError
from cachescope.core.record import EngineDigests, IdentityRecord
from cachescope.core.types import Digest, Namespace, ScopeClass, TargetName

PREFIX = "pc-"
MAX_CHARACTERS = 16_384


class Outcome(str, Enum):
    """What became of a handle that was presented."""

    MATCHES = "Matches"
    UNREADABLE = "Unreadable"
    """It is no handle, was sealed by nobody here, or with a key that is gone."""
    EXPIRED = "Expired"
    NOT_REUSED = "NotReused"
    """Nothing of this request is kept for reuse now."""
    OTHER_SUBJECT = "OtherSubject"
    """It is of another pool, class or namespace: somebody else's."""
    OTHER_ENGINE = "OtherEngine"
    OTHER_CONTENT = "OtherContent"
    OTHER_POLICY = "OtherPolicy"
    OLD_GENERATION = "OldGeneration"
    """Its epochs, or the histories that they belong to, are others, or a new root key came since."""


_REASONS = {
    "cache_object": Outcome.OTHER_SUBJECT,
    "pool_uid": Outcome.OTHER_SUBJECT,
    "scope": Outcome.OTHER_SUBJECT,
    "namespace": Outcome.OTHER_SUBJECT,
    "lineages": Outcome.OLD_GENERATION,
    "epochs": Outcome.OLD_GENERATION,
    "policy_revision": Outcome.OTHER_POLICY,
    "engine": Outcome.OTHER_ENGINE,
    "content_digest": Outcome.OTHER_CONTENT,
    "prompt_bundle_digest": Outcome.OTHER_CONTENT,
    "toolset_digest": Outcome.OTHER_CONTENT,
    "sources": Outcome.OTHER_CONTENT,
}
"""Why a handle misses, by the field that differs; of several the first one here counts."""


@dataclass(frozen=True)
class Expectation:
    """What a handle holds.

    Attributes:
        record: The identity that a prefix was cached under.
        expires_at: Until when it is worth anything, in seconds since 1970.
    """

    record: IdentityRecord
    expires_at: int


def compared(expected: Expectation, record: IdentityRecord, *, now: float) -> Outcome:
    """Hold a handle against a request.

    Args:
        expected: What was presented.
        record: The identity of this request, made from its own context.
        now: The time of day, in seconds since 1970.
    """
    if now >= expected.expires_at:
        return Outcome.EXPIRED
    differing = {item.name for item in fields(IdentityRecord) if getattr(record, item.name) != getattr(expected.record, item.name)}
    return next((reason for name, reason in _REASONS.items() if name in differing), Outcome.MATCHES)


def written(expectation: Expectation) -> dict[str, Plain]:
    """What is sealed."""
    return {"expires_at": expectation.expires_at, "record": expectation.record.fields()}


def read(document: Any) -> Expectation:  # noqa: ANN401 - the parser is where untyped JSON ends
    """What was sealed.

    Raises:
        ValueError: It is of another version.
    """
    try:
        return Expectation(_record(dict(document["record"])), _integer(document["expires_at"]))
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise ValueError(f"the handle is of another version ({error!r}); make a new one") from error


def _record(found: dict[str, Any]) -> IdentityRecord:
    parsed = {
        "scope": ScopeClass(found["scope"]),
        "namespace": Namespace(found["namespace"]),
        "engine": EngineDigests(**{name: Digest(value) for name, value in found["engine"].items()}),
        "lineages": tuple(found["lineages"]),
        "epochs": EpochVector(tuple((TargetName(name), epoch(_integer(value))) for name, value in found["epochs"])),
        "sources": tuple((str(name), None if value is None else _integer(value)) for name, value in found["sources"]),
    }
    return IdentityRecord(**{**found, **parsed})


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no integer")
    return value
