"""What a tenant does: send a prompt, and read how much of it the engine found in its cache."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import openai

MODEL = "tiny"
AT_ONCE = 8
REUSED_TOKENS = 300
# A forwarded port can lose an answer and is back within a second or two; the client waits 0.5 s, then longer.
RETRIES = 4
_SENTENCE = "The quick brown fox jumps over the lazy dog, and the cache remembers nothing of it. "

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Measured:
    """One answered request.

    Attributes:
        prompt_tokens: Tokens of the prompt, as the engine counted them.
        cached_tokens: Those that it found in its cache.
        seconds: Time to the first token.
    """

    prompt_tokens: int
    cached_tokens: int
    seconds: float


def prompt(tokens: int = 3000) -> str:
    """A prompt that nobody has sent before, of about that many tokens (the demo's tokenizer has one for each byte)."""
    return (secrets.token_hex(16) + " " + _SENTENCE * (tokens // len(_SENTENCE) + 1))[:tokens]


def client(address: str, key: str) -> openai.OpenAI:
    """The OpenAI client, with no change but `base_url` and `api_key`."""
    return openai.OpenAI(base_url=f"http://{address}/v1", api_key=key, max_retries=RETRIES, timeout=60)


def chat(who: openai.OpenAI, text: str, **extra: object) -> Measured:
    """Send one chat request and measure it; `extra` goes into the body as it is."""
    started = time.perf_counter()
    first = 0.0
    usage = None
    stream = who.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        max_tokens=2,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=extra or None,
    )
    for chunk in stream:
        first = first or time.perf_counter() - started
        usage = chunk.usage or usage
    if usage is None:
        raise AssertionError("the engine sent no usage; check that it runs with --enable-prompt-tokens-details")
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return Measured(usage.prompt_tokens, cached or 0, first)


def found(who: openai.OpenAI, texts: Iterable[str], **extra: object) -> list[int]:
    """How many tokens of each prompt the engine has for somebody; several are asked at once, each once."""
    return at_once(lambda text: chat(who, text, **extra).cached_tokens, texts)


def reuses(who: openai.OpenAI) -> bool:
    """Whether what somebody sends is found when he sends it again; without rights guards and gateways let nothing be reused."""
    text = prompt(REUSED_TOKENS)
    try:
        chat(who, text)
        return chat(who, text).cached_tokens > 0
    except openai.APIError:
        return False


def is_refused(who: openai.OpenAI, kind: type[openai.APIStatusError]) -> bool:
    """Whether a request of somebody is refused in such a way now."""
    try:
        chat(who, "hello")
    except kind:
        return True
    return False


def at_once(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What a function makes of each of some items, several of them at the same time; in the items' order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(function, items))


def wait_routable(who: openai.OpenAI, seconds: float = 120, **extra: object) -> None:
    """Wait until the gateway has found a guarded engine and answers; `extra` names another pool's `model`.

    Raises:
        TimeoutError: It does not within that time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            chat(who, "hello", **extra)
        except openai.APIError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pool is not routable: {error}; see the gateway's /readyz") from error
            time.sleep(0.2)
        else:
            return
