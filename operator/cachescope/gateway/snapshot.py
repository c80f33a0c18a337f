"""The snapshot: everything that decisions use, made whole from one reading of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from cachescope.api.settings import Settings
from cachescope.core.heads import Head
from cachescope.core.keys import KeyRing
from cachescope.gateway.binding import Asker, ask
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.policy import Policy

MAX_ASKERS = 10_000


class Askers:
    """Who asks, remembered for as long as one configuration is in force: namespace and epochs cost seven HMACs.

    Args:
        keys: The gateway's keys.
        head: The epochs that stand.
        policy: Declared resources, compiled.
    """

    def __init__(self, keys: GatewayKeys, head: Head, policy: Policy) -> None:
        def derive(identity: Identity, model: str) -> Asker:
            pool = policy.pools[model]
            return ask(keys, head, identity, pool, policy.scope(identity.tenant_uid, pool))

        self._known = policy.pools.keys()
        self._derive = lru_cache(MAX_ASKERS)(derive)

    def find(self, identity: Identity, model: str) -> Asker | None:
        """The asker of a model, or `None` if no pool serves it."""
        return self._derive(identity, model) if model in self._known else None


@dataclass(frozen=True)
class Snapshot:
    """One configuration in force.

    Attributes:
        settings: Settings of the installation.
        policy: Declared resources, compiled.
        keys: The gateway's keys.
        head: The epochs that stand.
        permits: Permit keys by pool UID.
        trusts: What guards are held against, by pool name.
        authenticator: Who verifies credentials.
        askers: Namespaces and epochs by identity and model.
    """

    settings: Settings
    policy: Policy
    keys: GatewayKeys
    head: Head
    permits: Mapping[str, KeyRing]
    trusts: Mapping[str, PoolTrust]
    authenticator: Authenticator
    askers: Askers


def snapshot_of(settings: Settings, policy: Policy, keys: GatewayKeys, *, head: Head, authenticator: Authenticator) -> Snapshot:
    """A snapshot, with what follows from its parts."""
    permits = keys.permits(pool.uid for pool in policy.pools.values())
    trusts = {
        pool.name: PoolTrust(pool.uid, permits[pool.uid], head.lineage, pool.spec.fence.lease_seconds * 1000)
        for pool in policy.pools.values()
    }
    return Snapshot(settings, policy, keys, head, permits, trusts, authenticator, Askers(keys, head, policy))


def at_head(snapshot: Snapshot, head: Head) -> Snapshot:
    """The same configuration at another head."""
    return snapshot_of(snapshot.settings, snapshot.policy, snapshot.keys, head=head, authenticator=snapshot.authenticator)
