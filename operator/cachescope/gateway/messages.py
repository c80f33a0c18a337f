"""Envoy's external-processing messages, made from plain values and read into them.

Rules:

1. A header value is read as ASCII; any other byte becomes U+FFFD, which equals nothing that the decision looks for.
2. `Forward` keeps only what it names: the mutation removes every other header of the request, so a header that nobody
   thought of does not reach an engine.
3. The body goes back in chunks, the last one marked; the length that goes with it is that of these bytes.

Source: envoy.service.ext_proc.v3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.type.v3 import http_status_pb2

from cachescope.gateway.envoy import DESTINATION_HEADER, LENGTH_HEADER, REQUEST_ID_HEADER
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.local_replies import DECIDED

CHUNK_BYTES: Final = 64 * 1024

# Envoy's own: set after the client's were removed, and dropped again by the route.
_ENVOYS: Final = ("x-envoy-", "x-forwarded-")
_OVERWRITE: Final = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def head(headers: ext_proc.HttpHeaders) -> RequestHead:
    """The request as the decision sees it.

    Args:
        headers: The first message of a stream.

    Returns:
        Method, path and headers; pseudo-headers are left out of the latter.
    """
    pairs = [(entry.key, _value(entry)) for entry in headers.headers.headers]
    pseudo = dict(pair for pair in pairs if pair[0].startswith(":"))
    ordinary = tuple(pair for pair in pairs if not pair[0].startswith(":"))
    return RequestHead(pseudo.get(":method", "").upper(), pseudo.get(":path", ""), ordinary)


def immediate(answer: Answer) -> ext_proc.ProcessingResponse:
    """The gateway's own answer, given at once whatever part of the request has come."""
    fields = {"content-type": "application/json", **answer.headers}
    return ext_proc.ProcessingResponse(
        immediate_response=ext_proc.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=answer.status),  # type: ignore[arg-type]
            headers=ext_proc.HeaderMutation(set_headers=_options(fields)),
            body=answer.body,
            details=DECIDED,
        )
    )


def forward_headers(forward: Forward, request: RequestHead, *, has_body: bool) -> ext_proc.ProcessingResponse:
    """The reply to the request's headers: where it goes, and with which headers.

    Args:
        forward: The decision.
        request: What the client sent.
        has_body: Whether a body follows; its length is then set.

    Returns:
        A header mutation that leaves nothing of the client's but `keep_headers`.
    """
    fields = {**forward.set_headers, ":path": forward.path, DESTINATION_HEADER: forward.endpoint}
    if has_body:
        fields[LENGTH_HEADER] = str(len(forward.body))
    mutation = ext_proc.HeaderMutation(set_headers=_options(fields), remove_headers=_removed(request, forward.keep_headers, fields))
    common = ext_proc.CommonResponse(header_mutation=mutation, clear_route_cache=True)
    return ext_proc.ProcessingResponse(request_headers=ext_proc.HeadersResponse(response=common))


def body_chunks(body: bytes, *, last: bool) -> Iterator[ext_proc.ProcessingResponse]:
    """The body in chunks, at least one.

    Args:
        body: Exact bytes to send.
        last: Whether the request ends with the body; without it, trailers follow.

    Yields:
        A message a chunk.
    """
    for start in range(0, len(body) or 1, CHUNK_BYTES):
        end = start + CHUNK_BYTES
        chunk = ext_proc.StreamedBodyResponse(body=body[start:end], end_of_stream=last and end >= len(body))
        common = ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(streamed_response=chunk))
        yield ext_proc.ProcessingResponse(request_body=ext_proc.BodyResponse(response=common))


def request_trailers_passed() -> ext_proc.ProcessingResponse:
    """The end of a request that came with trailers; an engine is spoken to in HTTP/1.1 without trailers, so they end at Envoy."""
    return ext_proc.ProcessingResponse(request_trailers=ext_proc.TrailersResponse())


def response_trailers_passed() -> ext_proc.ProcessingResponse:
    """The reply to an answer's trailers: unchanged."""
    return ext_proc.ProcessingResponse(response_trailers=ext_proc.TrailersResponse())


def _value(entry: base_pb2.HeaderValue) -> str:
    return entry.raw_value.decode("ascii", "replace") if entry.raw_value else entry.value


def _options(fields: Mapping[str, str]) -> list[base_pb2.HeaderValueOption]:
    return [
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=key, raw_value=value.encode()), append_action=_OVERWRITE, keep_empty_value=True
        )
        for key, value in fields.items()
    ]


def _removed(request: RequestHead, kept: frozenset[str], fields: Mapping[str, str]) -> Iterable[str]:
    names = {name for name, _ in request.headers}
    return [name for name in names - kept - fields.keys() if name != REQUEST_ID_HEADER and not name.startswith(_ENVOYS)]
