"""API keys: `cs-<key id>.<secret>`, looked up by id, stored as a hash.

Rules:

- a secret is 256 random bits, so that a plain SHA-256 of it is as hard to invert as a slow hash of a password is meant to be: there
  is no dictionary to try; a key that somebody invented is refused by its length alone;
- the hash is bound to the key id and to the Secret that holds it, and its input is framed: the secret of one id is worth nothing
  under another, and a hash that somebody copied is worth nothing in another Secret;
- two Secrets may hold the same key id: each entry is tried, so that nobody can disable a key whose id he knows;
- the text is compared, never what it decodes to: another spelling of the same bytes is another key;
- an unknown id costs the same comparison as a known one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachescope.core.encodings import encode
from cachescope.core.errors import SpecError
from cachescope.core.frames import frame
from cachescope.core.scopes import API_KEY, Credential
from cachescope.gateway.identity.credentials import Identity, Unauthenticated

PREFIX = "cs-"
RANDOM_BYTES = 32

_KEY = re.compile(r"cs-([a-z0-9]{8,32})\.([A-Za-z0-9_-]{22,128})", re.ASCII)
_KEY_ID = re.compile(r"[a-z0-9]{8,32}", re.ASCII)
_HASH = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_REFUSED = "the API key is not valid; check it, or ask for a new one"


@dataclass(frozen=True, slots=True)
class ApiKeyEntry:
    """What is stored of a key.

    Attributes:
        hash: `sha256:` and 64 hexadecimal digits (`hash_key`).
        tenant_uid: UID of the tenant that the key belongs to.
        principal: Stable name of whom it speaks for; it outlives the key, so that a rotated key keeps its caches.
        bound_to: `<namespace>/<name>` of the Secret that it was found in.
        created: When it was made, in seconds since 1970; `None` when nobody wrote that down.
    """

    hash: str
    tenant_uid: str
    principal: str
    bound_to: str
    created: int | None = None


_NOBODY = ApiKeyEntry("sha256:" + "0" * 64, "", "", "nowhere")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it was made; the token is shown once and stored nowhere."""

    token: str
    key_id: str
    hash: str


def make_key(random: bytes, bound_to: str) -> NewKey:
    """Make a key.

    Args:
        random: 32 fresh random bytes. The key id is derived from them one way; it reveals nothing of the secret.
        bound_to: `<namespace>/<name>` of the Secret that will hold the hash.
    """
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key is made of {RANDOM_BYTES} random bytes, not {len(random)}; pass secrets.token_bytes(32)")
    key_id = hashlib.sha256(frame("cachescope/api-key-id/v1", random)).hexdigest()[:16]
    secret = encode(random)
    return NewKey(f"{PREFIX}{key_id}.{secret}", key_id, hash_key(key_id, secret, bound_to))


def hash_key(key_id: str, secret: str, bound_to: str) -> str:
    """The hash that is stored of a key in the Secret `<namespace>/<name>`."""
    return "sha256:" + hashlib.sha256(frame("cachescope/api-key/v2", key_id, secret, bound_to)).hexdigest()


def parse(token: str) -> tuple[str, str]:
    """Split a key into its id and its secret.

    Raises:
        Unauthenticated: It has not the form of a key.
    """
    match = _KEY.fullmatch(token)
    if match is None:
        raise Unauthenticated(_REFUSED)
    return match[1], match[2]


class ApiKeys:
    """All keys of the installation."""

    def __init__(self, entries: Mapping[str, Sequence[ApiKeyEntry]]) -> None:
        """Take the keys.

        Args:
            entries: Entries by key id; of two that match the same key the first decides.

        Raises:
            SpecError: An entry could never match, or would match nobody in particular.
        """
        for key_id, found in entries.items():
            for entry in found:
                check(key_id, entry.hash, entry.tenant_uid and entry.principal)
        self._entries = entries

    def authenticate(self, token: str) -> Identity:
        """Whose key it is.

        Raises:
            Unauthenticated: It is nobody's; the message does not tell which part is wrong.
        """
        key_id, secret = parse(token)
        entries = self._entries.get(key_id) or (_NOBODY,)
        matching = [entry for entry in entries if hmac.compare_digest(hash_key(key_id, secret, entry.bound_to), entry.hash)]
        if not matching or matching[0] is _NOBODY:
            raise Unauthenticated(_REFUSED)
        found = matching[0]
        return Identity(found.tenant_uid, Credential(API_KEY, "", found.principal), found.created, key_id)


def check(key_id: str, stored: str, principal: str) -> None:
    """Check what is stored of a key.

    Raises:
        SpecError: It could never match, or would match nobody in particular.
    """
    if not _KEY_ID.fullmatch(key_id):
        raise SpecError(f"{key_id!r} is no key id; use 8 to 32 of a-z and 0-9")
    if not _HASH.fullmatch(stored):
        raise SpecError(
            f"the hash of key {key_id!r} is not `sha256:` and 64 hexadecimal digits; store what `cachescope keys create` makes"
        )
    if not principal.strip():
        raise SpecError(f"key {key_id!r} speaks for nobody; name its principal")
