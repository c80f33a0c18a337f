"""Declaring a CacheEpoch, and watching what becomes of it. Whatever happens here, what was declared goes on by itself."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import typer

from cachescope.api.documents import API_VERSION
from cachescope.api.epochs import CacheEpoch
from cachescope.api.pools import ServingPool
from cachescope.api.scopes import CacheScope
from cachescope.api.tenants import Tenant
from cachescope.cli import output
from cachescope.cli.contexts import need_cluster
from cachescope.cli.epochs import Progress, State, progress
from cachescope.cli.incidents import Document, lacking, moved, named, names, same, staying
from cachescope.cli.status import fault_of_operator
from cachescope.core.errors import SpecError

POLL_SECONDS = 0.25
UNSEEN_SECONDS = 5.0
"""After which a CacheEpoch that nobody looked at is a reason to ask whether an operator works, and then again."""
TIMED_OUT = 3
_OF_A_TENANT = dict.fromkeys(("Principal", "Compartment"), Tenant.PLURAL)
_PLURALS = {kind.KIND: kind.PLURAL for kind in (ServingPool, CacheScope, Tenant)} | _OF_A_TENANT


class Api(Protocol):
    """What is needed of `kube.rest.Rest`."""

    async def get(self, path: str, **query: str) -> Document:
        """Read an object or a list."""

    async def create(self, path: str, document: Document) -> Document:
        """Create an object."""

    async def merge(self, path: str, document: Document) -> Document:
        """Patch an object by merging."""


@dataclass(frozen=True)
class Watching:
    """How somebody waits.

    Attributes:
        timeout: For how many seconds.
        clock: Seconds of a clock that only rises.
        pause: Waits, in seconds.
        since: When he began, on that clock; `None` for now.
        label: Begins each line.
    """

    timeout: float
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep
    since: float | None = None
    label: str = ""


def carry_out(verb: str, wanted: Document, *, wait: bool, timeout: float, exact: bool = False) -> None:
    """Declare a CacheEpoch, show how far it is, and end the command.

    Args:
        verb: With what its name begins.
        wanted: It, without a name.
        wait: Whether to wait for the fence.
        timeout: For how many seconds.
        exact: Whether it is a fault if the incident refuses credentials of before another moment already.

    Raises:
        SpecError: It cannot be declared.
        ClusterError: The API server refused it.
        typer.Exit: With 0 when it is fenced or was not waited for, 1 when it is refused or held, `TIMED_OUT`.
    """
    need_cluster()
    incident = wanted["spec"]["incident"]["id"]
    output.aside(f"incident {incident}; to look again, or after a fault, repeat the command with --incident {incident}")
    raise typer.Exit(asyncio.run(_carry_out(verb, wanted, exact=exact, watching=Watching(timeout) if wait else None)))


async def _carry_out(verb: str, wanted: Document, *, exact: bool, watching: Watching | None) -> int:
    from cachescope.kube.rest import Rest  # noqa: PLC0415 - its libraries take long to load

    async with Rest() as rest:
        made = await declare(rest, verb, wanted, exact=exact)
        if watching:
            return await watch_over(rest, made, watching)
    output.text(f"cacheepoch/{made['metadata']['name']} is declared; the operator does the rest")
    return 0


async def declare(api: Api, verb: str, wanted: Document, *, exact: bool = False) -> Document:
    """Make a CacheEpoch, or find the one of before and add what it lacks.

    Args:
        api: The API server.
        verb: With what its name begins.
        wanted: It, without a name.
        exact: As `carry_out` takes it.

    Raises:
        SpecError: Its target is not there, its names are taken, or it was declared with another moment.
        ClusterError: The API server refused it.
    """
    from cachescope.kube.rest import ConflictError  # noqa: PLC0415 - its libraries take long to load

    await _need_target(api, wanted)
    path = _path(wanted)
    for name in names(verb, wanted):
        try:
            made = await api.create(path, named(wanted, name))
        except ConflictError:
            made = await api.get(f"{path}/{name}")
        if same(made, wanted):
            return await _completed(api, f"{path}/{name}", made, wanted, exact=exact)
    raise SpecError(f"CacheEpochs of the name {name} are there for something else; name another incident: --incident")


async def _completed(api: Api, path: str, made: Document, wanted: Document, *, exact: bool) -> Document:
    """A CacheEpoch that is there, with what it lacked."""
    name = f"CacheEpoch {made['metadata']['namespace']}/{made['metadata']['name']}"
    stays = list(staying(made, wanted))
    if exact and moved(made, wanted):
        raise SpecError(f"nothing was changed: {name} is declared, and {stays[-1]}")
    patch = lacking(made, wanted)
    made = await api.merge(path, patch) if patch else made
    output.aside("; ".join((f"{name} is declared", *stays)))
    return made


async def watch_over(api: Api, made: Document, watching: Watching) -> int:
    """Show how far a CacheEpoch is until it is over, and say how it ended; the exit code."""
    name = made["metadata"]["name"]
    found = await follow(api, made, watching)
    if found.state.over:
        output.text(f"{watching.label}{found.result}")
        return 0 if found.state in (State.FENCED, State.UNCONFIRMED) else 1
    look = f"kubectl get cacheepoch -n {made['metadata']['namespace']} {name} --watch"
    output.text(f"{watching.label}not fenced after {watching.timeout:.0f} s: {found.line}; it goes on by itself: {look}")
    return TIMED_OUT


async def watch_over_all(api: Api, made: Sequence[Document], watching: Watching) -> list[int]:
    """The same for several, one after the other, in the time for one; each line says which it is about."""
    began, codes = watching.clock(), []
    for item in made:
        label = f"{item['metadata']['namespace']}/{item['metadata']['name']}: " if len(made) > 1 else ""
        codes.append(await watch_over(api, item, replace(watching, since=began, label=label)))
    return codes


async def follow(api: Api, made: Document, watching: Watching) -> Progress:
    """Show how far a CacheEpoch is, until it is over or the time is; how far it was at last.

    Raises:
        SpecError: It was deleted.
        ClusterError: The API server refuses to show it.
    """
    line, ask_at = output.LiveLine(), UNSEEN_SECONDS
    began = watching.clock() if watching.since is None else watching.since
    try:
        while True:
            found, elapsed = await _look(api, made), watching.clock() - began
            line.show(elapsed, f"{watching.label}{found.line}")
            if found.state.over or elapsed >= watching.timeout:
                return found
            if found.state is State.UNSEEN and elapsed >= ask_at:
                ask_at = math.inf if await _warned(api, made, line) else elapsed + UNSEEN_SECONDS
            await watching.pause(POLL_SECONDS)
    finally:
        line.end()


async def _look(api: Api, made: Document) -> Progress:
    from cachescope.kube.rest import ApiError, NotFoundError  # noqa: PLC0415 - its libraries take long to load

    name = made["metadata"]["name"]
    try:
        found = await api.get(f"{_path(made)}/{name}")
    except NotFoundError as error:
        problem = f"the CacheEpoch {name} was deleted meanwhile; what the ledger holds of it stands"
        raise SpecError(f"{problem}: repeat the command with its incident id to see it through") from error
    except ApiError as error:
        if 400 <= error.status < 500 and error.status != 429:
            raise
        return Progress(State.FENCING, "the API server does not answer; asking again")
    return progress(found)


async def _warned(api: Api, made: Document, line: output.LiveLine) -> bool:
    """Whether no operator works, which is said. One that has just ended is found out by the age of its Lease only."""
    fault = await fault_of_operator(api, made["metadata"]["namespace"])
    if fault:
        line.end()
        output.aside(f"Warning: {fault}")
    return bool(fault)


async def _need_target(api: Api, wanted: Document) -> None:
    from cachescope.kube.rest import NotFoundError, collection  # noqa: PLC0415 - its libraries take long to load

    target, namespace = wanted["spec"]["target"], wanted["metadata"]["namespace"]
    if target["kind"] not in _PLURALS:
        return
    plural = _PLURALS[target["kind"]]
    try:
        await api.get(f"{collection(API_VERSION, plural, namespace)}/{target['name']}")
    except NotFoundError as error:
        look = f"kubectl get {plural} -n {namespace}"
        raise SpecError(
            f"{namespace} has no {target['name']} among its {plural}, and nothing was declared; see `{look}`"
        ) from error


def _path(document: Document) -> str:
    from cachescope.kube.rest import collection  # noqa: PLC0415 - its libraries take long to load

    return collection(API_VERSION, CacheEpoch.PLURAL, document["metadata"]["namespace"])
