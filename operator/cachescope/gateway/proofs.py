"""What the operator's probe has shown of engine processes, as a ServingPool's status says it.

Rules:

- a process that needs salts reuses only on routes on which the probe has shown that it keeps them apart; before, and on any other
  route, its requests are `Fresh`; those that ask for several answers are shown apart;
- a proof is of one process: after a restart nothing is known;
- a process that leaked serves nothing: its engine does not heed salts, and `Fresh` is one;
- one of which nothing was shown yet serves where there is no other, `Fresh`, unless the pool says that it is to refuse;
- what cannot be read proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cachescope.core.caches import Caching
from cachescope.core.probes import several
from cachescope.core.statements import Statement
from cachescope.gateway.bodies import Sanitized


@dataclass(frozen=True, slots=True)
class Proofs:
    """What is known of the processes of one pool.

    Attributes:
        routes: Paths by boot id of the process; with `several answers` behind it, for requests that ask for these.
        leaked: Boot ids of the processes that leaked.
    """

    routes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    leaked: frozenset[str] = frozenset()

    def know(self, statement: Statement) -> bool:
        """Whether anything is proven of a process, or nothing has to be.

        Args:
            statement: The latest of its guard.
        """
        return _needs_none(statement) or statement.boot_id in self.routes

    def cover(self, statement: Statement, cleaned: Sanitized) -> bool:
        """Whether a request to an endpoint may reuse: it is proven, or its cache is one identity's, or it has none.

        Args:
            statement: The latest of the endpoint's guard.
            cleaned: What is asked.
        """
        return _needs_none(statement) or _way(cleaned) in self.routes.get(statement.boot_id, ())


NO_PROOFS: Final = Proofs()


def read_proofs(status: object) -> Proofs:
    """Read them from a ServingPool's status, whatever that is."""
    isolation = status.get("isolation") if isinstance(status, Mapping) else None
    proofs = isolation.get("proofs") if isinstance(isolation, Mapping) else None
    found: defaultdict[str, set[str]] = defaultdict(set)
    for proof in proofs if isinstance(proofs, list) else ():
        paths = _texts(proof, "routes")
        for boot in _texts(proof, "boots"):
            found[boot].update(paths)
    leaked = frozenset(_texts(isolation, "leaked")) if isolation else frozenset()
    return Proofs({boot: frozenset(paths) for boot, paths in found.items() if boot not in leaked}, leaked)


def _needs_none(statement: Statement) -> bool:
    """Whether an engine keeps requests apart by what it is; one that says anything else of itself is to be proven."""
    return statement.caching in {Caching.ONE_CACHE.value, Caching.OFF.value}


def _way(cleaned: Sanitized) -> str:
    """What has to be proven; nothing ever is of beams, which engines make requests of their own of."""
    if cleaned.fields.get("use_beam_search"):
        return ""
    path = cleaned.route.path
    return path if cleaned.fields.get("n") in (None, 1) else several(path)


def _texts(proof: Any, name: str) -> list[str]:  # noqa: ANN401 - any JSON
    listed = proof.get(name) if isinstance(proof, Mapping) else None
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
