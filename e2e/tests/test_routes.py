"""Every route of the catalogue that this engine serves: reuse within a scope, and none across, as each route itself tells it.

What the OpenAI client says of chat, completions and responses is in `test_openai_client`; a long prefix of chat, and more pairs,
are in `test_isolation`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2 as httpx
import openai
import pytest

from cachescope.core.labels import GUARD_METRICS_PORT
from cachescope.engines.vllm import ROUTES
from cachescope.probe import counters, questions, usage
from e2e.demo.cases import BLOCK_TOKENS
from e2e.stack import client, kubectl
from e2e.stack.client import MODEL
from e2e.stack.install import ENGINE_PODS

TRIES = 50
TOKENS = 300
"""Two full blocks, and less than three."""
A, SAME_SCOPE, B = "blue-carol", "blue-dan", "red-alice"
Clients = dict[str, openai.OpenAI]
Fields = dict[str, Any]


REACH_THE_CACHE = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
BATCH = "/v1/chat/completions/batch"
"""Its answers do not say what was found, so that the engine's own counter is asked."""
COUNTS = {"/tokenize": "count", "/v1/messages/count_tokens": "input_tokens"}
"""Routes that reach no cache, and where their answers say how long a prompt is."""
OF_OTHER_MODELS = {
    *("/v1/embeddings", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"),
}
"""A model that generates text offers none of them."""
every_caching_route = pytest.mark.parametrize("path", REACH_THE_CACHE)


def test_every_route_of_the_catalogue_is_asked_here() -> None:
    asked = {*REACH_THE_CACHE, *COUNTS, BATCH, "/detokenize"}
    assert {path for _, path in ROUTES} == asked | OF_OTHER_MODELS


@every_caching_route
def test_nothing_is_reused_across_scopes_on_any_route(who: Clients, path: str) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    assert _cached(path, who[A], texts) == [0] * TRIES, "nobody has sent them"
    assert _cached(path, who[B], texts) == [0] * TRIES
    assert min(_cached(path, who[SAME_SCOPE], texts)) > 0


@every_caching_route
def test_what_one_route_left_is_found_by_no_other_scope_on_another(who: Clients, path: str) -> None:
    texts = [client.prompt(TOKENS) for _ in range(10)]
    client.found(who[A], texts)
    assert _cached(path, who[B], texts) == [0] * len(texts)
    assert min(client.found(who[A], texts)) > 0


def test_a_batch_reuses_nothing_across_scopes(who: Clients) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    with kubectl.forwarded_pod(ENGINE_PODS, GUARD_METRICS_PORT) as address:
        found = [_found_by_batches(who[name], texts, address) for name in (A, B, SAME_SCOPE)]
    assert found[:2] == [0, 0]
    assert found[2] >= TRIES * BLOCK_TOKENS, "the control: at least a block of each"


@pytest.mark.parametrize("path", COUNTS)
def test_a_route_that_counts_tokens_counts_them_and_leaves_nothing_in_the_cache(who: Clients, path: str) -> None:
    texts = [client.prompt(TOKENS) for _ in range(10)]
    assert min(int(posted(who[A], path, {"model": MODEL, "messages": _said(text)})[COUNTS[path]]) for text in texts) >= TOKENS
    assert client.found(who[A], texts) == [0] * len(texts)
    assert min(client.found(who[A], texts)) > 0


def test_tokens_are_turned_back_into_their_text(who: Clients) -> None:
    tokens = posted(who[A], "/tokenize", {"model": MODEL, "prompt": "hello"})["tokens"]
    assert posted(who[A], "/detokenize", {"model": MODEL, "tokens": tokens})["prompt"] == "hello"


@pytest.mark.parametrize("path", sorted(OF_OTHER_MODELS))
def test_a_route_of_other_models_is_not_found_and_reveals_nothing(who: Clients, path: str) -> None:
    body: Fields = {"model": MODEL, "input": "hi"}
    if path.endswith("score"):
        body = {"model": MODEL, "queries": "hi", "documents": ["ho"]}
    elif path.endswith("rerank"):
        body = {"model": MODEL, "query": "hi", "documents": ["ho"]}
    with pytest.raises(openai.NotFoundError):
        posted(who[A], path, body)


def posted(who: openai.OpenAI, path: str, body: Fields) -> Fields:
    """The answer to a request on any path of the gateway."""
    answer: Fields = who.post(str(who.base_url.copy_with(path=path)), body=body, cast_to=dict[str, Any])
    return answer


def _found_by_batches(who: openai.OpenAI, texts: list[str], metrics: str) -> int:
    """Tokens that the engine found in its cache while somebody sent batches of two texts, and nobody anything else."""
    before = _hits(metrics)
    pairs = [texts[at : at + 2] for at in range(0, len(texts), 2)]
    fields = [{"model": MODEL, "messages": [_said(text) for text in pair], "max_tokens": 2} for pair in pairs]
    client.at_once(lambda body: posted(who, BATCH, body), fields)
    return _hits(metrics) - before


def _hits(metrics: str) -> int:
    counted = counters.found_tokens(httpx.get(f"http://{metrics}/metrics", timeout=10).text)
    assert counted is not None, "the engine counts no hits"
    return counted


def _cached(path: str, who: openai.OpenAI, texts: list[str]) -> list[int]:
    """What the answers of a route say was found of each text, in tokens."""
    dialect = ROUTES["POST", path].dialect

    def ask(text: str) -> int:
        answer = posted(who, path, dict(questions.body(dialect, MODEL, text)))
        told = usage.read(json.dumps(answer).encode(), streamed=False)
        assert told.prompt_tokens, f"{path}: the answer says nothing of the prompt"
        return told.cached_tokens or 0

    return client.at_once(ask, texts)


def _said(text: str) -> list[Fields]:
    return [{"role": "user", "content": text}]
