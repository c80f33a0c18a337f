"""Installs the demo, tries every case, prints the table, and exits with 1 unless all of it holds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from cachescope.core.labels import ENGINE_PORT
from e2e.demo import cases, report
from e2e.demo.cases import Case, Clients
from e2e.stack import client, kubectl
from e2e.stack.attacker import BODY, Insider
from e2e.stack.install import ENGINE_PODS, GATEWAY_PODS, GATEWAY_PORT, Stack, install, prepare


def main() -> int:
    """Run the demo; returns the exit status."""
    started = time.perf_counter()
    stack = prepare()
    report.step("helm upgrade --install, then kubectl apply -f examples/quickstart.yaml")
    install(stack)
    with kubectl.forwarded_pod(GATEWAY_PODS, GATEWAY_PORT) as gateway, kubectl.forwarded_pod(ENGINE_PODS, ENGINE_PORT) as engine:
        clients = people(stack, gateway)
        report.step("waiting until the pool is routable")
        client.wait_routable(clients["blue/carol"])
        found = list(all_cases(clients, Insider(stack, engine)))
    report.table(found)
    report.next_steps(stack)
    report.step(f"done in {time.perf_counter() - started:.0f} s")
    return 0 if all(case.holds for case in found) else 1


def people(stack: Stack, gateway: str) -> Clients:
    """One client for each person who has an API key."""
    return {name.replace("-", "/"): client.client(gateway, key) for name, key in stack.credentials.api_keys.items()}


def all_cases(clients: Clients, insider: Insider) -> Iterator[Case]:
    """Every line of the table, in order."""
    yield from cases.pairs(clients)
    yield cases.chosen_salt(clients)
    yield cases.answered("attack: the pod addressed directly", lambda: insider.post(BODY).status_code, 401)
    permit = insider.permit(BODY)
    yield cases.answered("control: a permit used once", lambda: insider.post(BODY, permit).status_code, 200)
    yield cases.answered("attack: the same permit replayed", lambda: insider.post(BODY, permit).status_code, 403)


if __name__ == "__main__":
    sys.exit(main())
