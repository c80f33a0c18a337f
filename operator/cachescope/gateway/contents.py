"""What a request says in OpenAI's words: messages, items, parts and tools, held to the shapes that are known to be text.

Only text passes: engines cache images, audio and the like under hashes that know nothing of tenants, and take a client's `uuid` in
place of that hash (vllm-project/vllm#55439).

Names and shapes: OpenAI's API as the `openai` package has it, and what vLLM 0.32.0 reads in `renderers/chat_utils.py` and
`entrypoints/openai/responses/utils.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cachescope.engines.routes import Kind, Shape
from cachescope.gateway.sieve import MARKS, BadBody, Sieve, an_object, content, listed, shape, text_part
from cachescope.gateway.strict_json import Json


def messages(value: Json, sieve: Sieve) -> Json:
    """The messages of a chat."""
    return _conversation(value, sieve, "messages")


def conversations(value: Json, sieve: Sieve) -> Json:
    """The messages of several chats that go together."""
    chats = [_conversation(item, sieve, f"messages[{at}]") for at, item in listed(value, "messages")]
    return _not_empty(chats, "messages")


def items(value: Json, sieve: Sieve) -> Json:
    """The input of a response: text, or a list of items."""
    if isinstance(value, str):
        return value
    return [_item(item, sieve, f"input[{at}]") for at, item in listed(value, "input")]


def chat_tools(value: Json, sieve: Sieve) -> Json:
    """The tools of a chat: functions only."""
    return [_chat_tool(tool, sieve, f"tools[{at}]") for at, tool in listed(value, "tools")]


def response_tools(value: Json, sieve: Sieve) -> Json:
    """The tools of a response: functions only; hosted tools would act outside this request."""
    return [sieve.held(_function(tool, f"tools[{at}]"), _RESPONSE_TOOL, f"tools[{at}]") for at, tool in listed(value, "tools")]


def tool_choice(value: Json, sieve: Sieve) -> Json:
    """Which tool to call: a word, or a function by name."""
    if isinstance(value, str):
        return value
    choice = sieve.held(_function(value, "tool_choice"), _TOOL_CHOICE, "tool_choice")
    if choice.get("function") is None:
        return choice
    return choice | {"function": sieve.held(choice["function"], _CHOSEN_FUNCTION, "tool_choice.function")}


def stream_options(value: Json, sieve: Sieve) -> Json:
    """What a stream reports."""
    return sieve.held(value, _STREAM_OPTIONS, "stream_options")


def template_arguments(value: Json, _: Sieve) -> Json:
    """Arguments of the pool's chat template; never a template."""
    arguments = an_object(value, "chat_template_kwargs")
    for name in ("chat_template", "tokenize"):
        if name in arguments:
            where = f"chat_template_kwargs.{name}"
            raise BadBody(f"{where} would replace the pool's own template; remove it", where, code="unsupported_parameter")
    return value


def one_answer(value: Json, _: Sieve) -> Json:
    """How many answers a conversation of a batch gets."""
    if type(value) is not int or value != 1:
        raise BadBody("n is not 1; a batch has one answer a conversation", "n", code="unsupported_value")
    return value


def _conversation(value: Json, sieve: Sieve, path: str) -> Json:
    return _not_empty([_message(item, sieve, f"{path}[{at}]") for at, item in listed(value, path)], path)


def _not_empty(value: list[Json], path: str) -> Json:
    if not value:
        raise BadBody(f"{path} is empty; send at least one", path)
    return value


def _message(value: Json, sieve: Sieve, path: str) -> Json:
    message = sieve.held(value, _MESSAGE, path)
    if message.get("role") is None:
        raise BadBody(f"{path}.role is missing; send one", f"{path}.role", code="missing_required_parameter")
    changed: dict[str, Json] = {}
    if "content" in message:
        changed["content"] = content(message["content"], _CHAT_PARTS, sieve, f"{path}.content")
    if message.get("tool_calls"):
        changed["tool_calls"] = _tool_calls(message["tool_calls"], sieve, f"{path}.tool_calls")
    return message | changed


def _tool_calls(value: Json, sieve: Sieve, path: str) -> Json:
    def call(item: Json, where: str) -> Json:
        held = sieve.held(_function(item, where), _TOOL_CALL, where)
        return held | {"function": sieve.held(held.get("function"), _CALLED_FUNCTION, f"{where}.function")}

    return [call(item, f"{path}[{at}]") for at, item in listed(value, path)]


