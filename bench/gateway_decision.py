"""The processor with the gateway's whole decision: `python -m bench.gateway_decision SOCKET ENGINE_PORT FOLDER`.

Authentication, cleaning, scope, record, salt, permit and audit line are the real ones, on the quickstart's resources; only the
API server, and the guard that proves itself, are in this process. The audit lines go to standard output, as in a pod. The API key
to load it with, of one tenant, is written to `key` in FOLDER once the endpoint is ready.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import uvloop

from cachescope import logs
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.main import tune_interpreter
from cachescope.gateway.processor import serve
from tests.unit.whole_path import ADDRESS, WholePath

PERSON = "red-alice"


class Elsewhere:
    """Implements `Gate`: decides as the gateway does, and sends what passes to the fake engine.

    Args:
        gate: The decision.
        endpoint: `address:port` of the fake engine.
    """

    def __init__(self, gate: Decision, endpoint: str) -> None:
        self._gate = gate
        self._endpoint = endpoint

    @property
    def max_request_bytes(self) -> int:
        """Largest body that is accepted."""
        return self._gate.max_request_bytes

    async def admit(self, head: RequestHead) -> object | Answer:
        """Decide from the headers alone."""
        return await self._gate.admit(head)

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:
        """Decide with the whole body."""
        decided = await self._gate.decide(admitted, body)
        return decided if isinstance(decided, Answer) else replace(decided, endpoint=self._endpoint)

    def finished(self, forward: Forward) -> None:
        """The request has ended."""
        self._gate.finished(replace(forward, endpoint=ADDRESS))


async def main(socket_path: str, engine_port: str, folder: str) -> None:
    """Serve until the process ends."""
    tune_interpreter()
    logs.configure()
    path = WholePath(Path(folder))
    await path.prove()
    server = await serve(Elsewhere(path.gate, f"127.0.0.1:{engine_port}"), socket_path)
    (Path(folder) / "key").write_text(path.credentials.api_keys[PERSON])
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
