"""What a request says: messages, items, parts and tools, held to the shapes that are known to be text.

Rules:

- every object has a list of names; another name is refused with its path, so that no part can carry what nobody looked at;
- only text passes: engines cache images, audio and the like under hashes that know nothing of tenants, and take a client's `uuid`
  in place of that hash (vllm-project/vllm#55439);
- nothing is changed in place: what is returned is new wherever something was removed.

Names and shapes: OpenAI's API as the `openai` package has it, and what vLLM 0.32.0 reads in `renderers/chat_utils.py` and
`entrypoints/openai/responses/utils.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cachescope.core.errors import CacheScopeError
from cachescope.engines.routes import Shape
from cachescope.gateway.strict_json import Json, shown


class BadBody(CacheScopeError):  # noqa: N818 - says what it is, as the HTTP status does
    """The client's body cannot be served as it is; a 400 in OpenAI's shape.

    Attributes:
        message: What is wrong and what to do; safe to show to the client.
        param: Path of the field at fault, or `None` for the whole body.
        code: OpenAI's code: `invalid_json`, `invalid_type`, `invalid_value`, `missing_required_parameter`,
            `unsupported_parameter` or `unsupported_value`.
    """

    def __init__(self, message: str, param: str | None = None, *, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


@dataclass(slots=True)
class Sieve:
    """Holds objects to shapes, and remembers what it removed.

    Attributes:
        removed: Names of fields that were removed; from the lists of shapes, so bounded.
    """

    removed: set[str] = field(default_factory=set)

    def held(self, value: Json, shape: Shape, path: str) -> dict[str, Json]:
        """The object with only the names that its shape keeps.

        Raises:
            BadBody: It is no object, or holds a name that is refused or unknown.
        """
        if not isinstance(value, dict):
            raise BadBody(f"{path} is not an object; send one", path, code="invalid_type")
        if value.keys() <= shape.keep:
            return value
        return {name: item for name, item in value.items() if self._passes(name, item, shape, path)}

    def _passes(self, name: str, value: Json, shape: Shape, path: str) -> bool:
        if name in shape.keep:
            return True
        where = f"{path}.{shown(name)}" if path else shown(name)
        if name in shape.drop:
            self.removed.add(name)
            return False
        reason = shape.refuse.get(name)
        if reason is None:
            raise BadBody(f"{where} is not supported; remove it", where, code="unsupported_parameter")
        if value is None or value is False:
            return False
        raise BadBody(f"{where} is not supported: {reason}", where, code="unsupported_parameter")


def messages(value: Json, sieve: Sieve) -> Json:
    """The messages of a chat."""
    return [_message(item, sieve, f"messages[{at}]") for at, item in _listed(value, "messages")]


def items(value: Json, sieve: Sieve) -> Json:
    """The input of a response: text, or a list of items."""
    if isinstance(value, str):
        return value
    return [_item(item, sieve, f"input[{at}]") for at, item in _listed(value, "input")]


def prompt(value: Json, _: Sieve) -> Json:
    """The prompt of a completion: text, tokens, or a list of either."""
    if not value or not _is_prompt(value):
        raise BadBody("prompt is not text, token ids, or a list of either; send one of these", "prompt", code="invalid_type")
    return value


def chat_tools(value: Json, sieve: Sieve) -> Json:
    """The tools of a chat: functions only."""
    return [_chat_tool(tool, sieve, f"tools[{at}]") for at, tool in _listed(value, "tools")]


def response_tools(value: Json, sieve: Sieve) -> Json:
    """The tools of a response: functions only; hosted tools would act outside this request."""
    return [sieve.held(_function(tool, f"tools[{at}]"), _RESPONSE_TOOL, f"tools[{at}]") for at, tool in _listed(value, "tools")]


def tool_choice(value: Json, sieve: Sieve) -> Json:
    """Which tool to call: a word, or a function by name."""
    return value if isinstance(value, str) else sieve.held(_function(value, "tool_choice"), _TOOL_CHOICE, "tool_choice")


def stream(value: Json, _: Sieve) -> Json:
    """Whether to stream; engines take `"true"` for true, so only real booleans leave no doubt."""
    if not isinstance(value, bool):
        raise BadBody("stream is not true or false; send one of these", "stream", code="invalid_type")
    return value


def stream_options(value: Json, sieve: Sieve) -> Json:
    """What a stream reports."""
    return sieve.held(value, _STREAM_OPTIONS, "stream_options")


def template_arguments(value: Json, _: Sieve) -> Json:
    """Arguments of the pool's chat template; never a template."""
    if not isinstance(value, dict):
        raise BadBody("chat_template_kwargs is not an object; send one", "chat_template_kwargs", code="invalid_type")
    for name in ("chat_template", "tokenize"):
        if name in value:
            where = f"chat_template_kwargs.{name}"
            raise BadBody(f"{where} would replace the pool's own template; remove it", where, code="unsupported_parameter")
    return value


def _is_prompt(value: Json) -> bool:
    if not isinstance(value, list):
        return isinstance(value, str)
    kinds = set(map(type, value))
    if not kinds <= {str, int, list}:
        return False
    return list not in kinds or all(set(map(type, item)) == {int} for item in value if isinstance(item, list))


def _message(value: Json, sieve: Sieve, path: str) -> Json:
    message = sieve.held(value, _MESSAGE, path)
    if not isinstance(message.get("role"), str):
        raise BadBody(f"{path}.role is missing or not text; send one", f"{path}.role", code="missing_required_parameter")
    changed: dict[str, Json] = {}
    if "content" in message:
        changed["content"] = _content(message["content"], _CHAT_PARTS, sieve, f"{path}.content")
    if message.get("tool_calls"):
        changed["tool_calls"] = _tool_calls(message["tool_calls"], sieve, f"{path}.tool_calls")
    return message | changed


