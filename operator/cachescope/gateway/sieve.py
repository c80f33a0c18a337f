"""The sieve: holds JSON objects to the names and kinds that their shapes list, and says what is wrong with a body.

Rules:

- every object has a list of names; another name is refused with its path, so that no part can carry what nobody looked at;
- every name says what it may hold; another kind is refused, since an engine could read it in a way of its own;
- nothing is changed in place: what is returned is new wherever something was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cachescope.core.errors import CacheScopeError
from cachescope.engines.routes import Kind, Shape
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
        """The object with only the names that its shape keeps, each of its kind.

        Raises:
            BadBody: It is no object, or holds a name that is refused or unknown, or something of another kind.
        """
        held = an_object(value, path)
        if not held.keys() <= shape.keep.keys():
            held = {name: item for name, item in held.items() if self._passes(name, item, shape, path)}
        for name, item in held.items():
            if item is not None:
                checked_kind(item, shape.keep[name], _joined(path, name))
        return held

    def _passes(self, name: str, value: Json, shape: Shape, path: str) -> bool:
        if name in shape.keep:
            return True
        where = _joined(path, shown(name))
        if name in shape.drop:
            self.removed.add(name)
            return False
        reason = shape.refuse.get(name)
        if reason is None:
            raise BadBody(f"{where} is not supported; remove it", where, code="unsupported_parameter")
        if value is None or value is False:
            return False
        raise BadBody(f"{where} is not supported: {reason}", where, code="unsupported_parameter")


Check = Callable[[Json, Sieve], Json]
"""Holds one field of a body to its shape, and returns what is left of it."""


def an_object(value: Json, path: str) -> dict[str, Json]:
    """The value as an object.

    Raises:
        BadBody: It is none.
    """
    if not isinstance(value, dict):
        raise BadBody(f"{path} is not an object; send one", path, code="invalid_type")
    return value


def listed(value: Json, path: str) -> Iterable[tuple[int, Json]]:
    """The items of a list with their positions.

    Raises:
        BadBody: It is none.
    """
    if not isinstance(value, list):
        raise BadBody(f"{path} is not a list; send one", path, code="invalid_type")
    return enumerate(value)


def checked_kind(value: Json, kind: Kind, path: str) -> Json:
    """The value, if it is of a kind.

    Raises:
        BadBody: It is of another.
    """
    if not _IS[kind](value):
        raise BadBody(f"{path} is not {kind.value}; correct it", path, code="invalid_type")
    return value


def content(value: Json, parts: Mapping[str, Shape], sieve: Sieve, path: str) -> Json:
    """Text, or a list of parts; `parts` says by type which there are."""
    if value is None or isinstance(value, str):
        return value
    return [part(item, parts, sieve, f"{path}[{at}]") for at, item in listed(value, path)]


def part(value: Json, parts: Mapping[str, Shape], sieve: Sieve, path: str) -> dict[str, Json]:
    """One part of a content; what is not text is refused, and so is text without a type.

    vLLM takes a bare text for a part on some routes, and on others fails where it looks for the type in its words.
    """
    if isinstance(value, str):
        why = f"{path} is text without a type; send a text part, or all of the content as one text"
        raise BadBody(why, path, code="invalid_type")
    kind = value.get("type") if isinstance(value, dict) else None
    shape = parts.get(kind) if isinstance(kind, str) else None
    if shape is None:
        why = f"{path} is not text: multimodal input is not isolated between tenants yet; send text parts"
        raise BadBody(why, path, code="unsupported_value")
    return sieve.held(value, shape, path)


def shape(keep: Mapping[str, Kind], *, drop: Iterable[str] = (), empty: Iterable[str] = ()) -> Shape:
    """A shape; names in `empty` come as `null` in an answer that a client sends back, and mean nothing else."""
    return Shape(keep, frozenset(drop), dict.fromkeys(empty, "it is not offered; remove it"))


def text_part(name: str, keep: Mapping[str, Kind] | None = None, *, drop: Iterable[str] = (), empty: Iterable[str] = ()) -> Shape:
    """The shape of a part that holds text below a name."""
    return shape({"type": Kind.TEXT, name: Kind.TEXT, **(keep or {})}, drop=MARKS | set(drop), empty=empty)


MARKS = frozenset({"uuid", "cache_control", "prompt_cache_breakpoint", "cache_salt"})
"""Marks for caches: a client may send them, and they mean nothing here. A `uuid` in a text part makes vLLM look for media in it."""


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _all(kind: type, value: Json) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {kind}


def _is_integer(value: Json) -> bool:
    # `1.0` is an integer in JSON; `true` is one in Python alone.
    return type(value) is int or (type(value) is float and value.is_integer())


_IS: Mapping[Kind, Callable[[Json], bool]] = {
    Kind.TEXT: lambda value: type(value) is str,
    Kind.TEXTS: lambda value: _all(str, value),
    Kind.TEXT_OR_TEXTS: lambda value: type(value) is str or _all(str, value),
    Kind.BOOLEAN: lambda value: type(value) is bool,
    Kind.INTEGER: _is_integer,
    Kind.INTEGERS: lambda value: _all(int, value),
    Kind.NUMBER: lambda value: type(value) in {int, float},
    Kind.OBJECT: lambda value: type(value) is dict,
    Kind.LIST: lambda value: type(value) is list,
    Kind.SHAPED: lambda _: True,
}
