"""What a client sees of an answer: when each message was made and came, and how much of the prompt was found.

The stub says when it made a token; vLLM does not. Of vLLM's messages it is known only that they were made before they came and
after the request was sent, so each moment is taken to be the one that accuses least:

- a message was made `SLACK_MS` before it came. That is more than kernel, Envoy and a busy client need, and hides nothing: an
  answer that lives on after a fence does so for seconds (`Engine.lengths`), and its later messages show it;
- a request was admitted no later than its first message came;
- a prefix that was found was looked up when the first message came, one that was not was kept when the request was sent.

How much was found is known at the end of an answer alone: of one that was cut it is taken to be nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openai.types.chat import ChatCompletionChunk

from e2e.stub_engine import fingerprint
from e2e.stub_engine.fingerprint import Fingerprint, boot_ms

SLACK_MS = 1000


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that came.

    Attributes:
        made: When it was made, and what the engine found.
        seen_ms: When it came, in milliseconds of `CLOCK_BOOTTIME`.
        last: Whether the answer is whole with it.
    """

    made: Fingerprint
    seen_ms: int
    last: bool


def of_stub(chunks: Iterable[ChatCompletionChunk], sent_ms: int) -> Iterator[Seen]:
    """Messages of the stub engine: each says how it was made."""
    del sent_ms
    for chunk in chunks:
        if chunk.choices:  # the usage says nothing that the tokens did not
            yield Seen(fingerprint.read(chunk.system_fingerprint), boot_ms(), chunk.choices[0].finish_reason is not None)


def of_vllm(chunks: Iterable[ChatCompletionChunk], sent_ms: int) -> Iterator[Seen]:
    """Messages of vLLM; the last one is the usage."""
    first_ms = 0
    for chunk in chunks:
        seen_ms = boot_ms()
        first_ms = first_ms or seen_ms
        found = _found(chunk)
        made_ms, looked_up_ms = max(sent_ms, seen_ms - SLACK_MS), first_ms if found else sent_ms
        yield Seen(Fingerprint(made_ms, first_ms, looked_up_ms, found), seen_ms, chunk.usage is not None)


def _found(chunk: ChatCompletionChunk) -> int:
    details = chunk.usage and chunk.usage.prompt_tokens_details
    return (details.cached_tokens or 0) if details else 0
