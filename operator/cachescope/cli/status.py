"""`status`: the pools of a namespace, or one of them in full."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cachescope.api.documents import API_VERSION
from cachescope.api.pools import ServingPool
from cachescope.cli import output
from cachescope.cli.contexts import current_namespace, need_cluster
from cachescope.cli.pools import COLUMNS, PoolRow, cells, pool_row
from cachescope.core.errors import SpecError

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; by default that of the current context.")]


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
    rows = asyncio.run(_rows(pool, None if everywhere else namespace or current_namespace()))
    if form == "json":
        output.document([row.model_dump(mode="json", by_alias=True) for row in rows])
    elif pool:
        _in_full(rows[0])
    else:
        output.table(("NAMESPACE", *COLUMNS), [[row.namespace, *cells(row)] for row in rows])


async def _rows(pool: str | None, namespace: str | None) -> list[PoolRow]:
    from cachescope.kube.rest import Rest, collection  # noqa: PLC0415 - its libraries take long to load

    path = collection(API_VERSION, ServingPool.PLURAL, namespace)
    async with Rest() as rest:
        found = [await rest.get(f"{path}/{pool}")] if pool else (await rest.get(path))["items"]
    return [pool_row(document) for document in found]


def _in_full(row: PoolRow) -> None:
    output.table(("NAMESPACE", *COLUMNS), [[row.namespace, *cells(row)]])
    output.text("")
    live = [[item.pod, item.version, str(item.sequence), "yes" if item.live else "no"] for item in row.guards]
    output.table(("GUARD", "VERSION", "SEQUENCE", "LIVE"), live)
    output.text("")
    conditions = [[item.type, item.status, item.reason, item.message] for item in row.conditions]
    output.table(("CONDITION", "STATUS", "REASON", "MESSAGE"), conditions)
