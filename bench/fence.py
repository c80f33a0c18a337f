"""How long a fence takes with many guards, and what guards at rest cost the API server: `python -m bench.fence [--guards N]`.

The guards are simulated in this one process with the real lease code; the API server and the operator are real, and share the
machine with it. It takes a cluster (`make cluster`) with the kinds of this tree, and makes and removes a namespace of its own.
A fence counts from the write of the ledger to the last acknowledgement, on the operator's clock. Requests at rest are the growth of
`apiserver_request_total` over some time, watches aside, which are counted only when they end.

Beside each fence stands what it cost in seconds of CPU, from just before the rollback is applied to when its fence was seen: on few
cores that tells what the time was spent on, and whether somebody else used the machine. It is known of processes of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import cpu
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG
from tests.integration.breaking_operator import ForkedOperator
from tests.integration.fence_stage import Stage, staged
from tests.integration.simulated_guards import Home, SimulatedGuard, alive

_SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_KINDS = frozenset({"fenceleases", "epochledgers"})
START_SECONDS = 300.0


@dataclass(frozen=True)
class Asked:
    """What is measured.

    Attributes:
        guards: Guards that are simulated.
        rollbacks: Rollbacks, one after the other.
        lease_seconds: Length of a guard's right.
        rest_seconds: For how long requests are counted while nothing happens.
    """

    guards: int
    rollbacks: int
    lease_seconds: int
    rest_seconds: float


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        fences: Seconds of each fence.
        costs: Seconds of CPU of each, by process.
        requests: Requests per second at rest, by verb and kind.
        resting: Seconds of CPU a second at rest, by process.
    """

    fences: list[float]
    costs: list[Mapping[str, float]]
    requests: dict[str, float]
    resting: Mapping[str, float]


async def measure(asked: Asked, folder: Path) -> Found:
    """Run it."""
    async with staged(folder) as stage:
        operator = ForkedOperator(stage.namespace, stage.log, "bench")
        try:
            await operator.led()
            home = await stage.made(1000 * asked.lease_seconds)
            try:
                return await _with_guards(asked, stage, home, operator.child.pid or 0)
            finally:
                await home.api.close()
        finally:
            operator.stop(signal.SIGKILL)


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of all values is, by the nearest rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def shown(asked: Asked, found: Found) -> str:
    """For people."""
    middle, worst = statistics.median(found.fences), max(found.fences)
    lines = [
        f"{asked.guards} guards, leases of {asked.lease_seconds} s, {asked.rollbacks} rollbacks",
        f"fence: median {middle:.2f} s, p99 {percentile(found.fences, 0.99):.2f} s, longest {worst:.2f} s",
        f"seconds of CPU a fence, medians: {cpu.shown(_medians(found.costs))}",
        f"seconds of CPU a second at rest: {cpu.shown(found.resting)}",
        f"at rest: {sum(found.requests.values()):.1f} requests/s",
    ]
    return "\n".join(lines + [f"  {name}: {rate:.1f}/s" for name, rate in sorted(found.requests.items())])


async def _with_guards(asked: Asked, stage: Stage, home: Home, operator: int) -> Found:
    guards = [SimulatedGuard(home) for _ in range(asked.guards)]
    pids = cpu.processes(guards=os.getpid(), operator=operator)
    async with alive(*guards, seconds=START_SECONDS):
        await stage.roll_back("warm-up")
        await stage.fenced("warm-up", guards)
        _forget_garbage()
        before = cpu.used(pids)
        requests = await _at_rest(asked.rest_seconds)
        resting = {name: value / asked.rest_seconds for name, value in cpu.since(before, pids).items()}
        fences: list[float] = []
        costs: list[Mapping[str, float]] = []
        for number in range(asked.rollbacks):
            before = cpu.used(pids)
            await stage.roll_back(f"rollback-{number}")
            found = await stage.fenced(f"rollback-{number}", guards)
            fences.append(float(found["seconds"]))
            costs.append(cpu.since(before, pids))
            line = f"{number}: {fences[-1]:.2f} s, {found['guards']}; CPU: {cpu.shown(costs[-1])}"
            print(line, flush=True)  # noqa: T201 - it takes a while
    return Found(fences, costs, requests, resting)


def _forget_garbage() -> None:
    """What lives by now is no garbage: one process of a thousand guards would look at it again and again, unlike a guard."""
    gc.collect()
    gc.freeze()


def _medians(costs: list[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}


async def _at_rest(seconds: float) -> dict[str, float]:
    before, began = await asyncio.to_thread(_counted), time.monotonic()
    await asyncio.sleep(seconds)
    after, took = await asyncio.to_thread(_counted), time.monotonic() - began
    return {name: (after[name] - before[name]) / took for name in after if after[name] > before[name]}


def _counted() -> Counter[str]:
    """Requests for our kinds so far."""
    found: Counter[str] = Counter()
    for line in kubectl.run("get", "--raw", "/metrics").splitlines():
        if sample := _SAMPLE.match(line):
            labels = dict(_LABEL.findall(sample["labels"]))
            if labels.get("resource") in _KINDS and labels.get("verb") != "WATCH":
                found[f"{labels['verb']} {labels['resource']}"] += int(float(sample["value"]))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guards", type=int, default=1000)
    parser.add_argument("--rollbacks", type=int, default=20)
    parser.add_argument("--lease-seconds", type=int, default=60)
    parser.add_argument("--rest-seconds", type=float, default=60.0)
    given = parser.parse_args()
    asked = Asked(given.guards, given.rollbacks, given.lease_seconds, given.rest_seconds)
    os.environ["KUBECONFIG"] = str(KUBECONFIG)
    with tempfile.TemporaryDirectory() as folder:
        print(shown(asked, asyncio.run(measure(asked, Path(folder)))))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
