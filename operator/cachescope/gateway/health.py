"""Health, readiness and metrics of the gateway, on a port of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cachescope.core.endpoints import pool_key
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.fleet import ROUTABLE, Fleet
from cachescope.gateway.proofs import Proofs
from cachescope.gateway.snapshot import Snapshot
from cachescope.gateway.standing import STATES, Standing
from cachescope.health_port import serve

NOTHING_REUSED: Final = "routable; nothing is reused: see the pool's condition IsolationVerified"


@dataclass(frozen=True)
class Health(Collector):
    """What readiness looks at.

    Attributes:
        standing: Whether anything may be decided.
        fleet: The endpoints.
        key_problems: What is wrong with key sets, by provider.
    """

    standing: Standing
    fleet: Fleet
    key_problems: Callable[[], dict[str, str]]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Implements prometheus_client's `Collector`: right, ages of watches, faults by kind, endpoints by state."""
        standing, snapshot = self.standing, self.standing.configuration.current()
        yield GaugeMetricFamily(
            "cachescope_configuration_in_force", "1 once a configuration is in force.", int(snapshot is not None)
        )
        left = standing.right.left_ms(standing.clock()) / 1000
        yield GaugeMetricFamily("cachescope_gateway_right_seconds", "Until the gateway's right ends; 0 without one.", left)
        if lease_ms := standing.lease_ms():
            text = "Length of a right; it is renewed every third of that."
            yield GaugeMetricFamily("cachescope_gateway_lease_seconds", text, lease_ms / 1000)
        fresh = standing.fresh_left_ms() / 1000
        yield GaugeMetricFamily("cachescope_gateway_fresh_seconds", "For which it still decides, without reuse or a right.", fresh)
        yield self._state()
        ages = GaugeMetricFamily("cachescope_watch_age_seconds", "Since the API server last answered a watch.", labels=["kind"])
        for kind, age in standing.ages().items():
            ages.add_metric([kind], -1 if age is None else age)
        yield ages
        yield self._faults()
        yield self._endpoints(snapshot.trusts if snapshot else {})

    def report(self) -> tuple[bool, dict[str, object]]:
        """Whether requests can be decided, and everything that an on-call engineer asks first."""
        standing, configuration = self.standing, self.standing.configuration
        problems = list(standing.problems())
        snapshot = configuration.current()
        return not problems, {
            "ready": not problems,
            "problems": problems,
            "configuration": configuration.fault or ("loaded" if snapshot else "not loaded"),
            "objects_at_fault": configuration.report(),
            "state": standing.state(),
            "fresh_seconds": round(standing.fresh_left_ms() / 1000, 1),
            "right_seconds": round(standing.right.left_ms(standing.clock()) / 1000, 1),
            "watch_age_seconds": {kind: None if age is None else round(age, 1) for kind, age in standing.ages().items()},
            "key_sets": self.key_problems() or "fresh",
            "pools": self._pools(snapshot) if snapshot else {},
        }

    def _pools(self, snapshot: Snapshot) -> dict[str, object]:
        """What is known of the endpoints of each pool, also of those that no request goes to."""
        pools = {pool_key(pool.namespace, pool.name): pool.uid for pool in snapshot.policy.pools.values()}
        trusts = snapshot.trusts
        return {
            key: self._states(key, trusts[key], snapshot.policy.proofs[uid])
            if key in trusts
            else "no EpochLedger of it or of its namespace can be used; see objects_at_fault, and the operator"
            for key, uid in sorted(pools.items())
        }

    def _states(self, key: str, trust: PoolTrust, proofs: Proofs) -> dict[str, str]:
        """For each ready pod whether requests go there, and whether they may reuse anything."""
        statements = self.fleet.statements(key)
        unshown = {name for name, statement in statements.items() if not proofs.know(statement)}
        states = self.fleet.states(key, trust)
        return {name: NOTHING_REUSED if state == ROUTABLE and name in unshown else state for name, state in states.items()}

    def _state(self) -> GaugeMetricFamily:
        now = self.standing.state()
        metric = GaugeMetricFamily("cachescope_gateway_state", "1 for how far the gateway may decide now.", labels=["state"])
        for state in STATES:
            metric.add_metric([state], int(state == now))
        return metric

    def _faults(self) -> GaugeMetricFamily:
        found = Counter(name.partition(" ")[0] for name in self.standing.configuration.faults())
        metric = GaugeMetricFamily("cachescope_objects_at_fault", "Objects that were left out or narrowed.", labels=["kind"])
        for kind, count in found.items():
            metric.add_metric([kind], count)
        return metric

    def _endpoints(self, trusts: Mapping[str, PoolTrust]) -> GaugeMetricFamily:
        metric = GaugeMetricFamily("cachescope_endpoints", "Ready endpoints.", labels=["pool_namespace", "pool", "state"])
        for key, trust in trusts.items():
            namespace, _, pool = key.partition("/")
            found = [state == ROUTABLE for state in self.fleet.states(key, trust).values()]
            metric.add_metric([namespace, pool, "routable"], sum(found))
            metric.add_metric([namespace, pool, "unproven"], len(found) - sum(found))
        return metric


async def serve_health(health: Health, registry: CollectorRegistry, port: int) -> web.AppRunner:
    """Serve `/healthz`, `/readyz` and `/metrics`; close the returned runner to stop."""
    return await serve(_alive, health.report, registry, port)


def _alive() -> tuple[bool, dict[str, object]]:
    return True, {"alive": True}
