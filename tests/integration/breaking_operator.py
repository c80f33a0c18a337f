"""Operators that a test ends in the middle of their work. They are forked from a process that has everything imported.

A fuse counts the writes that an operator sends, its election aside: at the one that it names the process ends at once, before the
write is sent, or after it was committed and before anything learns of the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, Literal

from cachescope import logs
from cachescope.controller.main import run
from cachescope.controller.options import Options
from cachescope.kube.rest import Rest
from e2e.stack.paths import KUBECONFIG
from tests.integration.operator_process import Operator
from tests.integration.ports import free_port

BLOWN = 97
When = Literal["before", "after"]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["cachescope.controller.main", __name__])


class ForkedOperator(Operator):
    """One operator.

    Args:
        namespace: The installation.
        log: Where it writes.
        identity: Its name.
    """

    def __init__(self, namespace: str, log: Path, identity: str = "test") -> None:
        self.namespace = namespace
        self.port = free_port()
        self.log = log
        self.fuse = log.with_name(f"{log.stem}-{self.port}.fuse")
        self.child = _CONTEXT.Process(target=_operate, args=(namespace, self.port, identity, str(log), str(self.fuse)), daemon=True)
        self.child.start()

    def arm(self, number: int, when: When, *, events: bool) -> None:
        """End the process at its so many-th write from now on.

        Args:
            number: Of the write, from 1.
            when: Before it is sent, or after it was committed.
            events: Whether Events count as writes.
        """
        self.fuse.write_text(f"{number} {when} {int(events)}")

    def disarm(self) -> None:
        """Let it live."""
        self.fuse.unlink(missing_ok=True)

    @property
    def sent(self) -> list[str]:
        """The writes that the fuse counted: method, and what was written."""
        path = self.fuse.with_suffix(".sent")
        return path.read_text().splitlines() if path.exists() else []

    @property
    def blown(self) -> bool:
        """Whether the fuse ended it."""
        return self.child.exitcode == BLOWN

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.child.pid or 0, number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        if self.child.is_alive():
            self.send(number)
        self.child.join(timeout=30)
        return self.child.exitcode if self.child.exitcode is not None else -1

    async def led(self) -> None:
        """Wait until it leads and has loaded everything."""
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(self.leads):
                if not self.child.is_alive():
                    raise AssertionError(f"the operator ended\n{self.log.read_text()[-4000:]}")
                await asyncio.sleep(0.1)


def _operate(namespace: str, port: int, identity: str, log: str, fuse: str) -> None:
    with Path(log).open("ab", buffering=0) as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    os.environ["KUBECONFIG"] = str(KUBECONFIG)
    _put_in(Path(fuse))
    logs.configure()
    run(Options(namespace, "example.invalid/guard:0.1.0", port=port, identity=identity))


def _put_in(fuse: Path) -> None:
    send, sent = Rest._send, itertools.count(1)

    async def fused(rest: Rest, method: str, path: str, **options: Any) -> Any:
        if method == "GET" or "coordination.k8s.io" in path or not (armed := _armed(fuse)):
            return await send(rest, method, path, **options)
        number, when, events = armed.split()
        if events == "0" and "/events" in path:
            return await send(rest, method, path, **options)
        mine = next(sent) == int(number)
        _note(fuse, f"{method} {path.partition('namespaces/')[2].partition('/')[2]}")
        if mine and when == "before":
            os._exit(BLOWN)
        answer = await send(rest, method, path, **options)
        if mine:
            os._exit(BLOWN)
        return answer

    Rest._send = fused  # type: ignore[method-assign, assignment]


def _note(fuse: Path, line: str) -> None:
    with fuse.with_suffix(".sent").open("a") as sent:
        sent.write(f"{line}\n")


def _armed(fuse: Path) -> str:
    return fuse.read_text() if fuse.exists() else ""
