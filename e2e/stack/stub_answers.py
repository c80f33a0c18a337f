"""What a client of a stub pool sees: each token, when the engine made it, and when it came, on one clock of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import openai

from e2e.stub_engine.fingerprint import Fingerprint, boot_ms, read


@dataclass(frozen=True, slots=True)
class Seen:
    """A token that came.

    Attributes:
        text: The token.
        fingerprint: How the engine made it.
        seen_ms: When it came, in milliseconds of `CLOCK_BOOTTIME`.
    """

    text: str
    fingerprint: Fingerprint
    seen_ms: int


def stream(who: openai.OpenAI, pool: str, text: str, *, max_tokens: int = 2) -> Iterator[Seen]:
    """Send a chat request to a pool; its tokens as they come. Closing the iterator closes the connection.

    Args:
        who: The client.
        pool: The pool, which names its model.
        text: The prompt.
        max_tokens: Tokens of the answer.
    """
    with who.chat.completions.create(
        model=pool, messages=[{"role": "user", "content": text}], max_tokens=max_tokens, stream=True
    ) as chunks:
        for chunk in chunks:
            yield Seen(chunk.choices[0].delta.content or "", read(chunk.system_fingerprint), boot_ms())


def ask(who: openai.OpenAI, pool: str, text: str, *, max_tokens: int = 2) -> Seen:
    """Send a chat request that is not streamed; the fingerprint is that of the last token.

    Args:
        who: The client.
        pool: The pool, which names its model.
        text: The prompt.
        max_tokens: Tokens of the answer.
    """
    answer = who.chat.completions.create(model=pool, messages=[{"role": "user", "content": text}], max_tokens=max_tokens)
    return Seen(answer.choices[0].message.content or "", read(answer.system_fingerprint), boot_ms())
