"""Steps of an experiment as HTTP requests: each request shape asked for a few tokens, whole or streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cachescope.engines.routes import Dialect
from cachescope.probe.cases import Case, Role, Step
from cachescope.probe.prompts import prompt

Json = Mapping[str, object]

_TOKENS = 2
# OpenAI's own lower limit of this route.
_TOKENS_OF_RESPONSE = 16


def _messages(text: str) -> list[Json]:
    return [{"role": "user", "content": text}]


def _input(text: str) -> Json:
    return {"input": text}


_CONTENTS: Mapping[Dialect, Callable[[str], Json]] = MappingProxyType({
    Dialect.CHAT: lambda text: {"messages": _messages(text), "max_tokens": _TOKENS, "temperature": 0},
    Dialect.CHAT_BATCH: lambda text: {"messages": [_messages(text)], "max_tokens": _TOKENS, "temperature": 0},
    Dialect.COMPLETION: lambda text: {"prompt": text, "max_tokens": _TOKENS, "temperature": 0},
    Dialect.RESPONSE: lambda text: {"input": text, "max_output_tokens": _TOKENS_OF_RESPONSE, "temperature": 0},
    Dialect.MESSAGE: lambda text: {"messages": _messages(text), "max_tokens": _TOKENS, "temperature": 0},
    Dialect.EMBEDDING: _input,
    Dialect.POOLING: _input,
    Dialect.CLASSIFICATION: _input,
    Dialect.SCORE: lambda text: {"text_1": text, "text_2": text},
    Dialect.RERANKING: lambda text: {"query": text, "documents": [text]},
})  # fmt: skip
DIALECTS = frozenset(_CONTENTS)
"""Request shapes that reach a cache, and that an experiment can ask."""
STREAMED = frozenset({Dialect.CHAT, Dialect.COMPLETION, Dialect.RESPONSE, Dialect.MESSAGE})
"""Those of them whose answers can be streamed."""
_TELL_USAGE = frozenset({Dialect.CHAT, Dialect.COMPLETION})


@dataclass(frozen=True, slots=True)
class Question:
    """One HTTP request, a `POST`.

    Attributes:
        path: Where it goes.
        headers: Headers beside those that the transport sets.
        body: JSON.
    """

    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Json = field(repr=False)


def body(dialect: Dialect, model: str, text: str, *, streamed: bool = False) -> Json:
    """A body that asks a model about a text.

    Raises:
        KeyError: Requests of this shape reach no cache.
    """
    asked = {"model": model, **_CONTENTS[dialect](text)}
    if not streamed:
        return asked
    return {**asked, "stream": True, **({"stream_options": {"include_usage": True}} if dialect in _TELL_USAGE else {})}


def question(case: Case, step: Step, *, model: str, seed: str) -> Question:
    """What a step of an experiment sends.

    Args:
        case: The experiment.
        step: Its step.
        model: The model that is asked for.
        seed: Of the run; the prompt follows from it, the experiment's name and the trial.
    """
    asking, who = case.asking, case.identities[step.who]
    text = prompt(seed, f"{case.name} {step.trial}")
    headers, fields = _chosen(case, step)
    content = body(asking.dialect, model, text, streamed=asking.streamed)
    other = asking.of_other if step.role is Role.OTHER else {}
    return Question(asking.path, {**who.headers, **headers}, {**content, **asking.fields, **other, **fields, **who.fields})


def _chosen(case: Case, step: Step) -> tuple[Mapping[str, str], Json]:
    """Headers and fields that somebody adds who wants to be taken for the owner."""
    secret = case.identities[step.owner].secret
    headers: dict[str, str] = {}
    fields: dict[str, object] = {}
    if step.role is Role.OTHER or (step.agreed and step.role is not Role.WARM_UP):
        for place in case.chosen:
            headers.update(place.headers(secret))
            fields.update(place.fields(secret))
    return headers, fields
