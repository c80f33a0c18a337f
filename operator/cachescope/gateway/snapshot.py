"""The snapshot: everything that decisions use, made whole from one reading of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cachescope.api.settings import Settings
from cachescope.core.heads import Head
from cachescope.core.keys import KeyRing
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.policy import Policy


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
    """

    settings: Settings
    policy: Policy
    keys: GatewayKeys
    head: Head
    permits: Mapping[str, KeyRing]
    trusts: Mapping[str, PoolTrust]
    authenticator: Authenticator


def trusts_of(policy: Policy, permits: Mapping[str, KeyRing], lineage: str) -> dict[str, PoolTrust]:
    """What the guards of each pool are held against, by pool name."""
    return {
        pool.name: PoolTrust(pool.uid, permits[pool.uid], lineage, pool.spec.fence.lease_seconds * 1000)
        for pool in policy.pools.values()
    }
