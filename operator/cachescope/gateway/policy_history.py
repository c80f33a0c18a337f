"""Whether the policy in force is at least as new as the heads that were read: by the digests that each watch passed through.

Rules:

- an authorization head names the digest of each kind that policy is compiled from. It is *loaded* once the configuration in force
  was compiled from a state that had that digest, or from a later one;
- a digest that no watch passed through (it stalled, or was listed anew over a gap) is loaded by a list by quorum that began after
  the head was read: whatever the digest was of, that list is not older;
- once loaded, a digest stays so for as long as a head names it, however far policy went on meanwhile;
- a kind that is not followed here says nothing, and a head without digests asks for nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cachescope.core.ledgers import Ledger
from cachescope.core.policy_digest import PolicyDigest
from cachescope.core.types import Digest
from cachescope.gateway.readings import Reading

REMEMBERED: Final = 4096


class Wanted(NamedTuple):
    """A digest that a head names."""

    kind: str
    digest: Digest


class PolicyHistory:
    """The digests of one kind that its watch passed through, and the version of the store at which each came last."""

    def __init__(self) -> None:
        self._digest = PolicyDigest()
        self._versions: OrderedDict[Digest, int] = OrderedDict()
        self._last: Digest | None = None

    def replaced(self, before: Reading[Any] | None, after: Reading[Any] | None) -> None:
        """One object became another, or came, or went."""
        if before is not None:
            self._digest.remove(before.element)
        if after is not None:
            self._digest.add(after.element)

    def record(self, version: int) -> None:
        """What was replaced so far is a state that the API server had."""
        digest = self._digest.digest()
        if digest != self._last:  # else something changed that policy is not made of
            self._last = digest
            self.accept(digest, version)

    def accept(self, digest: Digest, version: int) -> None:
        """From that version on the store is at least as new as that digest."""
        self._versions[digest] = version
        self._versions.move_to_end(digest)
        while len(self._versions) > REMEMBERED:
            self._versions.popitem(last=False)

    def version_of(self, digest: Digest) -> int | None:
        """The version of the store that had that digest last, or `None` when none that is remembered had it."""
        return self._versions.get(digest)


class PolicyLoading:
    """What heads want, against what is compiled.

    Args:
        histories: The digests that were passed through, by kind.

    """

    def __init__(self, histories: Mapping[str, PolicyHistory]) -> None:
        self._histories = histories
        self._compiled: Mapping[str, int] = {}
        self._wanted: frozenset[Wanted] = frozenset()
        self._met: frozenset[Wanted] = frozenset()
        self.unmet: frozenset[Wanted] = frozenset()
        self._complete = asyncio.Event()
        self._complete.set()
        self._lacking = asyncio.Event()

    def is_loaded(self, head: Ledger) -> bool:
        """Whether everything that an authorization head names is loaded."""
        return not any(Wanted(kind, digest) in self.unmet for kind, digest in head.policy.items())

    def want(self, heads: Iterable[Ledger]) -> None:
        """These are the authorization heads that were read."""
        named = (Wanted(kind, digest) for head in heads for kind, digest in head.policy.items())
        self._wanted = frozenset(wanted for wanted in named if wanted.kind in self._histories)
        self._look()

    def compiled(self, versions: Mapping[str, int]) -> None:
        """The configuration in force was compiled from these versions of the stores."""
        self._compiled = versions
        self._look()

    def listed(self, wanted: Iterable[Wanted], version: int) -> None:
        """A list by quorum that began when these were wanted was taken over; the store has that version since."""
        for kind, digest in wanted:
            self._histories[kind].accept(digest, version)
        self._look()

    async def complete(self) -> None:
        """Wait until everything that is wanted is loaded."""
        await self._complete.wait()

    async def lacking(self) -> None:
        """Wait until something is not loaded."""
        await self._lacking.wait()

    def _look(self) -> None:
        self._met = frozenset(wanted for wanted in self._wanted if wanted in self._met or self._loaded(wanted))
        self.unmet = self._wanted - self._met
        full, empty = (self._complete, self._lacking) if not self.unmet else (self._lacking, self._complete)
        full.set()
        empty.clear()

    def _loaded(self, wanted: Wanted) -> bool:
        version = self._histories[wanted.kind].version_of(wanted.digest)
        return version is not None and version <= self._compiled.get(wanted.kind, -1)
