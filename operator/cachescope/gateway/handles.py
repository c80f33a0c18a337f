"""Handles on their way: sealed, so that a client can neither read nor change what it holds, and kept nowhere.

Form: `pc-<key id>.<nonce and ciphertext>`, both in URL-safe base64 without padding; AES-256-GCM (NIST SP 800-38D) with a random
nonce of 96 bits over the deflated JSON of `core.handles`. The purpose and the key id are authenticated beside it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cachescope.core import handles
from cachescope.core.encodings import decode, encode, inflated
from cachescope.core.frames import frame
from cachescope.core.handles import MAX_CHARACTERS, PREFIX, Expectation, Outcome
from cachescope.core.keys import Key, KeyRing
from cachescope.core.record import IdentityRecord

_HANDLE = re.compile(re.escape(PREFIX) + r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_NONCE_BYTES = 12
_MOST_INFLATED = 16 * MAX_CHARACTERS


class Unreadable(ValueError):  # noqa: N818 - says what it is
    """Nobody here sealed it, or not in this version."""


def seal(key: Key, expectation: Expectation, entropy: Callable[[int], bytes]) -> str:
    """Seal a handle.

    Args:
        key: The key of handles.
        expectation: What it holds.
        entropy: Gives random bytes.
    """
    nonce = entropy(_NONCE_BYTES)
    plain = zlib.compress(json.dumps(handles.written(expectation), separators=(",", ":")).encode())
    return f"{PREFIX}{encode(key.id.encode())}.{encode(nonce + AESGCM(key.secret).encrypt(nonce, plain, _beside(key)))}"


def _opened(keys: KeyRing, text: str) -> tuple[Key, Expectation]:
    match = _HANDLE.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise Unreadable("it has not the form of a handle")
    try:
        key = keys.find(decode(match[1]).decode())
        sealed = decode(match[2])
        if key is None or len(sealed) < _NONCE_BYTES:
            raise Unreadable("it names a key that is not here")
        plain = AESGCM(key.secret).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _beside(key))
        return key, handles.read(json.loads(inflated(plain, _MOST_INFLATED)))
    except (InvalidTag, ValueError, zlib.error, RecursionError) as error:
        raise Unreadable("nobody here sealed it") from error


def presented(keys: KeyRing, text: str, record: IdentityRecord, *, now: float) -> Outcome:
    """What becomes of a handle that came with a request, for metrics and the audit line alone."""
    try:
        key, expectation = _opened(keys, text)
    except Unreadable:
        return Outcome.UNREADABLE
    found = handles.compared(expectation, record, now=now)
    # A new key names everybody anew: under an older one nobody can be told from the same subject.
    return Outcome.OLD_GENERATION if found is Outcome.OTHER_SUBJECT and key is not keys.current else found


def _beside(key: Key) -> bytes:
    return frame("cachescope/handle/v1", key.id)
