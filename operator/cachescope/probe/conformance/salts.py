"""Pairs of salts that an engine must keep apart, and values that it must not take for a salt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cachescope.probe.cases import Identity
from cachescope.probe.places import SALT
from cachescope.probe.prompts import salt

LONGEST, OVER_LONG = 128, 4096


@dataclass(frozen=True, slots=True)
class Pair:
    """Two salts.

    Attributes:
        name: In what they differ.
        salts: The two; an empty one means that none is sent.
    """

    name: str
    salts: tuple[str, str] = field(repr=False)

    @property
    def identities(self) -> tuple[Identity, Identity]:
        """Who sends them."""
        return _identity(self.salts[0]), _identity(self.salts[1])


NOBODY = (Identity(), Identity())
"""Two that nothing tells apart."""


def plain(seed: str) -> Pair:
    """Two salts as gateways make them."""
    return Pair("two salts", (salt(seed, "one"), salt(seed, "two")))


def near(seed: str) -> tuple[Pair, ...]:
    """Pairs that an engine could take for one and the same, if it cuts, folds or joins what it is given."""
    made = salt(seed, "near")
    return (
        Pair("the last character", (f"{made[:-1]}A", f"{made[:-1]}B")),
        Pair("the first character", (f"A{made[1:]}", f"B{made[1:]}")),
        Pair("letter case", (f"{made}salt".lower(), f"{made}salt".upper())),
        Pair("one begins the other", (made[:32], made)),
        Pair("a space at the end", (made, f"{made} ")),
        Pair("a composed letter", (f"{made}\u00e9", f"{made}e\u0301")),
        Pair("none beside one", ("", made)),
        Pair(f"the last of {LONGEST} characters", _long(made, LONGEST)),
        Pair(f"the last of {OVER_LONG} characters", _long(made, OVER_LONG)),
        *(Pair(f"what follows {name}", (f"{made}{mark}a", f"{made}{mark}b")) for name, mark in _MARKS.items()),
    )


_MARKS = MappingProxyType({"/": "/", "@": "@", "\\": "\\", "NUL": "\0"})

NO_SALTS: Mapping[str, object] = MappingProxyType(
    {"empty": "", "a number": 7, "a truth value": True, "a list": ["salt"], "an object": {"salt": "salt"}}
)
"""Values that must be refused: an engine that takes them goes on without a salt, or with one that it makes of them."""


def _identity(salted: str) -> Identity:
    return Identity(fields=SALT.fields(salted), secret=salted) if salted else Identity()


def _long(made: str, length: int) -> tuple[str, str]:
    body = (made * (length // len(made) + 1))[: length - 1]
    return f"{body}A", f"{body}B"
