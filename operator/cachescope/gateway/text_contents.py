"""What a request says without messages: prompts, inputs to be pooled, and texts to be compared.

Only text and tokens pass, as everywhere. Names and shapes: what vLLM 0.32.0 reads in `entrypoints/openai/completion/protocol.py`
and `entrypoints/pooling/{base,pooling,scoring}/protocol.py`.
"""

from __future__ import annotations

from cachescope.gateway.sieve import BadBody, Check, Sieve
from cachescope.gateway.strict_json import Json

# `plugin` would hand the request to code that nobody read.
_TASKS = ("embed", "classify", "token_embed", "token_classify", "embed&token_classify")


def prompt(name: str) -> Check:
    """The check of a field that holds text, tokens, or a list of either."""

    def check(value: Json, _: Sieve) -> Json:
        if not value or not _is_prompt(value):
            raise BadBody(f"{name} is not text, token ids, or a list of either; send one of these", name, code="invalid_type")
        return value

    return check


def texts(name: str) -> Check:
    """The check of a field that holds text, or a list of texts, to be compared with others."""

    def check(value: Json, _: Sieve) -> Json:
        if not value or not (isinstance(value, str) or (isinstance(value, list) and set(map(type, value)) == {str})):
            why = f"{name} is not text or a list of texts: multimodal input is not isolated between tenants yet; send text"
            raise BadBody(why, name, code="invalid_type")
        return value

    return check


def query(value: Json, _: Sieve) -> Json:
    """The text that documents are ranked by."""
    if not value or not isinstance(value, str):
        why = "query is not text: multimodal input is not isolated between tenants yet; send one text"
        raise BadBody(why, "query", code="invalid_type")
    return value


def task(value: Json, _: Sieve) -> Json:
    """What to make of the pooled model."""
    if value not in _TASKS:
        raise BadBody(f"task is none of {', '.join(_TASKS)}; name one of these, or leave it out", "task", code="unsupported_value")
    return value


def _is_prompt(value: Json) -> bool:
    if not isinstance(value, list):
        return isinstance(value, str)
    kinds = set(map(type, value))
    if not kinds <= {str, int, list}:
        return False
    return list not in kinds or all(set(map(type, item)) == {int} for item in value if isinstance(item, list))
