"""`status`: the pools of a namespace, or one of them in full."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Protocol

import typer

from cachescope.api.documents import API_VERSION
from cachescope.api.epochs import CacheEpoch
from cachescope.api.pools import ServingPool
from cachescope.cli import epochs, output
from cachescope.cli.contexts import current_namespace, need_cluster
from cachescope.cli.doctor.findings import Document, Documents, Unseen
from cachescope.cli.epochs import EpochRow, epoch_row, is_open
from cachescope.cli.incident_options import Namespace
from cachescope.cli.operator_lease import LEASE_NAME, LEASES, warning
from cachescope.cli.pools import COLUMNS, PoolRow, cells, pool_row
from cachescope.core.errors import SpecError


class Api(Protocol):
    """What is needed of `kube.rest.Rest`."""

    async def get(self, path: str, **query: str) -> Document:
        """Read an object or a list."""


def status(
    pool: Annotated[str | None, typer.Argument(help="Name of one pool, to see its guards and conditions.")] = None,
    *,
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Pools of all namespaces.")] = False,
    form: Annotated[str, typer.Option("--output", "-o", help="`table` or `json`.")] = "table",
) -> None:
    """Show pools: how tenants are kept apart, whether they serve and why not, epochs and guards."""
    if form not in ("table", "json") or (pool and everywhere):
        raise SpecError("use --output table or json, and name a pool in one namespace only")
    need_cluster()
    rows, opened, fault = asyncio.run(_look(pool, None if everywhere else namespace or current_namespace()))
    if fault:
        output.aside(f"Warning: {fault}")
    if form == "json":
        output.document([row.model_dump(mode="json", by_alias=True) for row in rows])
    elif pool:
        _in_full(rows[0])
    else:
        output.table(("NAMESPACE", *COLUMNS), [[row.namespace, *cells(row)] for row in rows])
        _open(opened)


async def _look(pool: str | None, namespace: str | None) -> tuple[list[PoolRow], list[EpochRow], str]:
    """The pools, all open CacheEpochs, and why what they say may be old; empty when it is not."""
    from cachescope.kube.rest import Rest, collection  # noqa: PLC0415 - its libraries take long to load

    path = collection(API_VERSION, ServingPool.PLURAL, namespace)
    async with Rest() as rest:
        found = [await rest.get(f"{path}/{pool}")] if pool else (await rest.get(path))["items"]
        opened = await _open_epochs(rest, namespace)
        fault = await fault_of_operator(rest, namespace)
    if isinstance(opened, Unseen):
        unseen = f"open CacheEpochs could not be seen ({opened.reason})"
        return [pool_row(document) for document in found], [], "; ".join(part for part in (fault, unseen) if part)
    return [pool_row(document, opened) for document in found], [epoch_row(document) for document in opened], fault


async def _open_epochs(api: Api, namespace: str | None) -> Documents:
    """CacheEpochs that are not fenced."""
    from cachescope.kube.rest import ApiError, collection  # noqa: PLC0415 - its libraries take long to load

    try:
        found = await api.get(collection(API_VERSION, CacheEpoch.PLURAL, namespace))
    except ApiError as error:
        return Unseen(str(error))
    return [document for document in found["items"] if is_open(document)]


async def fault_of_operator(api: Api, namespace: str | None) -> str:
    """Why what statuses say may be old; empty when an operator works."""
    leases = await operator_leases(api, namespace)
    if isinstance(leases, Unseen):
        return f"whether an operator works could not be seen ({leases.reason})"
    return warning(leases, namespace, datetime.now(UTC))


async def operator_leases(api: Api, namespace: str | None) -> Documents:
    """Leases of operators: of all namespaces where that may be read, since one may serve them all, else of this one."""
    from cachescope.kube.rest import ApiError, NotFoundError, collection  # noqa: PLC0415 - its libraries take long to load

    try:
        everywhere: list[Document] = (await api.get(collection(*LEASES, None), fieldSelector=f"metadata.name={LEASE_NAME}"))[
            "items"
        ]
    except ApiError as error:
        if namespace is None:
            return Unseen(str(error))
    else:
        return everywhere
    try:
        return [await api.get(f"{collection(*LEASES, namespace)}/{LEASE_NAME}")]
    except NotFoundError:
        return Unseen(f"no Lease {LEASE_NAME} in {namespace}, and those of other namespaces may not be read")
    except ApiError as error:
        return Unseen(str(error))


def _open(rows: Sequence[EpochRow]) -> None:
    """A table of CacheEpochs that are not fenced; nothing for none."""
    if rows:
        output.text("")
        output.table(("NAMESPACE", *epochs.COLUMNS), [[row.namespace, *epochs.cells(row)] for row in rows])


def _in_full(row: PoolRow) -> None:
    output.table(("NAMESPACE", *COLUMNS), [[row.namespace, *cells(row)]])
    output.text("")
    live = [[item.pod, item.version, str(item.sequence), "yes" if item.live else "no"] for item in row.guards]
    output.table(("GUARD", "VERSION", "SEQUENCE", "LIVE"), live)
    output.text("")
    conditions = [[item.type, item.status, item.reason, item.message] for item in row.conditions]
    output.table(("CONDITION", "STATUS", "REASON", "MESSAGE"), conditions)
    _open(row.open_epochs)
