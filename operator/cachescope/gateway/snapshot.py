"""The snapshot: everything that decisions use, made whole from one reading of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from packaging.version import Version

from cachescope.api.pools import ServingPool
from cachescope.api.settings import Settings
from cachescope.core.endpoints import pool_key
from cachescope.core.heads import Head
from cachescope.core.keys import KeyRing
from cachescope.gateway.binding import Asker, ask
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.policy import Policy
from cachescope.kube.watched import Name

MAX_ASKERS = 10_000


class Askers:
    """Who asks, remembered for as long as one configuration is in force: namespace and epochs cost seven HMACs.

    Args:
        keys: The gateway's keys.
        heads: The epochs that stand, by pool UID.
        policy: Declared resources, indexed.
    """

    def __init__(self, keys: GatewayKeys, heads: Mapping[str, Head], policy: Policy) -> None:
        def derive(identity: Identity, pool_uid: str) -> Asker:
            pool = policy.pools[pool_uid]
            return ask(keys, heads[pool_uid], identity=identity, pool=pool, scope=policy.scope(identity.tenant_uid, pool))

        self._derive = lru_cache(MAX_ASKERS)(derive)

    def of(self, identity: Identity, pool: ServingPool) -> Asker:
        """The asker of a pool whose head is known."""
        return self._derive(identity, pool.uid)


@dataclass(frozen=True)
class Snapshot:
    """One configuration in force.

    Attributes:
        settings: Settings of the installation.
        policy: Declared resources, indexed.
        keys: The gateway's keys.
        heads: The epochs that stand, by pool UID. A pool without a head is not routable.
        permits: Permit keys by pool UID, of the same pools.
        trusts: What guards are held against, by pool (`pool_key`), of the same pools.
        authenticator: Who verifies credentials.
        askers: Namespaces and epochs by identity and pool.
    """

    settings: Settings
    policy: Policy
    keys: GatewayKeys
    heads: Mapping[str, Head]
    permits: Mapping[str, KeyRing]
    trusts: Mapping[str, PoolTrust]
    authenticator: Authenticator
    askers: Askers


def snapshot_of(
    settings: Settings, policy: Policy, keys: GatewayKeys, *, heads: Mapping[Name, Head], authenticator: Authenticator
) -> Snapshot:
    """A snapshot, with what follows from its parts; `heads` are by namespace and name of their pools."""
    pools = [pool for pool in policy.pools.values() if (pool.namespace, pool.name) in heads]
    by_uid = {pool.uid: heads[Name(pool.namespace, pool.name)] for pool in pools}
    permits = {pool.uid: keys.permits(pool.uid) for pool in pools}
    minimum = Version(settings.minimum_guard_version) if settings.minimum_guard_version else None
    trusts = {
        pool_key(pool.namespace, pool.name): PoolTrust(
            pool.uid, permits[pool.uid], by_uid[pool.uid].lineage, pool.spec.fence.lease_seconds * 1000, minimum
        )
        for pool in pools
    }
    return Snapshot(settings, policy, keys, by_uid, permits, trusts, authenticator, Askers(keys, by_uid, policy))


def at_heads(snapshot: Snapshot, heads: Mapping[Name, Head]) -> Snapshot:
    """The same configuration at other heads."""
    return snapshot_of(snapshot.settings, snapshot.policy, snapshot.keys, heads=heads, authenticator=snapshot.authenticator)
