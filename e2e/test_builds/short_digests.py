"""A gateway whose digests of records and namespaces of subjects are cut to nothing, so that those of any two requests collide.

`shortened` is the build whose decisions must stay right: salts and handles rest on the whole record. `trusting` rests on the digest
alone, and is the control: with it two tenants share a cache, and anybody's handle matches.
"""

from __future__ import annotations

from collections.abc import Callable

from cachescope.core import handles, salts
from cachescope.core.frames import Field
from cachescope.core.handles import Expectation, Outcome
from cachescope.core.keys import Key
from cachescope.core.record import IdentityRecord
from cachescope.core.scopes import Subject
from cachescope.core.types import Digest, Namespace
from cachescope.gateway import binding

Patch = Callable[[object, str, object], None]
"""Puts something in the place of an attribute; `setattr`, where it need not be undone."""

RECORD, NAMESPACE = Digest("sha256:" + "0" * 64), Namespace("0" * 64)


def shortened(patch: Patch) -> None:
    """Cut the digests."""
    patch(binding, "namespace", _namespace)
    patch(IdentityRecord, "digest", _digest)


def trusting(patch: Patch) -> None:
    """Cut the digests, and compare nothing else."""
    shortened(patch)
    patch(salts, "salted_fields", _digest_alone)
    patch(handles, "compared", _same_digest)


def _namespace(_key: Key, _subject: Subject) -> Namespace:
    return NAMESPACE


def _digest(_record: IdentityRecord) -> Digest:
    return RECORD


def _digest_alone(record: IdentityRecord) -> tuple[Field, ...]:
    return (record.digest(),)


def _same_digest(expected: Expectation, record: IdentityRecord, *, now: float) -> Outcome:
    if now >= expected.expires_at:
        return Outcome.EXPIRED
    return Outcome.MATCHES if expected.record.digest() == record.digest() else Outcome.OTHER_CONTENT
