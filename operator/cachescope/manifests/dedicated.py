"""Pools of single tenants, made of a pool in mode `PerTenant`: pure.

Rules:

- the name is made from the UIDs of pool and tenant with the key that names targets: nobody else can foretell one, and what is made
  anew under its name, pool or tenant, meets nothing that another left behind;
- the spec is the template's, so that a change of it reaches every tenant, without what only a template has: whom it admits, and how
  its tenants are kept apart;
- the template owns it, so that the cluster removes it with the template, also when no operator runs.
"""

from __future__ import annotations

from typing import Final

from cachescope.api.isolation import DedicatedTo
from cachescope.api.pools import ServingPool
from cachescope.core.keys import Key
from cachescope.core.labels import MANAGED_BY_LABEL, PART_OF_LABEL, POOL_LABEL
from cachescope.manifests.children import owner
from cachescope.manifests.parts import Manifest

DIGITS: Final = 10
MOST_OF_NAME: Final = 29
"""Of the template's name: with a hyphen and the digits it is as long as a pool's name may be."""
_OF_TEMPLATES: Final = {"isolation", "allowed_tenants", "dedicated_to", "replicas"}


def dedicated_name(key: Key, whose: DedicatedTo) -> str:
    """Name of the pool that a template has for a tenant.

    Args:
        key: The key that names targets.
        whose: Both of them.
    """
    digits = key.mac("cachescope/dedicated-pool/v1", whose.pool_uid, whose.tenant_uid).hex()[:DIGITS]
    return f"{whose.pool_name[:MOST_OF_NAME].rstrip('-')}-{digits}"


def dedicated_pool(template: ServingPool, whose: DedicatedTo, key: Key, *, replicas: int | None = None) -> Manifest:
    """The pool that a template has for a tenant.

    Args:
        template: The pool in mode `PerTenant`.
        whose: It, and the tenant.
        key: The key that names targets.
        replicas: Engine pods; without it as many as the template asks for.
    """
    spec = template.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_OF_TEMPLATES)
    return {
        "apiVersion": template.api_version,
        "kind": template.KIND,
        "metadata": {
            "name": dedicated_name(key, whose),
            "namespace": template.namespace,
            "labels": {MANAGED_BY_LABEL: "cachescope", PART_OF_LABEL: "cachescope", POOL_LABEL: template.name},
            "ownerReferences": [owner(template)],
        },
        "spec": {
            **spec,
            "replicas": template.spec.replicas if replicas is None else replicas,
            "dedicatedTo": whose.model_dump(mode="json", by_alias=True),
        },
    }
