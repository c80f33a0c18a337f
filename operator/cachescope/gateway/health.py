"""Health, readiness and metrics of the gateway, on a port of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cachescope.gateway.configuration import Configuration
from cachescope.gateway.fleet import Fleet


@dataclass(frozen=True)
class Health(Collector):
    """What readiness looks at.

    Attributes:
        configuration: The configuration in force.
        fleet: The endpoints.
        endpoints_age: Seconds since the cluster last told of endpoints, or `None` before the first time.
        key_problems: What is wrong with key sets, by provider.
    """

    configuration: Configuration
    fleet: Fleet
    endpoints_age: Callable[[], float | None]
    key_problems: Callable[[], dict[str, str]]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Implements prometheus_client's `Collector`: age and endpoints by state."""
        age = self.endpoints_age()
        snapshot = self.configuration.current()
        yield GaugeMetricFamily(
            "cachescope_configuration_in_force", "1 once a configuration is in force.", int(snapshot is not None)
        )
        yield GaugeMetricFamily(
            "cachescope_endpoints_age_seconds", "Since the API server last answered.", -1 if age is None else age
        )
        states = GaugeMetricFamily("cachescope_endpoints", "Ready endpoints by pool and state.", labels=["pool", "state"])
        for pool, trust in (snapshot.trusts if snapshot else {}).items():
            found = [state == "routable" for state in self.fleet.states(pool, trust).values()]
            states.add_metric([pool, "routable"], sum(found))
            states.add_metric([pool, "unproven"], len(found) - sum(found))
        yield states

    def report(self) -> tuple[bool, dict[str, object]]:
        """Whether requests can be decided, and everything that an on-call engineer asks first."""
        snapshot = self.configuration.current()
        age = self.endpoints_age()
        ready = snapshot is not None and age is not None
        pools = {pool: self.fleet.states(pool, trust) for pool, trust in snapshot.trusts.items()} if snapshot else {}
        return ready, {
            "ready": ready,
            "configuration": self.configuration.fault or "loaded",
            "endpoints_age_seconds": None if age is None else round(age, 1),
            "key_sets": self.key_problems() or "fresh",
            "pools": pools,
        }


async def serve_health(health: Health, registry: CollectorRegistry, port: int) -> web.AppRunner:
    """Serve `/healthz`, `/readyz` and `/metrics`; close the returned runner to stop."""

    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def ready(_: web.Request) -> web.Response:
        is_ready, report = health.report()
        return web.json_response(report, status=200 if is_ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", alive), web.get("/readyz", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - kubelet and the monitoring namespace reach it
    return runner
