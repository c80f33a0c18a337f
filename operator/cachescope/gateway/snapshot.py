"""The snapshot: everything that decisions use, made whole from one reading of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from packaging.version import Version

from cachescope.api.pools import ServingPool
from cachescope.api.settings import Settings
from cachescope.core.classes import Placement
from cachescope.core.endpoints import pool_key
from cachescope.core.keys import KeyRing
from cachescope.gateway.authorizations import PoolState
from cachescope.gateway.binding import Asker, Placed, ask
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.ledger_heads import Standings
from cachescope.gateway.policy import EffectiveScope, Policy
from cachescope.gateway.revocations import Revocations
from cachescope.kube.watched import Name

MAX_ASKERS = 10_000


class Askers:
    """Who asks, remembered for as long as one configuration is in force: namespace and epochs cost seven HMACs.

    Args:
        keys: The gateway's keys.
        states: What stands, by pool UID.
        policy: Declared resources, indexed.
    """

    def __init__(self, keys: GatewayKeys, states: Mapping[str, PoolState], policy: Policy) -> None:
        def derive(identity: Identity, pool_uid: str, placement: Placement) -> Asker:
            placed = Placed(policy.pools[pool_uid], scope_of(identity.tenant_uid, pool_uid), placement)
            return ask(keys, states[pool_uid], identity=identity, placed=placed)

        scope_of = lru_cache(MAX_ASKERS)(lambda tenant_uid, pool_uid: policy.scope(tenant_uid, policy.pools[pool_uid]))
        self._scope = scope_of
        self._derive = lru_cache(MAX_ASKERS)(derive)

    def scope(self, identity: Identity, pool: ServingPool) -> EffectiveScope:
        """The sharing rule of an identity's tenant on a pool."""
        return self._scope(identity.tenant_uid, pool.uid)

    def of(self, identity: Identity, pool: ServingPool, placement: Placement) -> Asker:
        """The asker of a pool for which it is known what stands. Why the placement is what it is separates nobody."""
        return self._derive(identity, pool.uid, placement)


@dataclass(frozen=True)
class Snapshot:
    """One configuration in force.

    Attributes:
        settings: Settings of the installation.
        policy: Declared resources, indexed.
        keys: The gateway's keys.
        standings: What the ledgers say.
        states: What stands, by pool UID. A pool without is not routable.
        permits: Permit keys by pool UID, of the same pools.
        trusts: What guards are held against, by pool (`pool_key`), of the same pools.
        authenticator: Who verifies credentials.
        askers: Namespaces and epochs by identity and pool.
        revocations: Who is refused.
    """

    settings: Settings
    policy: Policy
    keys: GatewayKeys
    standings: Standings
    states: Mapping[str, PoolState]
    permits: Mapping[str, KeyRing]
    trusts: Mapping[str, PoolTrust]
    authenticator: Authenticator
    askers: Askers
    revocations: Revocations


def snapshot_of(
    settings: Settings, policy: Policy, keys: GatewayKeys, *, standings: Standings, authenticator: Authenticator
) -> Snapshot:
    """A snapshot, with what follows from its parts."""
    found = {uid: standings.pool(Name(pool.namespace, pool.name)) for uid, pool in policy.pools.items()}
    states = {uid: state for uid, state in found.items() if state is not None}
    permits = {uid: keys.permits(uid) for uid in states}
    minimum = Version(settings.minimum_guard_version) if settings.minimum_guard_version else None
    trusts = {
        pool_key(pool.namespace, pool.name): PoolTrust(
            uid,
            permits[uid],
            states[uid].heads.seen.lineages,
            pool.spec.fence.lease_seconds * 1000,
            minimum,
            policy.proofs[uid].leaked,
        )
        for uid, pool in policy.pools.items()
        if uid in states
    }
    return Snapshot(
        settings=settings,
        policy=policy,
        keys=keys,
        standings=standings,
        states=states,
        permits=permits,
        trusts=trusts,
        authenticator=authenticator,
        askers=Askers(keys, states, policy),
        revocations=Revocations(keys, policy, standings),
    )


def at_standings(snapshot: Snapshot, standings: Standings) -> Snapshot:
    """The same configuration with other ledgers."""
    return snapshot_of(snapshot.settings, snapshot.policy, snapshot.keys, standings=standings, authenticator=snapshot.authenticator)