def _tool_calls(value: Json, sieve: Sieve, path: str) -> Json:
    def call(item: Json, where: str) -> Json:
        held = sieve.held(_function(item, where), _TOOL_CALL, where)
        return held | {"function": sieve.held(held.get("function"), _CALLED_FUNCTION, f"{where}.function")}

    return [call(item, f"{path}[{at}]") for at, item in _listed(value, path)]


def _chat_tool(value: Json, sieve: Sieve, path: str) -> Json:
    tool = sieve.held(_function(value, path), _CHAT_TOOL, path)
    return tool | {"function": sieve.held(tool.get("function"), _DECLARED_FUNCTION, f"{path}.function")}


def _item(value: Json, sieve: Sieve, path: str) -> Json:
    if not isinstance(value, dict):
        raise BadBody(f"{path} is not an object; send one", path, code="invalid_type")
    kind = value.get("type", "message" if "role" in value else None)
    found = _ITEMS.get(kind) if isinstance(kind, str) else None
    if found is None:
        why = f"{path}.type is not supported; send messages, function calls with their outputs, and reasoning as text"
        raise BadBody(why, f"{path}.type", code="unsupported_value")
    shape, texts = found
    item = sieve.held(value, shape, path)
    changed = {name: _content(item[name], parts, sieve, f"{path}.{name}") for name, parts in texts.items() if name in item}
    return item | changed


def _content(value: Json, parts: Mapping[str, Shape], sieve: Sieve, path: str) -> Json:
    if value is None or isinstance(value, str):
        return value
    return [item if isinstance(item, str) else _part(item, parts, sieve, f"{path}[{at}]") for at, item in _listed(value, path)]


def _part(value: Json, parts: Mapping[str, Shape], sieve: Sieve, path: str) -> Json:
    kind = value.get("type") if isinstance(value, dict) else None
    shape = parts.get(kind) if isinstance(kind, str) else None
    if shape is None:
        why = f"{path} is not text: multimodal input is not isolated between tenants yet; send text parts"
        raise BadBody(why, path, code="unsupported_value")
    return sieve.held(value, shape, path)


def _function(value: Json, path: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise BadBody(f"{path} is not an object; send one", path, code="invalid_type")
    if value.get("type") != "function":
        why = f"{path}.type is not `function`: hosted tools are not offered; use function tools"
        raise BadBody(why, f"{path}.type", code="unsupported_value")
    return value


def _listed(value: Json, path: str) -> Iterable[tuple[int, Json]]:
    if not isinstance(value, list):
        raise BadBody(f"{path} is not a list; send one", path, code="invalid_type")
    return enumerate(value)


def _shape(*keep: str, drop: Iterable[str] = (), empty: Iterable[str] = ()) -> Shape:
    """A shape; names in `empty` come as `null` in an answer that a client sends back, and mean nothing else."""
    return Shape(frozenset(keep), frozenset(drop), dict.fromkeys(empty, "it is not offered; remove it"))


# Marks for caches: a client may send them, and they mean nothing here. A `uuid` in a text part makes vLLM look for media in it.
_MARKS = frozenset({"uuid", "cache_control", "prompt_cache_breakpoint", "cache_salt"})


def _text(field_name: str, *more: str, drop: Iterable[str] = ()) -> Shape:
    return _shape("type", field_name, *more, drop=_MARKS | set(drop))


_CHAT_PARTS = {"text": _text("text"), "refusal": _text("refusal"), "thinking": _text("thinking", "closed")}
_MESSAGE_PARTS = {
    "input_text": _text("text"),
    "output_text": _text("text", drop=("annotations", "logprobs")),
    "text": _text("text"),
    "refusal": _text("refusal"),
}
_REASONING_PARTS = {"reasoning_text": _text("text")}
_SUMMARY_PARTS = {"summary_text": _text("text")}
_MESSAGE = _shape(
    "role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "refusal",
    drop=("annotations", *_MARKS), empty=("audio", "function_call"),
)  # fmt: skip
_TOOL_CALL = _shape("id", "type", "function", drop=("index",))
_CALLED_FUNCTION = _shape("name", "arguments")
_CHAT_TOOL = _shape("type", "function", drop=_MARKS)
_DECLARED_FUNCTION = _shape("name", "description", "parameters", "strict")
_RESPONSE_TOOL = _shape(
    "type", "name", "description", "parameters", "strict", empty=("allowed_callers", "defer_loading", "output_schema")
)
_TOOL_CHOICE = _shape("type", "name", "function")
_STREAM_OPTIONS = _shape("include_usage", "continuous_usage_stats", drop=("include_obfuscation",))
_ITEMS: Mapping[str, tuple[Shape, Mapping[str, Mapping[str, Shape]]]] = {
    "message": (_shape("type", "role", "content", "id", "status", drop=("phase", *_MARKS)), {"content": _MESSAGE_PARTS}),
    "function_call": (_shape("type", "id", "call_id", "name", "arguments", "status", empty=("namespace", "caller")), {}),
    "function_call_output": (
        _shape("type", "id", "call_id", "output", "status", empty=("name", "namespace", "caller")),
        {"output": _MESSAGE_PARTS},
    ),
    "reasoning": (
        _shape("type", "id", "summary", "content", "status", empty=("encrypted_content",)),
        {"content": _REASONING_PARTS, "summary": _SUMMARY_PARTS},
    ),
}

Check = Callable[[Json, Sieve], Json]
