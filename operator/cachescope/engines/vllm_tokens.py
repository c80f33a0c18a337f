"""vLLM: the routes of the tokenizer, as data. They have no salt field and reach no cache of the engine.

Field names were read in vLLM 0.32.0: `entrypoints/serve/tokenize/protocol.py`.
"""

from __future__ import annotations

from cachescope.engines.routes import Dialect, Kind, Route, Shape
from cachescope.engines.vllm_fields import CACHE_FIELDS, IGNORED, REFUSED, TEMPLATE

TOKENIZE = Route(
    method="POST",
    path="/tokenize",
    dialect=Dialect.TOKENIZATION,
    body=Shape(
        {
            **TEMPLATE, "model": Kind.TEXT, "prompt": Kind.TEXT, "messages": Kind.SHAPED, "tools": Kind.SHAPED,
            "add_special_tokens": Kind.BOOLEAN, "return_token_strs": Kind.BOOLEAN,
        },
        CACHE_FIELDS | IGNORED,
        REFUSED,
    ),
    asks=(frozenset({"prompt"}), frozenset({"messages"})),
    salt=None,
    not_content=frozenset({"return_token_strs"}),
)  # fmt: skip
DETOKENIZE = Route(
    method="POST",
    path="/detokenize",
    dialect=Dialect.DETOKENIZATION,
    body=Shape({"model": Kind.TEXT, "tokens": Kind.INTEGERS}, CACHE_FIELDS | IGNORED, REFUSED),
    asks=(frozenset({"tokens"}),),
    salt=None,
    not_content=frozenset(),
)

ROUTES = (TOKENIZE, DETOKENIZE)
