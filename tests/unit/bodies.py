"""Good bodies of every route, and what the pure session makes of a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.core.types import Salt
from cachescope.engines import vllm, vllm_generation, vllm_pooling, vllm_tokens
from cachescope.engines.routes import Route
from cachescope.gateway.bodies import BadBody, Sanitized, sanitize, with_salt

CHAT, BATCH, COMPLETION = vllm_generation.CHAT_COMPLETIONS, vllm_generation.CHAT_BATCH, vllm_generation.COMPLETIONS
RESPONSE, MESSAGE, COUNTING = vllm_generation.RESPONSES, vllm_generation.MESSAGES, vllm_generation.COUNT_TOKENS
EMBEDDING, POOLING, CLASSIFICATION = vllm_pooling.EMBEDDINGS, vllm_pooling.POOLING, vllm_pooling.CLASSIFY
SCORE, RERANKING = vllm_pooling.SCORE, vllm_pooling.RERANK
TOKENIZATION, DETOKENIZATION = vllm_tokens.TOKENIZE, vllm_tokens.DETOKENIZE
SALT = Salt("s" * 43)

SAID = {"role": "user", "content": "hi"}
_ASKS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [SAID]},
    "/v1/chat/completions/batch": {"messages": [[SAID], [SAID]]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [SAID], "max_tokens": 8},
    "/v1/messages/count_tokens": {"messages": [SAID]},
    **{path: {"input": "hi"} for path in ("/v1/embeddings", "/pooling", "/classify")},
    **{path: {"queries": "hi", "documents": ["ho", "ha"]} for path in ("/score", "/v1/score")},
    **{path: {"query": "hi", "documents": ["ho", "ha"]} for path in ("/rerank", "/v1/rerank", "/v2/rerank")},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1, 2]},
}
GOOD: dict[str, dict[str, Any]] = {path: {"model": "tiny", **fields} for path, fields in _ASKS.items()}
ROUTES = tuple(vllm.ROUTES.values())
every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)


def salt_for(route: Route) -> Salt | None:
    return SALT if route.salt else None


def cleaned(route: Route, fields: dict[str, Any]) -> Sanitized:
    """What is left of the route's good body with these fields; its alternatives make room for another that is given."""
    taken = {name for names in route.asks for name in names if name in fields}
    base = {name: value for name, value in GOOD[route.path].items() if not taken or not _stands_aside(route, name, taken)}
    return sanitize(route, base | fields)


def _stands_aside(route: Route, name: str, taken: set[str]) -> bool:
    asked = {asked for names in route.asks for asked in names}
    return name in asked and not any(taken | {name} <= names for names in route.asks)


def sent(route: Route, **fields: Any) -> dict[str, Any]:
    """What goes upstream for the route's good body with these fields."""
    parsed: dict[str, Any] = json.loads(with_salt(cleaned(route, fields), salt_for(route)))
    return parsed


def outcome(route: Route, **fields: Any) -> Sanitized | BadBody:
    """What is left of it, or why it is refused."""
    try:
        return cleaned(route, fields)
    except BadBody as error:
        return error


def refused(route: Route, **fields: Any) -> BadBody:
    with pytest.raises(BadBody) as caught:
        sent(route, **fields)
    return caught.value
