"""Bytes as they travel in headers: URL-safe base64 without padding (RFC 4648, 5), and deflated content (RFC 1950), bounded."""

from __future__ import annotations

import base64
import re
import zlib

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_BASE64 = re.compile(r"[A-Za-z0-9_-]*\Z")
_LAST: tuple[frozenset[str], ...] = (frozenset(_ALPHABET) | {""}, frozenset(), frozenset("AQgw"), frozenset(_ALPHABET[::4]))
"""By length modulo four, the characters that can end a text whose unused bits are zero."""


def encode(content: bytes) -> str:
    """The one text of some bytes."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The bytes of a text.

    Raises:
        ValueError: It is not in the form that `encode` gives.
    """
    if not _BASE64.match(text) or text[-1:] not in _LAST[len(text) % 4]:
        raise ValueError("not URL-safe base64 in its one form")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def inflated(content: bytes, most: int) -> bytes:
    """Deflated content, of at most so many bytes.

    Raises:
        ValueError: It is cut, goes on, or is longer.
        zlib.error: It is not deflated.
    """
    inflating = zlib.decompressobj()
    found = inflating.decompress(content, most)
    if not inflating.eof or inflating.unused_data:
        raise ValueError("the content is cut, goes on, or is too long")
    return found
