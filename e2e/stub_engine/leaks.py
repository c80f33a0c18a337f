"""What a bad engine does with salts, on purpose: `--leak NAME`. Whatever proves isolation must fail on each of these.

| name | what it does |
| --- | --- |
| `one-route` | ignores the salt at `/v1/completions` alone |
| `after-restart` | ignores it in every process but the first |
| `first-characters` | knows only the first 8 characters of a salt |
| `letter-case` | takes upper and lower case for the same |
| `streamed` | ignores the salt where the answer is streamed |
| `header` | lets the header `x-cache-salt` choose, if it is there |
| `extra-key` | lets the body's `extra_key` choose, if it is there |
| `several-answers` | ignores the salt where more than one answer is asked for |
| `untold` | ignores the salt, and says of every request that it found nothing |
| `everywhere` | ignores the salt, as an engine does that has none |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from e2e.stub_engine.asking import Asked

Headers = Iterable[tuple[bytes, bytes]]
_HEADER = b"x-cache-salt"
_KNOWN_CHARACTERS = 8


class Leak(StrEnum):
    """One way to leak."""

    ONE_ROUTE = "one-route"
    AFTER_RESTART = "after-restart"
    FIRST_CHARACTERS = "first-characters"
    LETTER_CASE = "letter-case"
    STREAMED = "streamed"
    HEADER = "header"
    EXTRA_KEY = "extra-key"
    SEVERAL_ANSWERS = "several-answers"
    UNTOLD = "untold"
    EVERYWHERE = "everywhere"


_SALTS: Mapping[Leak, Callable[[Asked], str]] = MappingProxyType({
    Leak.ONE_ROUTE: lambda asked: asked.salt if asked.chat else "",
    Leak.FIRST_CHARACTERS: lambda asked: asked.salt[:_KNOWN_CHARACTERS],
    Leak.LETTER_CASE: lambda asked: asked.salt.lower(),
    Leak.STREAMED: lambda asked: "" if asked.stream else asked.salt,
    Leak.EXTRA_KEY: lambda asked: asked.extra_key or asked.salt,
    Leak.SEVERAL_ANSWERS: lambda asked: asked.salt if asked.answers == 1 else "",
    Leak.UNTOLD: lambda _: "",
    Leak.EVERYWHERE: lambda _: "",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Leaks:
    """What an engine does wrong.

    Attributes:
        names: The leaks; an honest engine has none.
        restarted: Whether another process began before this one.
    """

    names: frozenset[Leak] = frozenset()
    restarted: bool = False

    def applied(self, asked: Asked, headers: Headers) -> Asked:
        """A request as the engine understands it."""
        for name in self.names:
            asked = replace(asked, salt=self._salt(name, asked, headers))
        return replace(asked, tells_cached=Leak.UNTOLD not in self.names)

    def _salt(self, name: Leak, asked: Asked, headers: Headers) -> str:
        if name is Leak.AFTER_RESTART:
            return "" if self.restarted else asked.salt
        if name is Leak.HEADER:
            return next((value.decode("latin-1") for header, value in headers if header == _HEADER), asked.salt)
        return _SALTS[name](asked)
