"""Digests over canonical JSON (RFC 8785) of values without floating-point numbers.

For text, integers of at most 53 bits, booleans, lists and objects whose names are ASCII, the standard library's sorted compact
form is the canonical form; anything else is refused here. Documents with floating-point numbers are canonicalised by a library at
the edge, and arrive as digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from cachescope.core.types import Digest

Plain = str | int | bool | None | Sequence["Plain"] | Mapping[str, "Plain"]
"""A JSON value without floating-point numbers."""

_MAX_INTEGER = 2**53 - 1


def canonical(value: Plain) -> bytes:
    """Encode a plain value as canonical JSON.

    Raises:
        ValueError: A number, a name or a character has no canonical form here; keep it out of the record.
    """
    _check(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(content: bytes) -> Digest:
    """The digest of bytes: `sha256:` and 64 hexadecimal digits."""
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


def digest(value: Plain) -> Digest:
    """The digest of a plain value's canonical JSON."""
    return sha256(canonical(value))


def _check(value: Plain) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str) or not name.isascii():
                raise ValueError(f"the name {name!r} is not ASCII text; rename the field")
            _check(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item)
    elif isinstance(value, float):
        raise ValueError("a floating-point number has no canonical form here; pass its digest instead")
    elif isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise ValueError(f"the integer {value} is above 2**53 - 1; pass it as text")
