"""What a request sends, against public sources: the digests of its texts, or that it sends something else.

Rules:

- a text counts as a source only if it stands where the pool's template takes it whole: the content of a message or of a text part,
  a prompt, `input` or `instructions`;
- whatever else could carry somebody's words or numbers into the prompt makes the request one that sends something else: names, ids,
  calls, reasoning, documents, template arguments, a suffix, token ids, and any field or route that is not named here. So does what
  never reaches the prompt and is free text all the same (`stop`, `user`): what is public says nothing of who asks;
- roles and kinds of parts come from fixed lists; tools are compared by their own digest (`bodies.toolset_digest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cachescope.core.digests import sha256
from cachescope.core.types import Digest
from cachescope.engines.routes import Dialect
from cachescope.gateway.bodies import Sanitized
from cachescope.gateway.strict_json import Json

_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_CHOICES: Final = frozenset({"none", "auto", "required"})
_STREAM_OPTIONS: Final = frozenset({"include_usage", "continuous_usage_stats"})
# Lengths and switches that leave the prompt whole; `truncate_prompt_tokens` and its like do not.
_SWITCHES: Final = frozenset({
    "tool_choice", "max_tokens", "max_completion_tokens", "max_output_tokens", "thinking_token_budget", "parallel_tool_calls",
    "include_reasoning", "echo",
})  # fmt: skip


# By its own digest, and by the pool that serves it.
_COMPARED: Final = frozenset({"tools", "model"})


class _OtherContent(Exception):  # noqa: N818 - a finding, not a failure
    """Something is sent that is no text of a source."""


def sent_texts(cleaned: Sanitized) -> frozenset[Digest] | None:
    """Digests of all texts of a request; `None` when it sends anything else.

    Args:
        cleaned: The body as it goes upstream.
    """
    reader = _READERS.get(cleaned.route.dialect)
    if reader is None:
        return None
    try:
        return frozenset(sha256(text.encode()) for text in _texts(cleaned, reader))
    except _OtherContent:
        return None


def _texts(cleaned: Sanitized, readers: Mapping[str, Callable[[Json], Iterator[str]]]) -> Iterator[str]:
    for name, value in cleaned.fields.items():
        if name in readers:
            yield from readers[name](value)
        elif name not in _COMPARED:
            _need(harmless=value is None or (_may_be_set(cleaned, name) and _is_setting(name, value)))


def _may_be_set(cleaned: Sanitized, name: str) -> bool:
    return name not in cleaned.content or name in _SWITCHES


def _is_setting(name: str, value: Json) -> bool:
    """Whether a field holds numbers and switches alone, or a word of a fixed list."""
    if name == "tool_choice" and isinstance(value, str):
        return value in _CHOICES
    if name == "stream_options" and isinstance(value, dict):
        return value.keys() <= _STREAM_OPTIONS and all(isinstance(item, bool) for item in value.values())
    return isinstance(value, (bool, int, float))


def _text(value: Json) -> Iterator[str]:
    if value is not None:
        yield _is_text(value)


def _prompts(value: Json) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        yield _is_text(item)


def _messages(value: Json) -> Iterator[str]:
    for message in value if isinstance(value, list) else [None]:
        yield from _message(message)


def _input(value: Json) -> Iterator[str]:
    yield from [value] if isinstance(value, str) else _messages(value)


def _message(value: Json) -> Iterator[str]:
    fields = _only(value, {"role", "content", "type"})
    role, kind = fields.get("role"), fields.get("type", "message")
    _need(harmless=isinstance(role, str) and role in _ROLES and kind == "message")
    content = fields.get("content")
    yield from _parts(content) if isinstance(content, list) else _text(content)


def _parts(parts: list[Json]) -> Iterator[str]:
    for part in parts:
        fields = _only(part, {"type", "text"})
        _need(harmless=fields.get("type") in _PARTS)
        yield _is_text(fields.get("text"))


def _only(value: Json, names: set[str]) -> dict[str, Json]:
    """The members of an object that are set, all of them known."""
    if not isinstance(value, dict):
        raise _OtherContent
    held: dict[str, Json] = {name: item for name, item in value.items() if item is not None}
    _need(harmless=held.keys() <= names)
    return held


def _is_text(value: Json) -> str:
    if not isinstance(value, str):
        raise _OtherContent
    return value


def _need(*, harmless: bool) -> None:
    if not harmless:
        raise _OtherContent


_READERS: Final[Mapping[Dialect, Mapping[str, Callable[[Json], Iterator[str]]]]] = {
    Dialect.CHAT: {"messages": _messages},
    Dialect.COMPLETION: {"prompt": _prompts},
    Dialect.RESPONSE: {"input": _input, "instructions": _text},
}
"""Where texts stand, by dialect; in any other nobody has looked."""
