"""What an engine pod may do and know: its own leases, the ledgers that decide about its requests, its own pool's permit keys."""

from __future__ import annotations

import base64

from cachescope.api.documents import GROUP
from cachescope.api.ledgers import EpochLedger, FenceLease
from cachescope.api.pools import ServingPool
from cachescope.core.keys import KeyRing
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.permits import permit_keys
from cachescope.manifests.children import child, engine_account, permit_secret
from cachescope.manifests.parts import Manifest

_RBAC = "rbac.authorization.k8s.io"


def access(pool: ServingPool) -> list[Manifest]:
    """The ServiceAccount of the engines, and a Role that lets it write leases and read both heads."""
    name = engine_account(pool)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": pool.namespace}
    role = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    return [
        child(pool, "ServiceAccount", name=name, automountServiceAccountToken=False),
        child(pool, "Role", name=name, rules=_rules(pool)),
        child(pool, "RoleBinding", name=name, subjects=[subject], roleRef=role),
    ]


def permit_key_secret(pool: ServingPool, keys: KeyRing) -> Manifest:
    """The Secret with the permit keys of one pool: all the keys that an engine pod ever holds.

    Args:
        pool: The pool.
        keys: The installation's root keys; what is written is derived from them.
    """
    derived = sorted(permit_keys(keys, pool.uid).others.items())
    data = {key_id: base64.b64encode(key.secret.hex().encode()).decode() for key_id, key in derived}
    return child(pool, "Secret", name=permit_secret(pool), type="Opaque", data=data)


def _rules(pool: ServingPool) -> list[Manifest]:
    # Roles know no name prefixes: a guard may touch its neighbours' leases, whose MAC and boot id it cannot forge.
    # A list or watch of one name takes that name's right, so no other ledger can be listed.
    ledgers = [pool.name, AUTHORIZATION_HEAD]
    return [
        {"apiGroups": [GROUP], "resources": [FenceLease.PLURAL], "verbs": ["create", "get", "update"]},
        {"apiGroups": [GROUP], "resources": [EpochLedger.PLURAL], "resourceNames": ledgers, "verbs": ["get", "list", "watch"]},
    ]
