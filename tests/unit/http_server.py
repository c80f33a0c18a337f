"""An HTTP server on loopback whose answers a test writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def http_server(answer: Answer) -> AsyncIterator[tuple[str, web.AppRunner]]:
    """A server that answers every method and path so: its `address:port`, and what ends it early (`cleanup`)."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{host}:{port}", runner
    finally:
        await runner.cleanup()
