"""Which pools were made of which, by what the API server has of them.

Rules:

- a pool is made of another one where its controller and `dedicatedTo` name the same UID: neither alone says it;
- whether the operator made it is another question (`fault_of_origin`): its name must follow from the UIDs, and its tenant be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cachescope.api.isolation import DedicatedTo
from cachescope.controller.store import Store
from cachescope.core.keys import Key as SecretKey
from cachescope.kube.rest import Document
from cachescope.manifests.dedicated import dedicated_name


def dedicated_to(document: Mapping[str, Any]) -> DedicatedTo | None:
    """For whom a pool says that it is, whatever else is wrong with it; `None` for nobody."""
    spec = document.get("spec")
    said = spec.get("dedicatedTo") if isinstance(spec, Mapping) else None
    try:
        return None if said is None else DedicatedTo.model_validate(said)
    except ValidationError:
        return None


def template_uid(document: Mapping[str, Any]) -> str:
    """UID of the pool that a pool was made of; empty where it was made of none."""
    whose = dedicated_to(document)
    return whose.pool_uid if whose is not None and _controller(document) == ("ServingPool", whose.pool_uid) else ""


def epoch_uid(document: Mapping[str, Any]) -> str:
    """UID that a pool's epoch target is named by."""
    return template_uid(document) or str(document["metadata"]["uid"])


def named_by(document: Mapping[str, Any]) -> str:
    """The name by which people speak of a pool: of one that was made of another one that other's."""
    whose = dedicated_to(document)
    return whose.pool_name if whose is not None and template_uid(document) else str(document["metadata"]["name"])


def made_of(store: Store, template: Mapping[str, Any]) -> list[Document]:
    """The pools that were made of a pool, by name."""
    metadata = template["metadata"]
    pools = store.all("ServingPool", metadata["namespace"])
    return sorted((item for item in pools if template_uid(item) == metadata["uid"]), key=lambda item: str(item["metadata"]["name"]))


def fault_of_origin(store: Store, targets: SecretKey, document: Mapping[str, Any]) -> str:
    """Why a pool that says it is for one tenant gets no engines; empty for one that the operator made, and for any other pool.

    Args:
        store: Where tenants are found.
        targets: The key that names targets.
        document: The pool.
    """
    whose, metadata = dedicated_to(document), document["metadata"]
    if whose is None:
        return ""
    if template_uid(document) != whose.pool_uid or metadata["name"] != dedicated_name(targets, whose):
        return "only the operator makes pools that are dedicated to a tenant; delete this one, and set isolation.mode PerTenant"
    tenant = store.get("Tenant", metadata["namespace"], whose.tenant_name)
    if tenant is None or tenant["metadata"]["uid"] != whose.tenant_uid:
        return "the tenant that it is dedicated to is gone, and nobody else is ever served by it; the operator deletes it"
    return ""


def _controller(document: Mapping[str, Any]) -> tuple[str, str]:
    owners = document["metadata"].get("ownerReferences") or ()
    found: Mapping[str, Any] = next((item for item in owners if item.get("controller")), {})
    return str(found.get("kind", "")), str(found.get("uid", ""))
