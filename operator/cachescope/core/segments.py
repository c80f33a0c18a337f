"""Segmented salts: one request, several scopes, from the widest to the narrowest.

Form: `cs1.<set>.<class><segment>.<class><segment>…`, with two to four segments, 60 to 108 characters of those that engines accept.

Rules:

- a segment is labelled by its class, a digit from `0` (`Public`) to `4` (`Request`); the digits rise, so that there is one order,
  no class comes twice, and whatever is shared comes before what is not;
- the last segment is the request's own class, which bounds it wherever nothing is approved; it is never `Public`;
- a segment is 128 bits of HMAC-SHA-256 over what a salt of that class is made of, under a purpose of its own: no salt is a segment;
- the salt says who may share, and never how much: how many blocks are approved for a class is found by the engine (`approvals`);
- each segment enters the chain of blocks exactly once, at the first block that is not approved for the class before it;
- whatever is not exactly of this form is no segmented salt. To an engine that knows of none, the whole text is one opaque salt,
  which separates as its last segment does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from cachescope.core.digests import sha256
from cachescope.core.encodings import decode, encode
from cachescope.core.errors import WireFormatError
from cachescope.core.frames import frame
from cachescope.core.keys import Key
from cachescope.core.record import IdentityRecord
from cachescope.core.salts import checked_nonce, salted_fields
from cachescope.core.types import Salt, ScopeClass

PREFIX = "cs1."
SEGMENT_BYTES = 16
LEAST_SEGMENTS, MOST_SEGMENTS = 2, 4
MAX_CHARACTERS = 108

_CLASSES = tuple(sorted(ScopeClass, key=lambda item: item.width))
_SET_HEX = 12
_FORM = re.compile(r"cs1\.[A-Za-z0-9_-]{8}(?:\.[0-4][A-Za-z0-9_-]{22}){2,4}\Z")
_SET = re.compile(r"[A-Za-z0-9_-]{8}\Z")


@dataclass(frozen=True, slots=True, repr=False)
class Segment:
    """What one class contributes.

    Attributes:
        scope: The class.
        value: 22 characters of URL-safe base64. A secret; it is never logged.
    """

    scope: ScopeClass
    value: str

    def __repr__(self) -> str:
        """The class alone."""
        return f"Segment({self.scope.value})"


@dataclass(frozen=True, slots=True, repr=False)
class SegmentedSalt:
    """Who may share the parts of one request.

    Attributes:
        approvals: Name of the set of approvals that holds for it (`approval_set`).
        segments: Two to four, from the widest class to the narrowest.
    """

    approvals: str
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        """Refuse what has no place in a chain.

        Raises:
            ValueError: It is not of the one form.
        """
        widths = [segment.scope.width for segment in self.segments]
        if not LEAST_SEGMENTS <= len(widths) <= MOST_SEGMENTS:
            raise ValueError(f"a segmented salt has {LEAST_SEGMENTS} to {MOST_SEGMENTS} segments, not {len(widths)}")
        if any(left >= right for left, right in pairwise(widths)):
            raise ValueError("segments come from the widest class to the narrowest, each once; sort them")
        if not _SET.match(self.approvals):
            raise ValueError("a set of approvals is named by 8 characters; use approval_set")
        if not all(_is_segment(segment.value) for segment in self.segments):
            raise ValueError(f"a segment is {SEGMENT_BYTES} bytes in URL-safe base64; use segment")

    def __repr__(self) -> str:
        """The classes alone; no value ever reaches a log."""
        return f"SegmentedSalt({', '.join(segment.scope.value for segment in self.segments)})"


def approval_set(scope_uid: str) -> str:
    """Name of the approvals of one CacheScope: 8 characters. It is no secret."""
    return encode(bytes.fromhex(sha256(frame("cachescope/approval-set/v1", scope_uid)).removeprefix("sha256:")[:_SET_HEX]))


def segment(key: Key, record: IdentityRecord, nonce: bytes | None = None) -> Segment:
    """The segment of a class.

    Args:
        key: The salt key; its id is part of the segment.
        record: The request's identity, as it is for this class.
        nonce: 16 fresh random bytes to share with nobody; required for `Request` scope.

    Raises:
        ValueError: The nonce is missing for `Request` scope, or too short.
    """
    checked_nonce(record, nonce)
    mac = key.mac("cachescope/segment/v1", key.id, salted_fields(record), nonce)
    return Segment(record.scope, encode(mac[:SEGMENT_BYTES]))


def write_segmented(salt: SegmentedSalt) -> Salt:
    """The text of a segmented salt, as the engine takes it."""
    parts = (f"{segment.scope.width}{segment.value}" for segment in salt.segments)
    return Salt(f"{PREFIX}{salt.approvals}.{'.'.join(parts)}")


def read_segmented(text: str) -> SegmentedSalt:
    """Read what `write_segmented` wrote, and nothing else.

    Raises:
        WireFormatError: It is no segmented salt. The text stays out of the message.
    """
    if not _FORM.match(text):
        raise WireFormatError("no segmented salt; the engine takes the whole text for one salt")
    _, approvals, *parts = text.split(".")
    try:
        return SegmentedSalt(approvals, tuple(Segment(_CLASSES[int(part[0])], part[1:]) for part in parts))
    except ValueError as error:
        raise WireFormatError("no segmented salt: its segments are not in the one form and order") from error


def entries(salt: SegmentedSalt, approved: Mapping[ScopeClass, int]) -> tuple[int, ...]:
    """Where each segment enters the chain: the number of the block, from 0.

    A narrower class never shares less than a wider one: what everybody may share, a tenant may.

    Args:
        salt: The segments.
        approved: How many blocks from the first are approved for a class; none if it is not there.

    Returns:
        A number for each segment; they never fall, and the first is 0.
    """
    found = [0]
    for wider in salt.segments[:-1]:
        found.append(max(found[-1], approved.get(wider.scope, 0)))
    return tuple(found)


def _is_segment(value: str) -> bool:
    try:
        return len(decode(value)) == SEGMENT_BYTES
    except ValueError:
        return False