def _chat_tool(value: Json, sieve: Sieve, path: str) -> Json:
    tool = sieve.held(_function(value, path), _CHAT_TOOL, path)
    return tool | {"function": sieve.held(tool.get("function"), _DECLARED_FUNCTION, f"{path}.function")}


def _item(value: Json, sieve: Sieve, path: str) -> Json:
    found = an_object(value, path)
    kind = found.get("type", "message" if "role" in found else None)
    known = _ITEMS.get(kind) if isinstance(kind, str) else None
    if known is None:
        why = f"{path}.type is not supported; send messages, function calls with their outputs, and reasoning as text"
        raise BadBody(why, f"{path}.type", code="unsupported_value")
    of_item, texts = known
    item = sieve.held(value, of_item, path)
    changed = {name: content(item[name], parts, sieve, f"{path}.{name}") for name, parts in texts.items() if name in item}
    return item | changed


def _function(value: Json, path: str) -> dict[str, Json]:
    function = an_object(value, path)
    if function.get("type") != "function":
        why = f"{path}.type is not `function`: hosted tools are not offered; use function tools"
        raise BadBody(why, f"{path}.type", code="unsupported_value")
    return function


_CHAT_PARTS = {
    "text": text_part("text"),
    "refusal": text_part("refusal"),
    "thinking": text_part("thinking", {"closed": Kind.BOOLEAN}),
}
_MESSAGE_PARTS = {
    "input_text": text_part("text"),
    "output_text": text_part("text", drop=("annotations", "logprobs")),
    "text": text_part("text"),
    "refusal": text_part("refusal"),
}
_REASONING_PARTS = {"reasoning_text": text_part("text")}
_SUMMARY_PARTS = {"summary_text": text_part("text")}
_MESSAGE = shape(
    {
        "role": Kind.TEXT, "content": Kind.SHAPED, "name": Kind.TEXT, "tool_calls": Kind.LIST, "tool_call_id": Kind.TEXT,
        "reasoning": Kind.TEXT, "reasoning_content": Kind.TEXT, "refusal": Kind.TEXT,
    },
    drop=("annotations", *MARKS), empty=("audio", "function_call"),
)  # fmt: skip
_TOOL_CALL = shape({"id": Kind.TEXT, "type": Kind.TEXT, "function": Kind.OBJECT}, drop=("index",))
_CALLED_FUNCTION = shape({"name": Kind.TEXT, "arguments": Kind.TEXT})
_CHAT_TOOL = shape({"type": Kind.TEXT, "function": Kind.OBJECT}, drop=MARKS)
_FUNCTION = {"name": Kind.TEXT, "description": Kind.TEXT, "parameters": Kind.OBJECT, "strict": Kind.BOOLEAN}
_DECLARED_FUNCTION = shape(_FUNCTION)
_RESPONSE_TOOL = shape({"type": Kind.TEXT, **_FUNCTION}, empty=("allowed_callers", "defer_loading", "output_schema"))
_TOOL_CHOICE = shape({"type": Kind.TEXT, "name": Kind.TEXT, "function": Kind.OBJECT})
_CHOSEN_FUNCTION = shape({"name": Kind.TEXT})
_STREAM_OPTIONS = shape({"include_usage": Kind.BOOLEAN, "continuous_usage_stats": Kind.BOOLEAN}, drop=("include_obfuscation",))
_ITEM = {"type": Kind.TEXT, "id": Kind.TEXT, "status": Kind.TEXT}
_ITEMS: Mapping[str, tuple[Shape, Mapping[str, Mapping[str, Shape]]]] = {
    "message": (
        shape({**_ITEM, "role": Kind.TEXT, "content": Kind.SHAPED}, drop=("phase", *MARKS)),
        {"content": _MESSAGE_PARTS},
    ),
    "function_call": (
        shape({**_ITEM, "call_id": Kind.TEXT, "name": Kind.TEXT, "arguments": Kind.TEXT}, empty=("namespace", "caller")),
        {},
    ),
    "function_call_output": (
        shape({**_ITEM, "call_id": Kind.TEXT, "output": Kind.SHAPED}, empty=("name", "namespace", "caller")),
        {"output": _MESSAGE_PARTS},
    ),
    "reasoning": (
        shape({**_ITEM, "summary": Kind.SHAPED, "content": Kind.SHAPED}, empty=("encrypted_content",)),
        {"content": _REASONING_PARTS, "summary": _SUMMARY_PARTS},
    ),
}
