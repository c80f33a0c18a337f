"""Confirmation: the engine says that it knows nothing any more of requests that were closed.

vLLM's API server does not wait for the end of what it cancels (`with_cancellation` of 0.32 returns at once, and a stream that was
suspended ends when it is collected), so a request can still be known to the engine after its application returned. Hence:

- every request bears the id of its permit in its `x-request-id`, which vLLM makes part of its own ids (but for `/v1/responses`, and
  for the parts of a late-interaction score, whose ids are its own);
- requests of that id that the engine's client still lists are aborted here, through the client's public call; while nothing is
  open, all that it lists are;
- then a call without effect (`is_sleeping`) goes through the queue of the aborts to every engine core: its answer comes after them;
- this is repeated until none is listed.

An engine without such a client (behind a sidecar) is asked for its metrics: it confirms when it runs and queues no more requests
than are open. That is weaker: an open request that has not reached it can hide one that was closed, whose output is dropped anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from cachescope.core.errors import ClusterError
from cachescope.guard.engine_load import read_load
from cachescope.guard.metrics_port import engine_metrics
from cachescope.guard.wire import App, Scope

_PAUSE_SECONDS = 0.05


class Confirmation(Protocol):
    """The port through which a guard asks its engine."""

    def saw(self, app: App, scope: Scope) -> None:
        """An ASGI event came by: the engine's application, and how the server calls it."""

    async def confirmed(self, closed: Collection[str]) -> None:
        """Return when the engine knows nothing of requests whose applications returned; it may take for ever.

        Args:
            closed: Ids of their permits.

        Raises:
            ClusterError: It cannot be known now; ask again.
        """


class EngineConfirmation:
    """Asks the engine in this process, or behind this sidecar.

    Args:
        open_requests: How many requests are in flight and were not closed.
        sleep: Waits between two looks at the engine's metrics, in seconds.
    """

    def __init__(self, open_requests: Callable[[], int], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._open_requests = open_requests
        self._sleep = sleep
        self._app: App | None = None
        self._application: object = None

    def saw(self, app: App, scope: Scope) -> None:
        """Remember where the engine is; Starlette puts its application into the scope."""
        self._app = app
        self._application = scope.get("app", self._application)

    async def confirmed(self, closed: Collection[str]) -> None:
        """Ask it through its own queue, or by its metrics."""
        client: Any = getattr(getattr(self._application, "state", None), "engine_client", None)
        if hasattr(client, "is_sleeping"):
            await self._through_the_queue(client, closed)
        else:
            await self._by_metrics()

    async def _through_the_queue(self, client: Any, closed: Collection[str]) -> None:  # noqa: ANN401 - vLLM's AsyncLLM
        try:
            left = True
            while left:
                await asyncio.sleep(0)  # what was cancelled in this step ends in the next
                if found := self._closed_ones(_listed(client), closed):
                    await client.abort(found)
                await client.is_sleeping()
                left = bool(self._closed_ones(_listed(client), closed))
        except Exception as error:  # whatever vLLM raises, it has not confirmed
            raise ClusterError(f"the engine did not confirm ({type(error).__name__}); see its log") from error

    def _closed_ones(self, listed: Collection[str], closed: Collection[str]) -> list[str]:
        if not self._open_requests():
            return sorted(listed)
        return sorted(name for name in listed if any(permit in name for permit in closed))

    async def _by_metrics(self) -> None:
        while await self._load() > self._open_requests():
            await self._sleep(_PAUSE_SECONDS)

    async def _load(self) -> int:
        text = await engine_metrics(self._app) if self._app is not None else b""
        try:
            load = read_load(text.decode())
        except ValueError as error:
            raise ClusterError("the engine's metrics cannot be read; see what it serves at /metrics") from error
        if load is None:
            raise ClusterError(
                "the engine's metrics do not say how many requests it runs and queues; see what it serves at /metrics"
            )
        return load


def _listed(client: Any) -> frozenset[str]:  # noqa: ANN401 - vLLM's AsyncLLM
    """The names that the server gave the requests which its engine's client lists."""
    states: Mapping[str, object] = getattr(getattr(client, "output_processor", None), "request_states", {})
    return frozenset(str(getattr(state, "external_req_id", None) or key) for key, state in states.items())
