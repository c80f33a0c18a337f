"""The processor with a stub decision in a process of its own, to be frozen or killed: `SOCKET ENDPOINT`."""

from __future__ import annotations

import asyncio
import sys

from cachescope.gateway.processor import serve
from tests.integration.envoy_fixtures import StubGate


async def main(socket_path: str, endpoint: str) -> None:
    server = await serve(StubGate(endpoint), socket_path)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
