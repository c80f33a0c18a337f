"""What the catalogue says of an engine: how far a version isolates, and what each of its routes accepts.

Rules:

- a route that is not listed does not exist, and a field that is not listed is refused;
- what nobody has shown is `UNKNOWN`, and `UNKNOWN` is never treated as `ENFORCED`;
- a route has a salt field, or its engine knows no salts and says so (`unsalted`), or its requests never reach the cache.
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
    """What a route is asked for, and in whose words; part of a request's content, since each has defaults of its own."""

    CHAT = "chat"
    CHAT_BATCH = "chat-batch"
    COMPLETION = "completion"
    RESPONSE = "response"
    MESSAGE = "message"
    COUNTING = "counting"
    EMBEDDING = "embedding"
    POOLING = "pooling"
    CLASSIFICATION = "classification"
    SCORE = "score"
    RERANKING = "reranking"
    TOKENIZATION = "tokenization"
    DETOKENIZATION = "detokenization"


class Kind(StrEnum):
    """What JSON a field may hold; `null` always passes, and means that the client did not ask.

    The value ends the sentence "… is not …". An engine would turn `"true"` into true and `"7"` into 7: what is one thing here and
    another there is refused.
    """

    TEXT = "text"
    TEXTS = "a list of texts"
    TEXT_OR_TEXTS = "text or a list of texts"
    BOOLEAN = "true or false"
    INTEGER = "an integer"
    INTEGERS = "a list of integers"
    NUMBER = "a number"
    OBJECT = "an object"
    LIST = "a list"
    SHAPED = "of the documented shape"
    """Held to a shape of its own, by the gateway's contents."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The names that a JSON object may hold.

    Attributes:
        keep: Names that pass, each with what it may hold.
        drop: Names that are removed without a word.
        refuse: Names that are refused, each with its reason; `null` and `false` mean that the client did not ask, and are removed.
    """

    keep: Mapping[str, Kind]
    drop: frozenset[str] = frozenset()
    refuse: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class SaltField:
    """How a route takes its salt.

    Attributes:
        name: The body field that carries it.
        since: First version in which the salt reaches the cache on every path of this route.
    """

    name: str
    since: str


@dataclass(frozen=True, slots=True)
class Unsalted:
    """A route whose requests reach a cache that no salt keeps apart.

    Attributes:
        bypass: The field by which a request reuses nothing, with its value; empty where the engine has none.
    """

    bypass: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Route:
    """One route of an engine that clients may reach.

    Attributes:
        method: HTTP method.
        path: Exact path, without a query.
        dialect: Which request shape it speaks.
        body: Names that the request's body may hold.
        asks: What must be there: exactly one of these sets of names, whole, and nothing of another.
        salt: How it takes its salt; `None` where it takes none.
        not_content: Kept names that cannot change the tokens of the prompt; every other kept name is content.
        forced: Values that are always set, whatever the client says.
        unsalted: What holds where requests reach a cache without a salt; `None` where they have one, or reach no cache.
    """

    method: str
    path: str
    dialect: Dialect
    body: Shape
    asks: tuple[frozenset[str], ...]
    salt: SaltField | None
    not_content: frozenset[str]
    forced: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    unsalted: Unsalted | None = None

    @property
    def cached(self) -> bool:
        """Whether its requests reach a cache."""
        return self.salt is not None or self.unsalted is not None
