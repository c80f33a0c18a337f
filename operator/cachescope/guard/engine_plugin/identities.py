"""Identities of blocks: keyed digests, independent of the engine's hash, of everything that a block stands for.

Rules:

- an identity is two BLAKE2b digests of 16 bytes under a key that this process drew: one of all tokens up to the end of the block,
  one of all that entered beside tokens so far, each with the number of its block;
- so it depends on every token, every salt and every block before it, and on no hash of the engine: where the engine's hashes
  collide, identities differ.
"""

from __future__ import annotations

import hashlib
from typing import Any

from cachescope.core.frames import frame
from cachescope.guard.engine_plugin.shapes import ExtraKeys

DIGEST_BYTES = 16

_TOKENS, _KEYS = b"cachescope/idt/1", b"cachescope/idk/1"


class Identities:
    """The identities of the blocks of one request.

    Args:
        secret: 32 random bytes of this process.

    Attributes:
        values: One for each block that was added, 32 bytes each.
    """

    __slots__ = ("_beside", "_secret", "_tokens", "values")

    def __init__(self, secret: bytes) -> None:
        self.values: list[bytes] = []
        self._secret = secret
        self._tokens = hashlib.blake2b(key=secret, digest_size=DIGEST_BYTES, person=_TOKENS)
        self._beside = bytes(DIGEST_BYTES)

    def add(self, tokens: memoryview, keys: ExtraKeys) -> None:
        """Add the next block.

        Args:
            tokens: Its tokens (`token_bytes`); as many in every block of this process.
            keys: What entered beside them.
        """
        if keys is not None:
            self._beside = self._keyed(keys)
        self._tokens.update(tokens)
        self.values.append(self._tokens.copy().digest() + self._beside)

    def _keyed(self, keys: tuple[tuple[Any, ...], ...]) -> bytes:
        entered = self._beside + frame(len(self.values), keys)
        return hashlib.blake2b(entered, key=self._secret, digest_size=DIGEST_BYTES, person=_KEYS).digest()
