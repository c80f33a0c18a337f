"""The processor with a decision that costs nothing: `python -m bench.gateway_processor SOCKET ENGINE_PORT FOLDER`.

The body grows as by a salt, and a header of a permit's size is set, so that the messages are as long as the real ones. A key, which
nobody looks at, is written to `key` in FOLDER once it serves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop

from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.main import tune_interpreter
from cachescope.gateway.processor import serve

_PERMIT = {"x-cachescope-permit": "p" * 600}
_KEPT = frozenset({"content-type", "accept"})
_SALT = b',"cache_salt":"' + b"s" * 43 + b'"}'


class Gate:
    """Forwards everything."""

    max_request_bytes = 16 * 1024 * 1024

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    async def admit(self, head: RequestHead) -> object:
        """Admit."""
        return head

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:  # noqa: ARG002 the port's signature
        """Forward."""
        return Forward(self._endpoint, "/v1/chat/completions", _PERMIT, _KEPT, body[:-1] + _SALT)

    def finished(self, forward: Forward) -> None:
        """Nothing is counted."""


async def main(socket_path: str, engine_port: str, folder: str) -> None:
    """Serve until the process ends."""
    tune_interpreter()
    server = await serve(Gate(f"127.0.0.1:{engine_port}"), socket_path)
    (Path(folder) / "key").write_text("sk-bench")
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
