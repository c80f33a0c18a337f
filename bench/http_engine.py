"""A fake engine that answers every request at once with a small JSON body: `python -m bench.http_engine PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

_BODY = b'{"id":"chatcmpl-0","object":"chat.completion","choices":[]}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


class Engine(asyncio.Protocol):
    """One connection; requests carry a content-length."""

    def __init__(self) -> None:
        self._request = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop registers no base class

    def data_received(self, data: bytes) -> None:
        """Answer a request that is whole."""
        self._request += data
        head, found, body = self._request.partition(b"\r\n\r\n")
        if not found:
            return
        lengths = [int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if len(body) >= lengths[0]:
            assert self._transport is not None  # noqa: S101 set before the first data
            self._request = b""
            self._transport.write(_ANSWER)


async def serve(port: int) -> None:
    """Answer on a port of 127.0.0.1 until the process ends."""
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
