"""Gathers what the checks look at. Whatever may not be read is said, and the rest is gathered all the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from cachescope.api.documents import API_VERSION
from cachescope.api.kinds import KINDS
from cachescope.cli.doctor.findings import Document, Documents, Unseen
from cachescope.cli.doctor.observed import OPERATOR_LEASE, ROOT_KEYS, Observed, label
from cachescope.cli.operator_lease import LEASE_NAME, LEASES
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, GATEWAY, OPERATOR, PART_OF_LABEL, ROOT_KEYS_SECRET
from cachescope.kube.rest import ApiError, NotFoundError, collection

OURS = f"{PART_OF_LABEL}=cachescope"
_RBAC = "rbac.authorization.k8s.io/v1"


class Api(Protocol):
    """What is needed of `kube.rest.Rest`."""

    async def get(self, path: str, **query: str) -> Document:
        """Read an object or a list."""


async def gather(api: Api, namespace: str) -> Observed:
    """Gather everything of an installation.

    Args:
        api: The API server.
        namespace: Namespace of the installation.
    """
    now = datetime.now(UTC)
    try:
        await api.get("/version")
    except ApiError as error:
        if error.status == 0:
            return Observed(namespace, now, fault=str(error))
    deployments = await _list(api, collection("apps/v1", "deployments", namespace), OURS)
    space = None if cluster_wide(deployments) else namespace
    documents = {
        "deployments": deployments,
        OPERATOR_LEASE: await _one(api, f"{collection(*LEASES, namespace)}/{LEASE_NAME}"),
        ROOT_KEYS: await _one(api, f"{collection('v1', 'secrets', namespace)}/{ROOT_KEYS_SECRET}"),
        **await _lists(api, namespace, space),
    }
    secrets = await _key_secrets(api, documents["tenants"])
    return Observed(namespace, now, kinds=await _kinds(api), documents=documents, key_secrets=secrets)


def cluster_wide(deployments: Documents) -> bool:
    """Whether the operator serves all namespaces, as its environment says."""
    operators = (
        [] if isinstance(deployments, Unseen) else [item for item in deployments if label(item, COMPONENT_LABEL) == OPERATOR]
    )
    containers = [container for item in operators for container in item["spec"]["template"]["spec"]["containers"]]
    return any({"name": "CACHESCOPE_SCOPE", "value": "Cluster"} in (container.get("env") or []) for container in containers)


async def _lists(api: Api, namespace: str, space: str | None) -> dict[str, Documents]:
    """All lists, by plural name; `space` is where pools and tenants are."""
    wanted = {
        **{kind.model.PLURAL: (API_VERSION, space, "") for kind in KINDS},
        "customresourcedefinitions": ("apiextensions.k8s.io/v1", None, OURS),
        "pods": ("v1", space, f"{COMPONENT_LABEL} in ({ENGINE},{GATEWAY})"),
        "rolebindings": (_RBAC, namespace, ""),
        "roles": (_RBAC, namespace, ""),
        "clusterrolebindings": (_RBAC, None, ""),
        "clusterroles": (_RBAC, None, ""),
    }
    found = await asyncio.gather(
        *(_list(api, collection(version, plural, place), selector) for plural, (version, place, selector) in wanted.items())
    )
    return dict(zip(wanted, found, strict=True))


async def _list(api: Api, path: str, selector: str = "") -> Documents:
    try:
        items: list[Document] = (await api.get(path, **({"labelSelector": selector} if selector else {})))["items"]
    except ApiError as error:
        return Unseen(str(error))
    return items


async def _one(api: Api, path: str) -> Documents:
    try:
        return [await api.get(path)]
    except NotFoundError:
        return []
    except ApiError as error:
        return Unseen(str(error))


async def _kinds(api: Api) -> frozenset[str] | Unseen:
    try:
        listed = await api.get(f"/apis/{API_VERSION}")
    except NotFoundError:
        return frozenset()
    except ApiError as error:
        return Unseen(str(error))
    return frozenset(item["name"] for item in listed["resources"])


async def _key_secrets(api: Api, tenants: Documents) -> dict[tuple[str, str], Documents]:
    named = sorted(
        {
            (tenant["metadata"]["namespace"], source["secretName"])
            for tenant in ([] if isinstance(tenants, Unseen) else tenants)
            for source in (tenant["spec"].get("identities") or {}).get("apiKeys") or []
        }
    )
    found = await asyncio.gather(*(_one(api, f"{collection('v1', 'secrets', namespace)}/{name}") for namespace, name in named))
    return dict(zip(named, found, strict=True))
