"""What an answer says of the prompt's tokens, whole or streamed, in OpenAI's and in Anthropic's words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_HOLDERS = ("response", "message")


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer told.

    Attributes:
        prompt_tokens: Tokens of the prompt, those that were found included; `None` if it does not say.
        cached_tokens: Those of them that were found in a cache; `None` if it does not say.
        complete: Whether the answer came to its end without an error in it.
        error_code: The status that an error in it names; `None` if there is no error, or it names none.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    complete: bool = True
    error_code: int | None = None


def read(content: bytes, *, streamed: bool) -> Usage:
    """Read the body of an answer.

    Args:
        content: Its bytes.
        streamed: Whether these are server-sent events.
    """
    documents = list(_events(content) if streamed else _documents([content]))
    told: dict[str, Any] = {}
    for document in documents:
        told.update(_usage(document))
    errors = [error for document in documents if (error := _error(document))]
    cached = _cached(told)
    return Usage(_prompt(told, cached or 0), cached, bool(documents) and not errors, _code(errors))


def _events(content: bytes) -> Iterator[dict[str, Any]]:
    lines = (line for line in content.splitlines() if line.startswith(b"data:"))
    return _documents(line.removeprefix(b"data:").strip() for line in lines)


def _documents(texts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for text in texts:
        try:
            document = json.loads(text)
        except ValueError:
            continue
        if isinstance(document, dict):
            yield document


def _error(document: Mapping[str, Any]) -> object:
    """The error that a document holds, or that it is: older engines write `"object": "error"` and what else they say beside it."""
    return document if document.get("object") == "error" else document.get("error")


def _code(errors: Iterable[object]) -> int | None:
    codes = [error.get("code") for error in errors if isinstance(error, dict)]
    return next((code for code in codes if isinstance(code, int)), None)


def _usage(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage of a document, or of the answer that an event wraps; names that are null are left out."""
    holders = [document, *(document[name] for name in _HOLDERS if isinstance(document.get(name), dict))]
    found: Mapping[str, Any] = next((holder["usage"] for holder in holders if isinstance(holder.get("usage"), dict)), {})
    return {name: value for name, value in found.items() if value is not None}


def _cached(told: Mapping[str, Any]) -> int | None:
    values = [told[name].get("cached_tokens") for name in _DETAILS if isinstance(told.get(name), dict)]
    numbers = [value for value in (*values, told.get("cache_read_input_tokens")) if isinstance(value, int)]
    return max(numbers, default=None)


def _prompt(told: Mapping[str, Any], cached: int) -> int | None:
    """Anthropic's `input_tokens` leave out what was found; an answer that counts both is larger than what was found."""
    number = told.get("prompt_tokens", told.get("input_tokens"))
    if not isinstance(number, int):
        return None
    return number if number > cached else number + cached
