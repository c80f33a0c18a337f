"""What a client asks, read from the two request shapes that the stub knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
_DEFAULT_MAX_TOKENS = 16
# vLLM 0.32.0, `entrypoints/generate/base/protocol.py` (`validate_cache_salt`).
_SALT = re.compile(r"[^@/\\\0]{1,128}", re.DOTALL)
_MOST_ANSWERS = 16


class AskingError(Exception):
    """The request is refused.

    Args:
        message: Why, and what to do.
        status: HTTP status.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A request.

    Attributes:
        chat: Whether it is a chat.
        model: The model that it names.
        prompt: Its tokens, which are words.
        salt: Its `cache_salt`; empty without one.
        max_tokens: Tokens of the answer.
        stream: Whether the answer is streamed.
        include_usage: Whether the stream ends with the usage.
        answers: How many answers it asks for.
        extra_key: Its `extra_key`, which this engine has no use for.
        tells_cached: Whether the answer says how many tokens were found.
    """

    chat: bool
    model: str
    prompt: tuple[str, ...]
    salt: str
    max_tokens: int
    stream: bool
    include_usage: bool
    answers: int = 1
    extra_key: str = ""
    tells_cached: bool = True


def read(path: str, body: bytes, models: tuple[str, ...]) -> Asked:
    """Read a request's body.

    Args:
        path: `CHAT` or `COMPLETION`.
        body: JSON.
        models: Names that are served.

    Raises:
        AskingError: It cannot be answered.
    """
    try:
        document = json.loads(body)
        asked = _read(document, chat=path == CHAT)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise AskingError(f"the body cannot be read: {error!r}; send what e2e/stub_engine/asking.py knows") from error
    if asked.model not in models:
        raise AskingError(f"The model `{asked.model}` does not exist; ask for one of {', '.join(models)}.", status=404)
    if asked.max_tokens < 1 or not 1 <= asked.answers <= (1 if asked.stream else _MOST_ANSWERS):
        raise AskingError(f"max_tokens is at least 1, and n at most {_MOST_ANSWERS}, 1 in a stream; correct the request")
    return asked


def _read(document: dict[str, Any], *, chat: bool) -> Asked:
    limit = document.get("max_completion_tokens") if chat else None
    salt = document.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or not _SALT.fullmatch(salt)):
        raise ValueError("cache_salt is a string of 1 to 128 characters without @ / \\ NUL")
    return Asked(
        chat=chat,
        model=document["model"],
        prompt=tuple(_chat_words(document["messages"]) if chat else _words(document["prompt"])),
        salt=salt or "",
        max_tokens=int(limit or document.get("max_tokens") or _DEFAULT_MAX_TOKENS),
        stream=bool(document.get("stream")),
        include_usage=bool((document.get("stream_options") or {}).get("include_usage")),
        answers=int(document.get("n") or 1),
        extra_key=str(document.get("extra_key") or ""),
    )


def _chat_words(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        yield f"{message['role']}:"
        content = message.get("content") or ""
        for text in [content] if isinstance(content, str) else [part["text"] for part in content]:
            yield from text.split()
    yield "assistant:"


def _words(prompt: str | list[int]) -> Iterator[str]:
    """The tokens of a prompt: a text's words, or tokens that a client chose itself."""
    if isinstance(prompt, str):
        yield from prompt.split()
    elif all(isinstance(token, int) for token in prompt):
        yield from map(str, prompt)
    else:
        raise ValueError("prompt is one text, or one list of token ids")
