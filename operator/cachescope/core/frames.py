"""Length-framed encoding of field lists: the only input that a MAC or a keyed hash of the project ever takes.

Rules:

- every value carries its type and its length, so that no two different field lists have the same bytes;
- the first field of a frame that is hashed names its purpose and version, so that no two purposes share an input.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

Field = str | bytes | int | None | Sequence["Field"]
"""What a frame can hold. `bool` is refused: it would be taken for an integer."""

_LENGTH = struct.Struct(">Q").pack


def frame(*fields: Field) -> bytes:
    """Encode a list of fields without any collision.

    Args:
        *fields: Text (UTF-8), bytes, integers, `None`, or lists and tuples of those, nested at will.

    Returns:
        The bytes of the list: tag `L`, the number of fields (8 bytes, big endian), then every field.

    Raises:
        TypeError: A field is of another type; convert it where its meaning is known.
    """
    return b"L" + _LENGTH(len(fields)) + b"".join(map(_encode, fields))


def _encode(field: Field) -> bytes:
    if isinstance(field, str):
        return _tagged(b"S", field.encode())
    if isinstance(field, bytes):
        return _tagged(b"B", field)
    if field is None:
        return b"N"
    if isinstance(field, int) and not isinstance(field, bool):
        return _tagged(b"I", str(field).encode())
    if isinstance(field, (list, tuple)):
        return frame(*field)
    raise TypeError(f"a frame holds text, bytes, integers, None and lists, not {type(field).__name__}; convert it first")


def _tagged(tag: bytes, payload: bytes) -> bytes:
    return tag + _LENGTH(len(payload)) + payload
