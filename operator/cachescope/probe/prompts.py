"""Synthetic prompts and salts: made from a seed, and nobody's text."""

from __future__ import annotations

import base64
import hashlib

PROMPT_WORDS = 96
"""Several full blocks of any engine: of 128 tokens where a byte is a token, of 16 where a word is one."""
_WORD = 5


def prompt(seed: str, label: str, words: int = PROMPT_WORDS) -> str:
    """A prompt that no other seed and no other label begins alike.

    Args:
        seed: Of the run.
        label: Which prompt of the run.
        words: How many words of five letters it has.
    """
    stream = hashlib.shake_256(_framed(seed, "prompt", label)).hexdigest(words * _WORD)
    return " ".join(stream[at : at + _WORD] for at in range(0, words * _WORD, _WORD))


def salt(seed: str, label: str) -> str:
    """A salt as a gateway makes them: 43 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(hashlib.sha256(_framed(seed, "salt", label)).digest()).decode().rstrip("=")


def rank(seed: str, label: str) -> bytes:
    """A place in an order that the seed decides."""
    return hashlib.sha256(_framed(seed, "rank", label)).digest()


def _framed(*parts: str) -> bytes:
    return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
