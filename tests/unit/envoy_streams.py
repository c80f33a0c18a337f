"""What Envoy sends to the processor, and a stream of it in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

END: Any = grpc.aio.EOF  # type: ignore[attr-defined]


def head(path: str, *headers: tuple[str, str], whole: bool = False) -> ext_proc.ProcessingRequest:
    """The first message of a POST; `whole` says that no body follows."""
    message = ext_proc.ProcessingRequest()
    message.request_headers.end_of_stream = whole
    for name, value in ((":method", "POST"), (":path", path), *headers):
        header = message.request_headers.headers.headers.add()
        header.key, header.raw_value = name, value.encode("latin-1")
    return message


def body(content: bytes, *, last: bool = True) -> ext_proc.ProcessingRequest:
    """One chunk of a body."""
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=content, end_of_stream=last))


def request_trailers() -> ext_proc.ProcessingRequest:
    return ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers())


def response_trailers() -> ext_proc.ProcessingRequest:
    return ext_proc.ProcessingRequest(response_trailers=ext_proc.HttpTrailers())


class Stream:
    """A gRPC stream of one request: what is read is what a test wrote, and then its end.

    Attributes:
        requests: What nobody has read yet.
        replies: What the processor wrote.
        unread: How much had not been read when each reply was written.
        lost: Whether Envoy is gone, so that no reply arrives any more.
    """

    def __init__(self, *requests: ext_proc.ProcessingRequest) -> None:
        self.requests = list(requests)
        self.replies: list[ext_proc.ProcessingResponse] = []
        self.unread: list[int] = []
        self.lost = False

    async def read(self) -> Any:
        await asyncio.sleep(0)
        return self.requests.pop(0) if self.requests else END

    async def write(self, message: ext_proc.ProcessingResponse) -> None:
        if self.lost:
            raise asyncio.CancelledError
        self.replies.append(message)
        self.unread.append(len(self.requests))
