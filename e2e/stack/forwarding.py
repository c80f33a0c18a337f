"""A port of a pod or Service on loopback, that stays.

`kubectl port-forward` ends as soon as one of its connections breaks on the pod's side: a server that answers before it has
read all of a request, and closes, is enough. So it is started again on the same port until the caller is done.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PAUSE = 0.2


class ForwardError(Exception):
    """The port could not be forwarded; the message is what kubectl printed."""


@contextmanager
def kept(kubectl: Sequence[str], target: str, port: int) -> Iterator[str]:
    """Forward a port to a free one on loopback; yields `127.0.0.1:port`.

    Args:
        kubectl: The program and its arguments for cluster and namespace.
        target: `pod/<name>` or `service/<name>`.
        port: The port there.

    Raises:
        ForwardError: The first start failed. A later one is tried again until the caller is done.
    """
    forward = _Forward([*kubectl, "port-forward", "--address=127.0.0.1", target], port)
    keeper = threading.Thread(target=forward.keep, daemon=True)
    keeper.start()
    try:
        yield f"127.0.0.1:{forward.local}"
    finally:
        forward.end()
        keeper.join(10)


class _Forward:
    def __init__(self, command: Sequence[str], port: int) -> None:
        self._command = command
        self._port = port
        self._ending = threading.Event()
        self._turn = threading.Lock()
        self._process = self._started("")
        self.local = _port_of(self._process)

    def keep(self) -> None:
        while not self._ending.is_set():
            # It prints a line for each connection; unread, they would fill the pipe and stop it.
            self._process.communicate()
            self._ending.wait(PAUSE)
            with self._turn:
                if not self._ending.is_set():
                    self._process = self._started(self.local)

    def end(self) -> None:
        with self._turn:
            self._ending.set()
            self._process.terminate()

    def _started(self, local: str) -> subprocess.Popen[str]:
        command = [*self._command, f"{local}:{self._port}"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _port_of(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    found = re.search(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
    if not found:
        process.kill()
        process.communicate()
        raise ForwardError(f"port-forward did not start: {line.strip()}; look at the pod")
    return found.group(1)
