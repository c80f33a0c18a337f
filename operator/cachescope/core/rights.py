"""How long rights last: the longest that was handed out is kept in ledgers, so that an operator that begins knows it.

Rules:

- it is written before anybody can be given a longer one, so that no process has a right of which a ledger does not tell;
- what is declared may be lowered at any time; what is written falls only once nobody can act on a longer right any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_LONGEST_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Rights:
    """Lengths, in whole seconds.

    Attributes:
        lease: Of a right.
        fresh: Of what follows without one: a guard's longest answer, or how long a gateway goes on.
    """

    lease: int = 0
    fresh: int = 0

    def joined(self, *others: Rights) -> Rights:
        """The maximum of all, field by field."""
        every = (self, *others)
        return Rights(max(item.lease for item in every), max(item.fresh for item in every))


NO_RIGHTS = Rights()
"""Nobody has any."""


def write_rights(rights: Rights) -> dict[str, int]:
    """What ledgers hold of them."""
    return {"leaseSeconds": rights.lease, "freshSeconds": rights.fresh}


def read_rights(spec: Any) -> Rights:  # noqa: ANN401 - the parser is where untyped JSON ends
    """The longest right that the spec of a ledger tells of. What is no number is none: ledgers are written without it too."""
    found = spec.get("longestRight") if isinstance(spec, dict) else None
    lease, fresh = (found.get(name) if isinstance(found, dict) else None for name in ("leaseSeconds", "freshSeconds"))
    return Rights(_seconds(lease), _seconds(fresh))


def _seconds(value: object) -> int:
    return min(max(0, value), _LONGEST_SECONDS) if type(value) is int else 0
