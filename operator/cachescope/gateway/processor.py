"""Envoy's external processor: a thin shell that carries requests to the decision and its verdicts back.

Each HTTP request is one gRPC stream. Rules:

1. The reply to the headers is held until the whole body is here, so that the decision sees both and an engine sees nothing
   before it. An answer of the gateway's own goes out at once, and the rest of the body is not read.
2. A body over the limit is refused when its announced length says so, or else at the byte that crosses the limit.
3. A decision that fails, or takes longer than its time, is a 503. Nothing passes by default.
4. `Gate.finished` is called exactly once for each `Forward` that `decide` returned, when its stream ends. A `decide` that is
   cancelled because the client left returned none: what it had begun it takes back itself.

Measured on Envoy 1.40:

- With every response mode off, Envoy ends the gRPC stream as soon as the request is through. With `response_trailer_mode: SEND`
  it keeps it until the answer has ended, the client left or the engine reset, and sends no message for an answer without
  trailers: rule 4 rests on that. The price: a processor that dies cuts the answers that are under way.
- `message_timeout` does not run in full-duplex mode (a reply after 7 s passed a limit of 5 s): the time of rule 3 is kept here.
  A process that is frozen answers none of Envoy's pings and loses its connections after `EnvoySettings.frozen_seconds`. One
  that only blocks its event loop is not found by that, since gRPC answers pings beside it: hence the decision bounds its work.
- Envoy drops `content-length` in full-duplex mode, even one set here: a header mutation behind the processor puts it back.
- Repeated headers come as repeated pairs, except those that Envoy knows by name (`authorization`, `content-type`, …): it joins
  these with a comma.

Source: envoy.service.ext_proc.v3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Final

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.gateway import messages
from cachescope.gateway.budget import ByteBudget, Share
from cachescope.gateway.errors import answer, as_clients_of
from cachescope.gateway.exchange import Answer, Forward, Gate, RequestHead

_LOG: Final = logging.getLogger(__name__)
BUFFERED_BYTES: Final = 256 * 1024 * 1024
"""Bytes of bodies that are held at once, all requests together; parsed, they take several times as much."""

_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
_EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]
_OPTIONS: Final = (
    # Envoy's pings find a frozen process; gRPC would take them for abuse.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    # A message is a chunk of a body, whose own limit is the decision's; gRPC's default of 4 MiB would turn into a 500.
    ("grpc.max_receive_message_length", -1),
)


async def serve(gate: Gate, socket_path: str, *, decision_seconds: float = 5.0) -> grpc.aio.Server:
    """Start the processor.

    Args:
        gate: The decision.
        socket_path: Path of the Unix socket to listen on.
        decision_seconds: How long `admit` and `decide` may take, each.

    Returns:
        The running server. Hold on to it: gRPC stops a server that nobody holds.
        `await server.stop(grace)` lets requests under way end within `grace` seconds.
    """
    budget = ByteBudget(BUFFERED_BYTES)

    async def process(_: Any, context: Any) -> None:  # noqa: ANN401 - gRPC's contexts are untyped
        await _Exchange(gate, context, budget, decision_seconds).run()

    handler = grpc.stream_stream_rpc_method_handler(
        process, ext_proc.ProcessingRequest.FromString, ext_proc.ProcessingResponse.SerializeToString
    )
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Process": handler}),))
    server.add_insecure_port(f"unix:{socket_path}")
    await server.start()
    return server


class _ClientLeftError(Exception):
    """The stream ended before the request was complete: there is nobody to answer."""


class _Exchange:
    """One HTTP request."""

    __slots__ = ("_budget", "_gate", "_seconds", "_stream", "_trailers")

    def __init__(self, gate: Gate, stream: Any, budget: ByteBudget, seconds: float) -> None:  # noqa: ANN401 - untyped contexts
        self._gate = gate
        self._budget = budget
        self._stream = stream
        self._seconds = seconds
        self._trailers = False

    async def run(self) -> None:
        """Decide and reply; then stay until the answer has ended."""
        first = await self._read()
        if first is None:
            return
        with contextlib.suppress(_ClientLeftError):
            await self._reply(messages.head(first), has_body=not first.request_headers.end_of_stream)

    async def _reply(self, head: RequestHead, *, has_body: bool) -> None:
        verdict = await self._verdict(head, has_body=has_body)
        if isinstance(verdict, Answer):
            await self._write(messages.immediate(as_clients_of(head.path, verdict)))
            return
        try:
            await self._forward(verdict, head, has_body=has_body)
            await self._ended()
        finally:
            self._finished(verdict)

    async def _verdict(self, head: RequestHead, *, has_body: bool) -> Forward | Answer:
        admitted = await self._in_time(self._gate.admit(head))
        if isinstance(admitted, Answer):
            return admitted
        with self._budget.share() as share:
            body = await self._body(head, share) if has_body else b""
            if isinstance(body, Answer):
                return body
            verdict = await self._in_time(self._gate.decide(admitted, body))
        return verdict if isinstance(verdict, Forward | Answer) else answer("gateway_not_ready")

    async def _in_time(self, step: Coroutine[Any, Any, object]) -> object:
        try:
            async with asyncio.timeout(self._seconds):
                return await step
        except TimeoutError:
            _LOG.error("decision took too long", extra={"seconds": self._seconds})
        except Exception as error:
            # The type alone: a message could quote the request.
            _LOG.error("decision failed", extra={"error": type(error).__name__})
        return answer("gateway_not_ready")

    async def _body(self, head: RequestHead, share: Share) -> bytes | Answer:
        limit = self._gate.max_request_bytes
        declared = head.one("content-length") or ""
        size = int(declared) if declared.isdecimal() else 0
        body = bytearray()  # a list of the chunks would cost forty times the body, were each a byte long
        complete = False
        while not complete and max(size, len(body)) <= limit:
            chunk, complete = await self._chunk()
            if not share.take(len(chunk)):
                return answer("gateway_not_ready", "The gateway holds too many large requests. Try again in a moment.")
            body += chunk
        if max(size, len(body)) > limit:
            return answer("body_too_large", f"The request body is larger than {limit} bytes. Send a shorter one.")
        return bytes(body)

    async def _chunk(self) -> tuple[bytes, bool]:
        message = await self._read()
        if message is None:
            raise _ClientLeftError
        if message.HasField("request_trailers"):
            self._trailers = True
            return b"", True
        return message.request_body.body, message.request_body.end_of_stream

    async def _forward(self, forward: Forward, head: RequestHead, *, has_body: bool) -> None:
        if forward.body and not has_body:
            # There is no body to replace: Envoy would send this request without one.
            await self._write(messages.immediate(answer("internal")))
            return
        await self._write(messages.forward_headers(forward, head, has_body=has_body))
        if has_body:
            for chunk in messages.body_chunks(forward.body, last=not self._trailers):
                await self._write(chunk)
        if self._trailers:
            await self._write(messages.request_trailers_passed())

    async def _ended(self) -> None:
        while (message := await self._read()) is not None:
            if message.HasField("response_trailers"):
                await self._write(messages.response_trailers_passed())

    def _finished(self, forward: Forward) -> None:
        try:
            self._gate.finished(forward)
        except Exception as error:
            _LOG.error("end of a request was not counted", extra={"error": type(error).__name__})

    async def _read(self) -> ext_proc.ProcessingRequest | None:
        message = await self._stream.read()
        return None if message is _EOF else message

    async def _write(self, message: ext_proc.ProcessingResponse) -> None:
        await self._stream.write(message)
