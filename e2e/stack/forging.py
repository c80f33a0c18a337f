"""Salts as only the gateway makes them, from the installation's root keys: for the positive control of an attack.

A negative that sends the very salt of another tenant proves something only where that salt is the real one.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachescope.api.pools import ServingPool
from cachescope.core.classes import Placement, Rule
from cachescope.core.epochs import target_name
from cachescope.core.record import ABSENT, IdentityRecord
from cachescope.core.salts import salt
from cachescope.core.scopes import API_KEY, Credential
from cachescope.core.statements import Statement
from cachescope.core.types import Salt, ScopeClass, TargetKind, TargetName
from cachescope.gateway import binding
from cachescope.gateway.authorizations import PoolState
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.gateway.policy import EffectiveScope


@dataclass(frozen=True)
class Forger:
    """Holds what only gateways and the operator hold.

    Attributes:
        keys: The gateways' keys.
        pool: The pool.
        state: What stands for it.
    """

    keys: GatewayKeys
    pool: ServingPool
    state: PoolState

    def record(self, tenant_uid: str, statement: Statement) -> IdentityRecord:
        """The record of what a tenant without a CacheScope asks of an engine; without its content, which is in no salt.

        Args:
            tenant_uid: UID of the Tenant.
            statement: The statement of the engine's guard.
        """
        identity = Identity(tenant_uid, Credential(API_KEY, "", "anybody"))
        placed = binding.Placed(self.pool, EffectiveScope(Rule(), self.pool.uid, 1), Placement(ScopeClass.TENANT))
        asker = binding.ask(self.keys, self.state, identity=identity, placed=placed)
        return binding.record(asker, binding.Content(ABSENT), statement.engine)

    def salt(self, record: IdentityRecord) -> Salt:
        """The salt of a record."""
        return salt(self.keys.salt, record)

    def tenant_target(self, tenant_uid: str) -> TargetName:
        """Name of a tenant's epoch target."""
        return target_name(self.keys.targets, TargetKind.TENANT, tenant_uid)
