"""What a request says in Anthropic's words: messages, blocks and tools, held to the shapes that are known to be text.

Names and shapes: what vLLM 0.32.0 reads in `entrypoints/anthropic/{protocol,serving}.py`. It turns them into a chat of its own, and
passes over what it does not know; so, as everywhere, what is not listed here is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from cachescope.engines.routes import Kind, Shape
from cachescope.gateway.sieve import MARKS, BadBody, Sieve, an_object, content, listed, shape, text_part
from cachescope.gateway.strict_json import Json


def messages(value: Json, sieve: Sieve) -> Json:
    """The messages of a conversation."""
    found = [_message(item, sieve, f"messages[{at}]") for at, item in listed(value, "messages")]
    if not found:
        raise BadBody("messages is empty; send at least one", "messages")
    return found


def system(value: Json, sieve: Sieve) -> Json:
    """The system prompt: text, or text blocks."""
    return content(value, _TEXTS, sieve, "system")


def tools(value: Json, sieve: Sieve) -> Json:
    """The tools: those that the client runs itself."""
    return [_tool(item, sieve, f"tools[{at}]") for at, item in listed(value, "tools")]


def tool_choice(value: Json, sieve: Sieve) -> Json:
    """Which tool to call."""
    return sieve.held(value, _TOOL_CHOICE, "tool_choice")


def thinking(value: Json, sieve: Sieve) -> Json:
    """Whether to think, and how long."""
    return sieve.held(value, _THINKING, "thinking")


def output_config(value: Json, sieve: Sieve) -> Json:
    """How much effort, and in which form to answer."""
    found = sieve.held(value, _OUTPUT_CONFIG, "output_config")
    if found.get("format") is None:
        return found
    return found | {"format": sieve.held(found["format"], _FORMAT, "output_config.format")}


def _message(value: Json, sieve: Sieve, path: str) -> Json:
    message = sieve.held(value, _MESSAGE, path)
    for name in ("role", "content"):
        if message.get(name) is None:
            raise BadBody(f"{path}.{name} is missing; send one", f"{path}.{name}", code="missing_required_parameter")
    return message | {"content": _blocks(message["content"], sieve, f"{path}.content")}


def _blocks(value: Json, sieve: Sieve, path: str) -> Json:
    return value if isinstance(value, str) else [_block(item, sieve, f"{path}[{at}]") for at, item in listed(value, path)]


def _block(value: Json, sieve: Sieve, path: str) -> Json:
    kind = an_object(value, path).get("type")
    known = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if known is None:
        why = (
            f"{path} is neither text, thinking, tool_use nor tool_result: media are not isolated between tenants yet, and others' "
            "results are not known here; send one of these"
        )
        raise BadBody(why, path, code="unsupported_value")
    block = sieve.held(value, known, path)
    return block | {"content": content(block["content"], _TEXTS, sieve, f"{path}.content")} if "content" in block else block


def _tool(value: Json, sieve: Sieve, path: str) -> Json:
    if an_object(value, path).get("type") not in ("custom", None):
        why = f"{path}.type is not `custom`: hosted tools are not offered; declare a tool with its input_schema"
        raise BadBody(why, f"{path}.type", code="unsupported_value")
    return sieve.held(value, _TOOL, path)


_TEXTS = {"text": text_part("text", empty=("citations",))}
_BLOCKS: Mapping[str, Shape] = {
    **_TEXTS,
    "thinking": text_part("thinking", {"signature": Kind.TEXT}),
    "tool_use": shape({"type": Kind.TEXT, "id": Kind.TEXT, "name": Kind.TEXT, "input": Kind.OBJECT}, drop=MARKS, empty=("caller",)),
    "tool_result": shape(
        {"type": Kind.TEXT, "tool_use_id": Kind.TEXT, "content": Kind.SHAPED, "is_error": Kind.BOOLEAN}, drop=MARKS
    ),
}
_MESSAGE = shape({"role": Kind.TEXT, "content": Kind.SHAPED}, drop=MARKS)
_TOOL = shape(
    {
        "type": Kind.TEXT, "name": Kind.TEXT, "description": Kind.TEXT, "input_schema": Kind.OBJECT, "strict": Kind.BOOLEAN,
    },
    drop=MARKS, empty=("allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"),
)  # fmt: skip
_TOOL_CHOICE = shape({"type": Kind.TEXT, "name": Kind.TEXT, "disable_parallel_tool_use": Kind.BOOLEAN})
_THINKING = shape({"type": Kind.TEXT, "budget_tokens": Kind.INTEGER, "display": Kind.TEXT})
_OUTPUT_CONFIG = shape({"effort": Kind.TEXT, "format": Kind.OBJECT})
_FORMAT = shape({"type": Kind.TEXT, "schema": Kind.OBJECT})
