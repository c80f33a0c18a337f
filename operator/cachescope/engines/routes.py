"""What the catalogue says of an engine: how far a version isolates, and what each of its routes accepts.

Rules:

- a route that is not listed does not exist, and a field that is not listed is refused;
- what nobody has shown is `UNKNOWN`, and `UNKNOWN` is never treated as `ENFORCED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Capability(StrEnum):
    """What an engine's version does with a salt."""

    ENFORCED = "Enforced"
    BROKEN = "Broken"
    UNSUPPORTED = "Unsupported"
    UNKNOWN = "Unknown"


class Dialect(StrEnum):
    """Which of OpenAI's request shapes a route speaks."""

    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True)
class Shape:
    """The names that a JSON object may hold.

    Attributes:
        keep: Names that pass.
        drop: Names that are removed without a word.
        refuse: Names that are refused, each with its reason; `null` and `false` mean that the client did not ask, and are removed.
    """

    keep: frozenset[str]
    drop: frozenset[str] = frozenset()
    refuse: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Route:
    """One route of an engine that clients may reach.

    Attributes:
        method: HTTP method.
        path: Exact path, without a query.
        dialect: Which request shape it speaks.
        body: Names that the request's body may hold.
        salt_field: The body field that carries the salt.
        not_content: Kept names that cannot change the tokens of the prompt; every other kept name is content.
        forced: Values that are always set, whatever the client says.
    """

    method: str
    path: str
    dialect: Dialect
    body: Shape
    salt_field: str
    not_content: frozenset[str]
    forced: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
