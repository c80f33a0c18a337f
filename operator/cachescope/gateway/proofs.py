"""What the operator's probe has shown of engine processes, as a ServingPool's status says it.

Rules:

- a process that needs salts reuses only on routes on which the probe has shown that it keeps them apart; before, and on any other
  route, its requests are `Fresh`;
- a proof is of one process: after a restart nothing is known;
- what cannot be read proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cachescope.core.statements import Statement
from cachescope.engines.routes import Route


@dataclass(frozen=True, slots=True)
class Proofs:
    """What is proven in one pool.

    Attributes:
        routes: Paths by boot id of the process.
    """

    routes: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def cover(self, statement: Statement, route: Route) -> bool:
        """Whether a route of an endpoint may reuse: it is proven, or its cache is one identity's, or it has none.

        Args:
            statement: The latest of the endpoint's guard.
            route: The route.
        """
        return bool(statement.caching) or route.path in self.routes.get(statement.boot_id, ())


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
    return Proofs({boot: frozenset(paths) for boot, paths in found.items()})


def _texts(proof: Any, name: str) -> list[str]:  # noqa: ANN401 - any JSON
    listed = proof.get(name) if isinstance(proof, Mapping) else None
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
