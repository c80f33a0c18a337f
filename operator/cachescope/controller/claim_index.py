"""The claims that stand, each of one owner, so indexed that what overlaps is found without comparing claims one by one.

A claim on tokens is free when each claim of others asks for some value that it excludes. For each (name, value) that it asks for,
those are the claims that ask for the same name with another value. Claims are numbered, and sets of thousands of them are the bits
of one integer: the work for one claim is a few operations for each name in it, whatever all the others ask for.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from cachescope.api.claims import Claim, JwtClaim, Lists

_MANY: Final = 32

K = TypeVar("K", bound=Hashable)


class Owner(NamedTuple):
    """A Tenant by its names, which it keeps when it is made anew."""

    namespace: str
    name: str


class Holding(NamedTuple):
    """The text of a claim, and whose it is."""

    owner: Owner
    text: str


class ClaimIndex:
    """Claims that stand.

    Args:
        lists: The token claims that may have several values, by provider.

    Attributes:
        looks: How often sets of claims were compared: what a decision costs.
    """

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._tokens: dict[str, _Tokens] = {}
        self._others: defaultdict[str, dict[Owner, None]] = defaultdict(dict)
        self._claims: dict[Holding, Claim | None] = {}
        self.looks = 0

    def __contains__(self, holding: Holding) -> bool:
        return holding in self._claims

    def add(self, holding: Holding, claim: Claim | None) -> None:
        """Let a claim stand. One that cannot be read (`None`) stands for its own text and nothing else."""
        if holding in self._claims:
            return
        self._claims[holding] = claim
        if isinstance(claim, JwtClaim):
            self._tokens.setdefault(claim.provider, _Tokens()).add(holding, claim.told_apart_by(self._lists))
        else:
            self._others[holding.text][holding.owner] = None

    def remove(self, holding: Holding) -> None:
        """Forget one."""
        claim = self._claims.pop(holding, None)
        if isinstance(claim, JwtClaim):
            self._tokens[claim.provider].remove(holding, claim.told_apart_by(self._lists))
        elif owners := self._others.get(holding.text):
            owners.pop(holding.owner, None)
            _drop_empty(self._others, [holding.text])

    def blocker(self, owner: Owner, claim: Claim) -> Holding | None:
        """A claim of somebody else that overlaps, or `None`."""
        if isinstance(claim, JwtClaim):
            asked = claim.told_apart_by(self._lists)
            self.looks += len(asked) + 1
            tokens = self._tokens.get(claim.provider)
            return tokens.blocker(owner, asked) if tokens else None
        self.looks += 1
        found = next((other for other in self._others.get(str(claim), ()) if other != owner), None)
        return Holding(found, str(claim)) if found else None


class _Numbers:
    """A set of numbers; one of many is also kept as the bits of an integer."""

    __slots__ = ("_bits", "_members")

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._bits: int | None = None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, number: int) -> None:
        self._members.add(number)
        if self._bits is not None:
            self._bits |= 1 << number
        elif len(self._members) > _MANY:
            self._bits = self._summed()

    def discard(self, number: int) -> None:
        self._members.discard(number)
        if self._bits is not None:
            self._bits &= ~(1 << number)

    def bits(self) -> int:
        return self._summed() if self._bits is None else self._bits

    def _summed(self) -> int:
        return sum(1 << number for number in self._members)


_NONE: Final = _Numbers()


class _Tokens:
    """Claims on the tokens of one provider."""

    def __init__(self) -> None:
        self._all = 0
        self._holdings: dict[int, Holding] = {}
        self._numbers: dict[Holding, int] = {}
        self._unused: list[int] = []
        self._owned: defaultdict[Owner, _Numbers] = defaultdict(_Numbers)
        self._asking: defaultdict[str, _Numbers] = defaultdict(_Numbers)
        self._equal: defaultdict[tuple[str, str], _Numbers] = defaultdict(_Numbers)

    def add(self, holding: Holding, asked: Mapping[str, str]) -> None:
        number = heapq.heappop(self._unused) if self._unused else len(self._holdings)
        self._holdings[number], self._numbers[holding] = holding, number
        self._all |= 1 << number
        for numbers in self._places(holding.owner, asked):
            numbers.add(number)

    def remove(self, holding: Holding, asked: Mapping[str, str]) -> None:
        number = self._numbers.pop(holding)
        del self._holdings[number]
        heapq.heappush(self._unused, number)
        self._all &= ~(1 << number)
        for numbers in self._places(holding.owner, asked):
            numbers.discard(number)
        _drop_empty(self._owned, [holding.owner])
        _drop_empty(self._asking, asked)
        _drop_empty(self._equal, asked.items())

    def blocker(self, owner: Owner, asked: Mapping[str, str]) -> Holding | None:
        left = self._all & ~self._owned.get(owner, _NONE).bits()
        for name, value in asked.items():
            if not left:
                return None
            others = self._asking.get(name, _NONE).bits() & ~self._equal.get((name, value), _NONE).bits()
            left &= ~others
        return self._holdings[(left & -left).bit_length() - 1] if left else None

    def _places(self, owner: Owner, asked: Mapping[str, str]) -> Iterable[_Numbers]:
        return [self._owned[owner], *(self._asking[name] for name in asked), *(self._equal[item] for item in asked.items())]


def _drop_empty(places: dict[K, _Numbers] | dict[K, dict[Owner, None]], keys: Collection[K]) -> None:
    for key in keys:
        if not places[key]:
            del places[key]
