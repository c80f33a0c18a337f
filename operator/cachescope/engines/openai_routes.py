"""The routes of OpenAI's API that every other engine than vLLM serves, as data: the documented fields, and nothing beside them.

What an engine adds is listed only where it was read that it can neither name another cache nor change more than how tokens are
sampled. Its salt, or the field by which a request reuses nothing, is the catalogue's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from cachescope.engines.catalogue import facts
from cachescope.engines.facts import EngineType, Facts
from cachescope.engines.releases import first_enforced
from cachescope.engines.routes import Dialect, Kind, Route, SaltField, Shape, Unsalted
from cachescope.engines.vllm_fields import CACHE_FIELDS, IGNORED, REFUSED

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"

_SAMPLING: Final[Mapping[str, Kind]] = {
    "frequency_penalty": Kind.NUMBER, "logit_bias": Kind.OBJECT, "n": Kind.INTEGER, "presence_penalty": Kind.NUMBER,
    "seed": Kind.INTEGER, "stop": Kind.TEXT_OR_TEXTS, "stream": Kind.BOOLEAN, "stream_options": Kind.SHAPED,
    "temperature": Kind.NUMBER, "top_p": Kind.NUMBER, "user": Kind.TEXT,
}  # fmt: skip
_SAMPLING_OF_CHAT: Final[Mapping[str, Kind]] = {**_SAMPLING, "logprobs": Kind.BOOLEAN, "top_logprobs": Kind.INTEGER}
_SAMPLING_OF_COMPLETION: Final[Mapping[str, Kind]] = {**_SAMPLING, "logprobs": Kind.INTEGER}
_CONTENT_OF_CHAT: Final[Mapping[str, Kind]] = {
    "model": Kind.TEXT, "messages": Kind.SHAPED, "max_tokens": Kind.INTEGER, "max_completion_tokens": Kind.INTEGER,
    "tools": Kind.SHAPED, "tool_choice": Kind.SHAPED, "parallel_tool_calls": Kind.BOOLEAN, "response_format": Kind.OBJECT,
    "reasoning_effort": Kind.TEXT,
}  # fmt: skip
_CONTENT_OF_COMPLETION: Final[Mapping[str, Kind]] = {
    "model": Kind.TEXT, "prompt": Kind.SHAPED, "max_tokens": Kind.INTEGER, "suffix": Kind.TEXT, "echo": Kind.BOOLEAN,
}  # fmt: skip
_OWN_SAMPLING: Final[Mapping[EngineType, Mapping[str, Kind]]] = {
    EngineType.LLAMA_CPP: {"top_k": Kind.INTEGER, "min_p": Kind.NUMBER},
}


def routes_of(engine: EngineType) -> Mapping[tuple[str, str], Route]:
    """The routes of an engine, by method and path."""
    found = _routes(facts(engine))
    return MappingProxyType({(route.method, route.path): route for route in found})


def _routes(known: Facts) -> Iterator[Route]:
    own = _OWN_SAMPLING.get(known.engine, {})
    unsalted = _unsalted(known)
    dropped = CACHE_FIELDS | IGNORED | {item.field for item in known.stripped} | set(unsalted.bypass)
    for path, dialect, content, sampling, asks in (
        (CHAT, Dialect.CHAT, _CONTENT_OF_CHAT, _SAMPLING_OF_CHAT, "messages"),
        (COMPLETIONS, Dialect.COMPLETION, _CONTENT_OF_COMPLETION, _SAMPLING_OF_COMPLETION, "prompt"),
    ):
        salt = _salt(known, path)
        yield Route(
            method="POST",
            path=path,
            dialect=dialect,
            body=Shape({**content, **sampling, **own}, dropped, REFUSED),
            asks=(frozenset({asks}),),
            salt=salt,
            not_content=frozenset({**sampling, **own}),
            unsalted=None if salt else unsalted,
        )


def _salt(known: Facts, path: str) -> SaltField | None:
    """How a route takes its salt, where there is a release in which it does."""
    route = next((item for item in known.routes if path in item.paths), None)
    since = first_enforced(route.steps) if route else None
    return SaltField(known.salt.fields[0], since) if known.salt and since and first_enforced(known.floor) else None


def _unsalted(known: Facts) -> Unsalted:
    bypass = known.bypass
    if bypass is None or bypass.field is None or bypass.value is None:
        return Unsalted()
    return Unsalted(MappingProxyType({bypass.field: bypass.value}))
