"""Keys: derived from one root by purpose, named by ids, compared in constant time.

Rules:

- the root never leaves the gateways and the operator; an engine pod gets only its own pool's permit key;
- every purpose has its own key (HKDF-SHA-256, RFC 5869), so that no MAC of one purpose is valid for another;
- a key ring holds the current key and older ones: new MACs use the current one, old ones verify until it is dropped.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cachescope.core.errors import SpecError
from cachescope.core.frames import Field, frame

KEY_BYTES = 32
_TEXT = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


@dataclass(frozen=True, repr=False)
class Key:
    """A secret of 32 bytes and the id that names it in permits and salts."""

    id: str
    secret: bytes

    def __post_init__(self) -> None:
        """Refuse keys that are too short to be one."""
        if len(self.secret) < KEY_BYTES:
            raise SpecError(f"key {self.id!r} has {len(self.secret)} bytes; generate one of at least {KEY_BYTES} random bytes")

    def __repr__(self) -> str:
        """The id alone; the secret never reaches a log."""
        return f"Key(id={self.id!r})"

    def mac(self, *fields: Field) -> bytes:
        """HMAC-SHA-256 over the frame of `fields`; 32 bytes."""
        return hmac.digest(self.secret, frame(*fields), "sha256")


@dataclass(frozen=True)
class KeyRing:
    """The current key and those that still verify."""

    current: Key
    others: Mapping[str, Key]

    @classmethod
    def of(cls, *keys: Key) -> KeyRing:
        """A ring whose current key is the one with the greatest id.

        Ids sort by age, e.g. `2026-11-30`: they are compared as text, so that `k10` comes before `k9` (`passed_over`).
        """
        if not keys:
            raise SpecError("a key ring needs at least one key; mount the Secret that holds it")
        current = max(keys, key=lambda key: key.id)
        return cls(current, {key.id: key for key in keys})

    def find(self, key_id: str) -> Key | None:
        """The key of that id, current or older, or `None`."""
        return self.others.get(key_id)

    def derive(self, purpose: str, *context: str) -> KeyRing:
        """The ring of the keys of one purpose, with the same ids."""
        return KeyRing.of(*(derive(key, purpose, *context) for key in self.others.values()))


def derive(root: Key, purpose: str, *context: str) -> Key:
    """Derive the key of one purpose from a root key.

    Args:
        root: The root key; its id names the derived key too.
        purpose: What the key is for, e.g. `permit`.
        *context: What it is bound to, e.g. the pool UID.

    Returns:
        A key of 32 bytes.
    """
    pseudo_random = hmac.digest(b"cachescope/hkdf/v1", root.secret, "sha256")
    info = frame("cachescope/key/v1", purpose, list(context), root.id)
    return Key(root.id, hmac.digest(pseudo_random, info + b"\x01", "sha256"))


def matches(left: bytes, right: bytes) -> bool:
    """Compare two MACs in constant time."""
    return hmac.compare_digest(left, right)


def handed_out(ring: KeyRing, *, oldest: str | None, given: Collection[str]) -> KeyRing:
    """The keys that guards get: whoever reads what they sign knows them all.

    A guard signs with the newest key that it holds, and a gateway that does not have that one yet sends nothing to it.

    Args:
        ring: The keys in force.
        oldest: Of the keys that gateways sign with, each with the newest that it has, the oldest id; `None` without gateways.
        given: Ids of the keys that guards have: none is taken back before it is dropped.
    """
    known = [key for key in ring.others.values() if oldest is None or key.id <= oldest or key.id in given]
    return KeyRing.of(*known) if known else ring


def read_key(name: str, text: str) -> Key:
    """Read a key of a mounted Secret; operator, gateways and guards take the same texts for keys, and no others.

    Args:
        name: Its id.
        text: What the Secret holds under that name; white space around it does not count.

    Raises:
        SpecError: It is no key. The text stays out of the message.
    """
    found = text.strip()
    if _TEXT.fullmatch(found) is None:
        raise SpecError(f"the key {name} does not hold {2 * KEY_BYTES} lower-case hexadecimal digits; write the Secret again")
    return Key(name, bytes.fromhex(found))


def passed_over(ids: Collection[str], among: Collection[str]) -> str:
    """What to say of root keys that are not in force because another one has a greater id; empty when there are none.

    Args:
        ids: Their ids; of the one that is in force nothing is said.
        among: Ids of all root keys. `targets` is none.
    """
    latest = max(set(among) - {"targets"}, default="")
    if not (behind := sorted(set(ids) - {"targets", latest})):
        return ""
    named, are, they = ", ".join(behind), *(("are", "them") if len(behind) > 1 else ("is", "it"))
    return (
        f"{named} {are} not in force: ids are compared as text, character by character, and {latest} comes after {they}, "
        f"as k9 does after k10; to rotate, add the key under an id that comes after {latest}, such as {latest}-1"
    )


def root_ring(texts: Mapping[str, str]) -> KeyRing:
    """The ring of an installation's root keys, from their hexadecimal texts by id; `targets` is no part of it."""
    return KeyRing.of(*(read_key(name, text) for name, text in texts.items() if name != "targets"))


def target_key(texts: Mapping[str, str]) -> Key:
    """The key that names epoch targets, from the text of `targets`."""
    return derive(read_key("targets", texts["targets"]), "target")
