"""The engine as an API server sees it: names and shapes of vLLM's `AsyncLLM` and what it holds, as far as a guard may want them.

Source: vLLM 0.32.0, `async_llm.py`, `core_client.py` and `output_processor.py` in `v1/engine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from e2e.stub_engine.core import Abort, Call, EngineCore, Request, Token


class EngineCoreClient:
    """The client side of the engine's queue. There is one engine, so `all` and `consensus` are about one.

    Args:
        core: The engine.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core

    async def add_request_async(self, request: Request) -> None:
        """Ask for a request's tokens."""
        self._core.messages.put_nowait(request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """Ask that requests be forgotten; they are, once the message is served."""
        if request_ids:
            self._core.messages.put_nowait(Abort(tuple(request_ids)))

    async def call_utility_async(self, method: str, *args: object) -> object:
        """Call the engine in the order of its queue."""
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._core.messages.put_nowait(Call(method, args, answer))
        return await answer

    async def call_utility_all_async(self, method: str, *args: object) -> list[object]:
        """Call every engine."""
        return [await self.call_utility_async(method, *args)]

    async def call_utility_consensus_async(self, method: str, *args: object) -> object:
        """Call every engine; what all of them say."""
        return await self.call_utility_async(method, *args)

    async def is_sleeping_async(self) -> bool:
        """Whether the engine sleeps: it never does, so this is a call that only takes its turn."""
        return bool(await self.call_utility_consensus_async("is_sleeping"))

    async def reset_prefix_cache_async(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forget all blocks, if no request runs."""
        return all(await self.call_utility_all_async("reset_prefix_cache", reset_running_requests, reset_connector))


class OutputProcessor:
    """What the API server knows of requests in the engine.

    Attributes:
        request_states: Requests that have not ended, by the engine's own id.
    """

    def __init__(self) -> None:
        self.request_states: dict[str, Request] = {}

    def add_request(self, request: Request) -> None:
        """Remember a request."""
        self.request_states[request.request_id] = request

    def finish(self, request: Request) -> None:
        """Forget a request that ended."""
        self.request_states.pop(request.request_id, None)

    def abort_requests(self, request_ids: Iterable[str], internal: bool) -> list[str]:
        """Forget requests, and end what waits for their tokens.

        Args:
            request_ids: Their ids.
            internal: Whether these are the engine's own ids, or the API server's.

        Returns:
            The engine's own ids of those that were still known.
        """
        wanted = set(request_ids)
        states = list(self.request_states.items())
        found = [request_id for request_id, state in states if (request_id if internal else state.external_req_id) in wanted]
        for request_id in found:
            self.request_states.pop(request_id).outputs.put_nowait(None)
        return found


class EngineClient:
    """What `app.state.engine_client` is.

    Args:
        core: The engine.

    Attributes:
        engine_core: Its queue's client side.
        output_processor: What is known of its requests.
    """

    def __init__(self, core: EngineCore) -> None:
        self.engine_core = EngineCoreClient(core)
        self.output_processor = OutputProcessor()

    async def generate(self, request: Request) -> AsyncIterator[Token]:
        """The tokens of a request. If it is cancelled, or dropped half-way and collected, the request is aborted."""
        try:
            self.output_processor.add_request(request)
            await self.engine_core.add_request_async(request)
            while (token := await request.outputs.get()) is not None:
                if token.last:
                    self.output_processor.finish(request)
                yield token
                if token.last:
                    return
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(request.request_id, internal=True)
            raise

    async def abort(self, request_id: str | Iterable[str], internal: bool = False) -> None:
        """Abort requests, by default by the API server's ids."""
        wanted = [request_id] if isinstance(request_id, str) else list(request_id)
        await self.engine_core.abort_requests_async(self.output_processor.abort_requests(wanted, internal))

    async def is_sleeping(self) -> bool:
        """As `EngineCoreClient.is_sleeping_async`."""
        return await self.engine_core.is_sleeping_async()

    async def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """As `EngineCoreClient.reset_prefix_cache_async`."""
        return await self.engine_core.reset_prefix_cache_async(reset_running_requests, reset_connector)
