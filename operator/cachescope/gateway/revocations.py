"""Revocations: who is refused, whatever he asks for, by the ledgers.

Rules:

- a denial counts wherever it stands: in the namespace of the tenant, and in those of all pools that the tenant may use;
- of a compartment it counts for the requests that belong to it alone;
- where credentials issued before a moment are refused, one that does not say when it was issued is refused too;
- a workload that sends a request by its certificate is judged as the one who asks is: a revoked one sends for nobody;
- that somebody was revoked is said before anything else, so that nobody waits for what never comes;
- a namespace whose restore nobody confirmed, or whose authorization head is unclear, serves nobody and lets none of its tenants in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from cachescope.gateway.binding import compartment_target, targets_of
from cachescope.gateway.errors import ErrorName
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.ledger_heads import Standings
from cachescope.gateway.policy import Policy

MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Revoked:
    """What stands against one tenant and principal.

    Attributes:
        denied: Whether every credential is refused.
        issued_before: Credentials issued before this second are; 0 refuses none.
    """

    denied: bool
    issued_before: int

    def refuses(self, identity: Identity) -> bool:
        """Whether this very credential is refused."""
        if self.denied or not self.issued_before:
            return self.denied
        return identity.issued_at is None or identity.issued_at < self.issued_before


class Revocations:
    """Who is refused under one configuration.

    Args:
        keys: The gateway's keys.
        policy: Declared resources, indexed.
        standings: What the ledgers say.
    """

    def __init__(self, keys: GatewayKeys, policy: Policy, standings: Standings) -> None:
        def derive(identity: Identity, compartment: str | None) -> Revoked:
            targets = list(targets_of(keys.targets, identity))
            if compartment is not None:
                targets.append(compartment_target(keys.targets, identity.tenant_uid, compartment))
            found = [state for name in _namespaces(policy, identity) if (state := standings.remembered.get(name)) is not None]
            floors = [state.floor(target) for state in found for target in targets]
            return Revoked(any(floor.denies for floor in floors), max((floor.issued_before for floor in floors), default=0))

        self._derive = lru_cache(MAX_REMEMBERED)(derive)
        self._policy = policy
        self._standings = standings

    def refusal(self, identity: Identity, pool_namespace: str | None = None) -> ErrorName | None:
        """Why an identity is refused; for a request to a pool also by what stands in the pool's namespace."""
        if any(self.revoked(one) for one in identity.speakers):
            return "revoked"
        tenant = self._policy.tenants.get(identity.tenant_uid)
        names = {tenant.namespace if tenant else None, pool_namespace}
        known = self._standings.remembered
        if any(name in known and known[name].head.unconfirmed for name in names if name):
            return "restore_unconfirmed"
        return "gateway_not_ready" if names & self._standings.unclear.keys() else None

    def revoked(self, identity: Identity, compartment: str | None = None) -> bool:
        """Whether an identity is denied, or what it may do in a compartment."""
        return self._derive(identity, compartment).refuses(identity)


def _namespaces(policy: Policy, identity: Identity) -> Iterable[str]:
    tenant = policy.tenants.get(identity.tenant_uid)
    own = {tenant.namespace} if tenant else set()
    return own | {item.pool.namespace for item in policy.models(identity.tenant_uid).values()}
