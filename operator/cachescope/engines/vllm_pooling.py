"""vLLM: the routes of pooling models, as data.

Field names were read in vLLM 0.32.0: `entrypoints/pooling/{base,embed,pooling,classify,scoring}/protocol.py`.

Pooling reads and writes blocks as generation does: `embed` and `classify` take a cached prefix where there is one, and only the
tasks by token skip the reading (`PoolingParams.skip_reading_prefix_cache`), so every one of these requests takes a salt. Queries
that a scoring route keeps in the worker for its documents are named by the engine, at random (`flash_late_interaction`), never by a
client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cachescope.engines.routes import Dialect, Kind, Route, Shape
from cachescope.engines.vllm_fields import CACHE_FIELDS, IGNORED, REFUSED, TEMPLATE, TRUNCATION, salt_of

_CONTENT: Mapping[str, Kind] = {"model": Kind.TEXT, "padding": Kind.TEXT, **TRUNCATION}
_CONTENT_OF_INPUTS: Mapping[str, Kind] = {
    **_CONTENT, **TEMPLATE, "input": Kind.SHAPED, "messages": Kind.SHAPED, "add_special_tokens": Kind.BOOLEAN,
}  # fmt: skip
_CONTENT_OF_PAIRS: Mapping[str, Kind] = {
    **_CONTENT, "chat_template_kwargs": Kind.SHAPED, "instruction": Kind.TEXT, "max_tokens_per_query": Kind.INTEGER,
    "max_tokens_per_doc": Kind.INTEGER,
}  # fmt: skip
_TASK: Mapping[str, Kind] = {"task": Kind.SHAPED}

# How the answer is made of what the model gave.
_ANSWER: Mapping[str, Kind] = {"use_activation": Kind.BOOLEAN, "user": Kind.TEXT}
_ANSWER_OF_VECTORS: Mapping[str, Kind] = {
    **_ANSWER, "dimensions": Kind.INTEGER, "encoding_format": Kind.TEXT, "embed_dtype": Kind.TEXT, "endianness": Kind.TEXT,
}  # fmt: skip
_ANSWER_OF_RERANKING: Mapping[str, Kind] = {**_ANSWER, "top_n": Kind.INTEGER}

_DROPPED = CACHE_FIELDS | IGNORED
_INPUT_OR_MESSAGES = (frozenset({"input"}), frozenset({"messages"}))

EMBEDDINGS = Route(
    method="POST",
    path="/v1/embeddings",
    dialect=Dialect.EMBEDDING,
    body=Shape({**_CONTENT_OF_INPUTS, **_ANSWER_OF_VECTORS}, _DROPPED, REFUSED),
    asks=_INPUT_OR_MESSAGES,
    salt=salt_of("/v1/embeddings"),
    not_content=frozenset(_ANSWER_OF_VECTORS),
)
POOLING = Route(
    method="POST",
    path="/pooling",
    dialect=Dialect.POOLING,
    body=Shape(
        {**_CONTENT_OF_INPUTS, **_TASK, **_ANSWER_OF_VECTORS},
        _DROPPED,
        MappingProxyType({**REFUSED, "data": "input for engine plugins could name files and addresses; send `input`"}),
    ),
    asks=_INPUT_OR_MESSAGES,
    salt=salt_of("/pooling"),
    not_content=frozenset(_ANSWER_OF_VECTORS),
)
CLASSIFY = Route(
    method="POST",
    path="/classify",
    dialect=Dialect.CLASSIFICATION,
    body=Shape({**_CONTENT_OF_INPUTS, **_ANSWER}, _DROPPED, REFUSED),
    asks=_INPUT_OR_MESSAGES,
    salt=salt_of("/classify"),
    not_content=frozenset(_ANSWER),
)
_PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
SCORE = Route(
    method="POST",
    path="/score",
    dialect=Dialect.SCORE,
    body=Shape(
        {**_CONTENT_OF_PAIRS, **_ANSWER, **{name: Kind.SHAPED for pair in _PAIRS for name in pair}},
        _DROPPED,
        REFUSED,
    ),
    asks=tuple(map(frozenset, _PAIRS)),
    salt=salt_of("/score"),
    not_content=frozenset(_ANSWER),
)
# `return_documents` is Cohere's and Jina's; vLLM always returns them.
RERANK = Route(
    method="POST",
    path="/rerank",
    dialect=Dialect.RERANKING,
    body=Shape(
        {**_CONTENT_OF_PAIRS, **_ANSWER_OF_RERANKING, "query": Kind.SHAPED, "documents": Kind.SHAPED},
        _DROPPED | {"return_documents"},
        REFUSED,
    ),
    asks=(frozenset({"query", "documents"}),),
    salt=salt_of("/rerank"),
    not_content=frozenset(_ANSWER_OF_RERANKING),
)

ROUTES = (
    EMBEDDINGS,
    POOLING,
    CLASSIFY,
    SCORE,
    replace(SCORE, path="/v1/score", salt=salt_of("/v1/score")),
    RERANK,
    replace(RERANK, path="/v1/rerank", salt=salt_of("/v1/rerank")),
    replace(RERANK, path="/v2/rerank", salt=salt_of("/v2/rerank")),
)
