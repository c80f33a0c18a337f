"""Signed documents: small JSON objects with a MAC, as they travel in headers between gateway and guard.

Form: `v1.<key id>.<payload>.<mac>`, payload and MAC in URL-safe base64 without padding. The MAC covers the purpose, the
version, the key id and the payload's exact bytes, so that a document of one purpose is worthless for another. Readers accept the
current version and the one before it. A payload may be deflated (RFC 1950): the MAC covers it as it travels, so that nothing is
inflated that nobody signed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from cachescope.core.encodings import decode, encode, inflated
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing, matches

VERSION = "v1"
READABLE = frozenset({VERSION})
MAX_CHARACTERS = 16_384
_QUICKLY = 1


def sign(key: Key, purpose: str, payload: Mapping[str, Any], *, deflated: bool = False) -> str:
    """Sign a JSON object.

    Args:
        key: The key of this purpose.
        purpose: What the document is, e.g. `permit`.
        payload: A JSON object.
        deflated: Whether to deflate it; for documents of some length.

    Returns:
        ASCII text that fits a header.
    """
    body = json.dumps(payload, separators=(",", ":")).encode()
    body = zlib.compress(body, _QUICKLY) if deflated else body
    mac = key.mac("cachescope/signed", purpose, VERSION, key.id, body)
    return f"{VERSION}.{encode(key.id.encode())}.{encode(body)}.{encode(mac)}"


def read_signed(keys: KeyRing, purpose: str, text: str, *, most: int = MAX_CHARACTERS, most_inflated: int = 0) -> dict[str, Any]:
    """Verify a signed document and return its object.

    Args:
        keys: The keys of this purpose.
        purpose: What the document is.
        text: The document.
        most: Its greatest length; what travels in a header is short.
        most_inflated: Greatest length of its payload in bytes if that may be deflated; 0 if it may not.

    Raises:
        WireFormatError: The text is no such document, its key is unknown, or its MAC does not match.
    """
    version, key_id, body, mac = _split(text, most)
    key = keys.find(key_id)
    if key is None:
        raise WireFormatError(f"the {purpose} is signed with an unknown key; check that both sides mount the same key Secret")
    if not matches(mac, key.mac("cachescope/signed", purpose, version, key_id, body)):
        raise WireFormatError(f"the MAC of the {purpose} does not match; only a gateway or guard of this pool can make one")
    return _object(purpose, body, most_inflated)


def without_empty(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A document without those of its members that say nothing.

    For members that came later: a document that has no need of them is written as before there were any, and older readers take it.
    """
    return {name: value for name, value in document.items() if value or name not in names}


def claimed(text: str, *, most: int = MAX_CHARACTERS, most_inflated: int = 0) -> dict[str, Any]:
    """What a signed document says, whoever wrote it: for people to look at, never to act on.

    Raises:
        WireFormatError: The text is no signed document.
    """
    return _object("signed document", _split(text, most)[2], most_inflated)


def key_id_of(text: str, *, most: int = MAX_CHARACTERS) -> str:
    """The id of the key that a signed document names; only of a document that was verified does it say who signed.

    Raises:
        WireFormatError: The text is no signed document.
    """
    return _split(text, most)[1]


def _split(text: str, most: int = MAX_CHARACTERS) -> tuple[str, str, bytes, bytes]:
    parts = text.split(".") if len(text) <= most else []
    if len(parts) != 4:
        raise WireFormatError("a signed document has four parts; send what the gateway made, whole")
    if parts[0] not in READABLE:
        raise WireFormatError(f"the format {parts[0]!r} is not readable here; update the older side")
    try:
        return parts[0], decode(parts[1]).decode(), decode(parts[2]), decode(parts[3])
    except ValueError as error:
        raise WireFormatError("a signed document holds URL-safe base64; send what the gateway made, whole") from error


def _object(what: str, body: bytes, most_inflated: int) -> dict[str, Any]:
    try:
        payload = json.loads(_plain(body, most_inflated) if most_inflated else body)
    except (ValueError, RecursionError, zlib.error):  # whoever holds a key may still sign nonsense
        payload = None
    if not isinstance(payload, dict):
        raise WireFormatError(f"the {what} is not a JSON object; update the older side")
    return payload


def _plain(body: bytes, most: int) -> bytes:
    """A payload that may be deflated; no JSON object begins as a deflated one does."""
    if body.startswith(b"{"):
        return body
    return inflated(body, most)
