"""`restored`: the cluster was restored from a backup; what is older than it must not be believed.

Witnesses (guards and gateways that run on) let the operator find a restore out by itself. Where none was left, nothing tells, and
this command does: every ledger of a namespace goes on in a new lineage, and requests are refused until somebody confirms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cachescope.api.documents import API_VERSION
from cachescope.api.epochs import OF_PEOPLE, CacheEpoch
from cachescope.api.ledgers import EpochLedger
from cachescope.api.pools import ServingPool
from cachescope.cli import output
from cachescope.cli.contexts import current_namespace, need_cluster
from cachescope.cli.declaring import Api, Watching, declare, watch_over_all
from cachescope.cli.incident_options import DEFAULT_TIMEOUT, IncidentId, Namespace, Timeout, Wait
from cachescope.cli.incidents import Document, cache_epoch, new_id
from cachescope.core.errors import SpecError
from cachescope.core.ledgers import AUTHORIZATION_HEAD

VERB = "restored"
REASON = "the cluster was restored from a backup"


def restored(
    *,
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces with pools or ledgers.")] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Every revocation since the backup was made anew: serve again.")
    ] = False,
    incident: IncidentId = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Say that etcd was restored: everything is refused until `--confirm`, and everything cached is unreachable.

    Ends with 0 once the operator refuses everything (with `--confirm`: once nothing older is used), else as `rollback`.
    """
    if namespace and everywhere:
        raise SpecError("use --namespace or --all-namespaces, not both")
    need_cluster()
    place = None if everywhere else namespace or current_namespace()
    incident = incident or new_id(datetime.now(UTC))
    raise typer.Exit(asyncio.run(_restored(place, incident, confirm=confirm, watching=Watching(timeout) if wait else None)))


async def _restored(place: str | None, incident: str, *, confirm: bool, watching: Watching | None) -> int:
    from cachescope.kube.rest import Rest  # noqa: PLC0415 - its libraries take long to load

    async with Rest() as rest:
        namespaces = await concerned(rest, place)
        if confirm:
            made = [item for name in namespaces for item in await confirmed(rest, name, incident)]
        else:
            output.aside(f"incident {incident}; after a fault, repeat the command with --incident {incident}")
            made = [await declare(rest, VERB, _document(name, incident)) for name in namespaces]
        codes = await watch_over_all(rest, made, watching) if watching else []
        if not confirm:
            output.text(await _told(rest, place, incident, made=made, codes=codes))
    return max(codes, default=0)


async def _told(api: Api, place: str | None, incident: str, *, made: Sequence[Document], codes: Sequence[int]) -> str:
    """What people are told at the end: what to do next once everything is refused, and nothing of that before."""
    if all(item["spec"]["restored"].get("confirmed") for item in made):
        return f"incident {incident} is confirmed already; after another restore, name another one: --incident"
    if not codes or any(codes):
        return _not_yet(incident)
    return advice(await _items(api, CacheEpoch.PLURAL, place), place)


def _not_yet(incident: str) -> str:
    """What is to be done as long as nobody knows that everything is refused."""
    again = f"repeat the command with --incident {incident} until it ends with 0"
    return f"NOT known to be refused yet: keep clients away, and {again}; make no revocations anew and confirm nothing before"


async def concerned(api: Api, place: str | None) -> list[str]:
    """Namespaces with pools or ledgers; of all, those where a ledger may still hold for somebody.

    Ledgers outlive pools. That of a pool that is gone is moved by nobody; an authorization head is, with and without pools.

    Args:
        api: The API server.
        place: A namespace, or `None` for all.

    Raises:
        SpecError: There are none.
    """
    ledgers, pools = [_spaces(await _items(api, plural, place)) for plural in (EpochLedger.PLURAL, ServingPool.PLURAL)]
    found = ledgers | pools
    if place is None and (idle := found - pools - await _with_head(api)):
        output.aside(f"without a pool, so left out: {', '.join(sorted(idle))}; where one is made later, run it there with -n")
        found -= idle
    if not found:
        where = f"in the namespace {place}" if place else "in any namespace"
        raise SpecError(f"there is neither a ServingPool nor an EpochLedger {where}; name another one: --namespace")
    return sorted(found)


