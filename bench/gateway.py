"""What the gateway adds to a bare Envoy, all in one run: `python -m bench.gateway [--rounds N] [--seconds S]`.

Beside bare Envoy stand the external processor with a decision that costs nothing (`bench.gateway_processor`), and the whole
gateway: the processor with the real decision (`bench.gateway_decision`). Rounds alternate between them, so that what else runs on
the machine meets all; the table has the median round. Ratios and processor time a request are what to compare between machines.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.http_load import chat_body
from cachescope.gateway.envoy import EnvoySettings, bootstrap

_ENVOY = Path(sys.executable).with_name("envoy")
_BODY_BYTES = 4096
_CONNECTIONS = (1, 16)
_SETUPS = {"bare Envoy": None, "with processor": "bench.gateway_processor", "whole gateway": "bench.gateway_decision"}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Setup:
    """Something to load: its port, the processes that serve it by name, and the API key that it takes."""

    port: int
    pids: dict[str, int]
    key: str


def bare(gateway: dict[str, Any], engine_port: int, ports: tuple[int, int]) -> dict[str, Any]:
    """The gateway's bootstrap without the processor and all that goes with it.

    Args:
        gateway: The gateway's own bootstrap.
        engine_port: Where everything goes.
        ports: Listener's and admin's.

    Returns:
        A bootstrap that only proxies.
    """
    config: dict[str, Any] = json.loads(json.dumps(gateway))
    listener, engines = config["static_resources"]["listeners"][0], config["static_resources"]["clusters"][0]
    listener["address"]["socket_address"]["port_value"] = ports[0]
    config["admin"]["address"]["socket_address"]["port_value"] = ports[1]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = manager["http_filters"][-1:]
    del manager["early_header_mutation_extensions"]
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}]
    manager["route_config"]["virtual_hosts"][0]["routes"] = routes
    del engines["lb_policy"], engines["original_dst_lb_config"]
    address = {"socket_address": {"address": "127.0.0.1", "port_value": engine_port}}
    engines |= {
        "type": "STATIC",
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]},
    }
    return config


@contextmanager
def process(*command: str | Path) -> Iterator[int]:
    """Run a process for as long as the block lasts; yields its pid."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 our own commands
    try:
        yield running.pid
    finally:
        running.kill()
        running.wait()


def measure(setup: Setup, connections: int, seconds: float) -> dict[str, float]:
    """One round: the generator's figures, and microseconds of processor time a request by process."""
    before = {name: _ticks(pid) for name, pid in setup.pids.items()}
    load = [str(setup.port), str(connections), str(seconds), str(_BODY_BYTES), setup.key]
    command = [sys.executable, "-m", "bench.http_load", *load]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603 our own
    for name, pid in setup.pids.items():
        figures[name] = (_ticks(pid) - before[name]) / _TICKS * 1e6 / figures["requests"]
    return figures


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextmanager
def setups(folder: Path) -> Iterator[dict[str, Setup]]:
    """Bare Envoy, and Envoy with each processor, in front of one fake engine."""
    engine, *ports = _free_ports(1 + 2 * len(_SETUPS))
    with ExitStack() as stack:
        stack.enter_context(process(sys.executable, "-m", "bench.http_engine", str(engine)))
        found = {}
        for index, (name, module) in enumerate(_SETUPS.items()):
            own = folder / str(index)
            own.mkdir()
            found[name] = _setup(stack, own, engine, (ports[2 * index], ports[2 * index + 1]), module)
        for setup in found.values():
            _wait(lambda setup=setup: _answers(setup))  # type: ignore[misc]
        yield found


def _setup(stack: ExitStack, folder: Path, engine: int, ports: tuple[int, int], module: str | None) -> Setup:
    config = bootstrap(_settings(folder, ports))
    pids, key = {}, "sk-bench"
    if module is None:
        config = bare(config, engine, ports)
    else:
        pids["processor"] = stack.enter_context(process(sys.executable, "-m", module, _socket(folder), str(engine), str(folder)))
        _wait(lambda: (folder / "key").exists() and (folder / "key").stat().st_size > 0)
        key = (folder / "key").read_text()
    path = folder / "envoy.json"
    path.write_text(json.dumps(config))
    envoy = process(_ENVOY, "-c", path, "--concurrency", "1", "--use-dynamic-base-id", "-l", "error")
    pids["envoy"] = stack.enter_context(envoy)
    return Setup(ports[0], pids, key)


def _socket(folder: Path) -> str:
    return str(folder / "processor.sock")


def _settings(folder: Path, ports: tuple[int, int]) -> EnvoySettings:
    return EnvoySettings(processor_socket=_socket(folder), listen_address="127.0.0.1", listen_port=ports[0], admin_port=ports[1])


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(setup: Setup) -> bool:
    body = chat_body(_BODY_BYTES)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {setup.key}\r\ncontent-length: {len(body)}\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", setup.port), timeout=5) as client:
            client.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
            return client.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a part did not start; run the commands of `setups` by hand to see why")
        time.sleep(0.05)


def table(results: dict[tuple[str, int], list[dict[str, float]]]) -> str:
    """The median of each figure, a line for each setup and number of connections."""
    lines = [f"{'':16}{'connections':>12}{'p50 ms':>9}{'p99 ms':>9}{'requests/s':>12}{'envoy us':>10}{'processor us':>14}"]
    for (name, connections), rounds in results.items():
        p50, p99, rate, envoy, processor = (
            statistics.median(figures.get(key, 0.0) for figures in rounds) for key in ("p50", "p99", "rate", "envoy", "processor")
        )
        lines.append(f"{name:16}{connections:12}{p50:9.3f}{p99:9.3f}{rate:12.0f}{envoy:10.0f}{processor:14.0f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    results: dict[tuple[str, int], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, setups(Path(folder)) as found:
        for connections in _CONNECTIONS:
            for _ in range(options.rounds):
                for name, setup in found.items():
                    results.setdefault((name, connections), []).append(measure(setup, connections, options.seconds))
    sys.stdout.write(table(results))


if __name__ == "__main__":
    main()
