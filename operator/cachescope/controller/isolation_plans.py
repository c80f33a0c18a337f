"""Which tenants of a template get a pool of their own, and which pools go: pure.

Rules:

- those of the template's namespace that `isolation.tenants` selects and that stay, as many as `maxIsolatedPools`: who has one keeps
  it, then come the oldest. So a tenant that is selected later takes nobody's engines away, however old it is;
- a pool goes with its tenant, and once the tenant is no longer among them; another tenant of that name is another tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachescope.api.isolation import DedicatedTo
from cachescope.api.pools import ServingPool
from cachescope.controller.origins import dedicated_to
from cachescope.core.keys import Key
from cachescope.kube.rest import Document
from cachescope.manifests.dedicated import dedicated_name


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be of the pools of a template.

    Attributes:
        served: For whom there are pools, by the pools' names; who has one comes first, then the oldest.
        unserved: Names of the tenants that get none, in the same order.
        obsolete: Pools that go.
    """

    served: Mapping[str, DedicatedTo]
    unserved: Sequence[str] = ()
    obsolete: Sequence[Document] = ()


def plan(template: ServingPool, tenants: Iterable[Document], existing: Iterable[Document], key: Key) -> Plan:
    """Plan the pools of a template.

    Args:
        template: The pool in mode `PerTenant`.
        tenants: All Tenants of its namespace.
        existing: The pools that were made of it.
        key: The key that names targets.
    """
    existing = tuple(existing)
    having = {whose.tenant_uid for item in existing if (whose := dedicated_to(item)) is not None}
    selected = [item for item in sorted(tenants, key=_age) if _selected(template, item)]
    chosen = [_whose(template, item) for item in sorted(selected, key=lambda item: item["metadata"]["uid"] not in having)]
    served: dict[str, DedicatedTo] = {}
    unserved = []
    for whose in chosen:
        # Two tenants of one name of a pool are as good as impossible, and then the younger one has none.
        if len(served) >= template.spec.isolation.max_isolated_pools or (name := dedicated_name(key, whose)) in served:
            unserved.append(whose.tenant_name)
        else:
            served[name] = whose
    return Plan(served, unserved, [item for item in existing if served.get(item["metadata"]["name"]) != dedicated_to(item)])


def without_tenant(tenants: Iterable[Document], existing: Iterable[Document]) -> list[Document]:
    """The pools whose tenants are gone, or about to go: they go whatever is wrong with their template."""
    staying = {item["metadata"]["uid"] for item in tenants if _stays(item)}
    return [item for item in existing if (whose := dedicated_to(item)) is None or whose.tenant_uid not in staying]


def _whose(template: ServingPool, tenant: Mapping[str, Any]) -> DedicatedTo:
    metadata = tenant["metadata"]
    return DedicatedTo(
        pool_name=template.name, pool_uid=template.uid, tenant_name=metadata["name"], tenant_uid=str(metadata["uid"])
    )


def _age(tenant: Mapping[str, Any]) -> tuple[str, str]:
    return str(tenant["metadata"].get("creationTimestamp", "")), str(tenant["metadata"]["uid"])


def _selected(template: ServingPool, tenant: Mapping[str, Any]) -> bool:
    labels = tenant["metadata"].get("labels") or {}
    return _stays(tenant) and template.spec.isolation.tenants.match_labels.items() <= labels.items()


def _stays(tenant: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" not in tenant["metadata"]