def _spaces(documents: Iterable[Document]) -> set[str]:
    return {item["metadata"]["namespace"] for item in documents}


async def _with_head(api: Api) -> set[str]:
    """Namespaces with an authorization head: they count without pools, since all gateways read their heads."""
    return _spaces(item for item in await _items(api, EpochLedger.PLURAL, None) if item["metadata"]["name"] == AUTHORIZATION_HEAD)


async def confirmed(api: Api, namespace: str, incident: str) -> list[Document]:
    """Confirm what is not confirmed in a namespace: what somebody declared, and what the operator found out by itself.

    Raises:
        SpecError: There is nothing to confirm yet.
    """
    said = [item for item in await _items(api, CacheEpoch.PLURAL, namespace) if item["spec"].get("restored") is not None]
    open_ones = [item for item in said if not item["spec"]["restored"].get("confirmed")]
    refused = await _refused_in(api, namespace)
    if refused is None and open_ones:
        raise SpecError(f"{namespace}: the operator has not refused everything yet, so nothing can be confirmed; repeat it then")
    if refused is None:
        output.aside(f"{namespace}: nothing is to be confirmed")
        return []
    confirmation = {"confirmed": True, "lineage": refused}
    if open_ones:
        path, patch = _path(CacheEpoch.PLURAL, namespace), {"spec": {"restored": confirmation}}
        return [await api.merge(f"{path}/{item['metadata']['name']}", patch) for item in open_ones]
    again = [item for item in said if item["spec"]["restored"] == confirmation]
    return again or [await declare(api, VERB, _document(namespace, incident, **confirmation))]


async def _refused_in(api: Api, namespace: str) -> int | None:
    """The lineage in which all requests of a namespace are refused; `None` while they are not."""
    heads = [item for item in await _items(api, EpochLedger.PLURAL, namespace) if item["metadata"]["name"] == AUTHORIZATION_HEAD]
    refused = [item["spec"] for item in heads if item["spec"]["restored"] > item["spec"]["confirmed"]]
    return refused[0]["lineage"]["generation"] if refused else None


def advice(epochs: Iterable[Document], place: str | None) -> str:
    """What happens now, and what is to be done before confirming."""
    scope = f"-n {place}" if place else "--all-namespaces"
    people = [item for item in epochs if item["spec"]["target"].get("kind") in OF_PEOPLE]
    newest = max((f"{item['metadata']['creationTimestamp']} ({item['metadata']['name']})" for item in people), default="none")
    return "\n".join(
        (
            "Every ledger goes on in a new lineage: all caches are cold, and requests get 503 restore_unconfirmed.",
            f"1. Make every revocation since the backup anew: kubectl cachescope revoke …; the newest one here is {newest}.",
            "2. The same for Tenants, suspensions and Secrets of API keys that were changed or deleted since.",
            f"3. Then serve again: kubectl cachescope restored --confirm {scope}",
        )
    )


def _document(namespace: str, incident: str, **confirmation: Any) -> Document:  # noqa: ANN401 - fields of `restored`
    spec = {
        "target": {"kind": "Namespace"},
        "incident": {"id": incident, "reason": REASON},
        "restored": {"confirmed": False, **confirmation},
    }
    return cache_epoch(namespace, spec)


async def _items(api: Api, plural: str, place: str | None) -> list[Document]:
    found: list[Document] = (await api.get(_path(plural, place)))["items"]
    return found


def _path(plural: str, place: str | None) -> str:
    from cachescope.kube.rest import collection  # noqa: PLC0415 - its libraries take long to load

    return collection(API_VERSION, plural, place)
