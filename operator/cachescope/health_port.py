"""Liveness, readiness and metrics of a process, on a port of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Report = Callable[[], tuple[bool, dict[str, object]]]
"""Whether all is well, and what an on-call engineer asks first."""


async def serve(alive: Report, ready: Report, registry: CollectorRegistry, port: int) -> web.AppRunner:
    """Serve `/healthz`, `/readyz` (each 200, or 503 when it is not well) and `/metrics`; clean the returned runner up to stop."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", _said(alive)), web.get("/readyz", _said(ready)), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - kubelet and the monitoring namespace reach it
    return runner


def _said(report: Report) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        good, body = report()
        return web.json_response(body, status=200 if good else 503)

    return answer
