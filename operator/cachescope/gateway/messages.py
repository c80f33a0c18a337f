"""Envoy's external-processing messages, made from plain values and read into them.

Rules:

1. A header value is read as ASCII; any other byte becomes U+FFFD, which equals nothing that the decision looks for.
2. `Forward` keeps only what it names, and the request id that Envoy made: the mutation removes every other header of the
   request, so a header that nobody thought of does not reach an engine.
3. The body goes back in chunks, the last one marked; the length that goes with it is that of these bytes.

Source: envoy.service.ext_proc.v3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.gateway.client_certificates import peer_of
from cachescope.gateway.envoy import DESTINATION_HEADER, LENGTH_HEADER, REQUEST_ID_HEADER
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.local_replies import DECIDED

CHUNK_BYTES: Final = 64 * 1024

# Envoy's own: set after the client's were removed, and dropped again by the route.
_ENVOYS: Final = ("x-envoy-", "x-forwarded-")
_OVERWRITE: Final = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def head(first: ext_proc.ProcessingRequest) -> RequestHead:
    """The request as the decision sees it.

    Args:
        first: The first message of a stream.

    Returns:
        Method, path, headers and the client's certificate; pseudo-headers are left out of the headers.
    """
    pseudo = {}
    ordinary = []
    for entry in first.request_headers.headers.headers:
        pair = (entry.key, _value(entry))
        if pair[0][0] == ":":
            pseudo[pair[0]] = pair[1]
        else:
            ordinary.append(pair)
    return RequestHead(pseudo.get(":method", "").upper(), pseudo.get(":path", ""), tuple(ordinary), peer_of(first))


def immediate(answer: Answer) -> ext_proc.ProcessingResponse:
    """The gateway's own answer, given at once whatever part of the request has come."""
    fields = {"content-type": "application/json", **answer.headers}
    message = ext_proc.ProcessingResponse()
    immediate_response = message.immediate_response
    immediate_response.status.code = answer.status
    _set(immediate_response.headers, fields)
    immediate_response.body = answer.body
    immediate_response.details = DECIDED
    return message


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
    message = ext_proc.ProcessingResponse()
    common = message.request_headers.response
    common.clear_route_cache = True
    _set(common.header_mutation, fields)
    common.header_mutation.remove_headers.extend(_removed(request, forward.keep_headers, fields))
    return message


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
        message = ext_proc.ProcessingResponse()
        chunk = message.request_body.response.body_mutation.streamed_response
        chunk.body = body if len(body) <= CHUNK_BYTES else body[start:end]
        chunk.end_of_stream = last and end >= len(body)
        yield message


def request_trailers_passed() -> ext_proc.ProcessingResponse:
    """The end of a request that came with trailers; an engine is spoken to in HTTP/1.1 without trailers, so they end at Envoy."""
    return ext_proc.ProcessingResponse(request_trailers=ext_proc.TrailersResponse())


def response_trailers_passed() -> ext_proc.ProcessingResponse:
    """The reply to an answer's trailers: unchanged."""
    return ext_proc.ProcessingResponse(response_trailers=ext_proc.TrailersResponse())


def _value(entry: base_pb2.HeaderValue) -> str:
    text: str = entry.raw_value.decode("ascii", "replace") if entry.raw_value else entry.value
    return text


def _set(mutation: ext_proc.HeaderMutation, fields: Mapping[str, str]) -> None:
    # Filled in place: building the parts first costs three times as much, and this is on every request's way.
    for key, value in fields.items():
        option = mutation.set_headers.add()
        option.append_action = _OVERWRITE
        option.keep_empty_value = not value
        option.header.key = key
        option.header.raw_value = value.encode()


def _removed(request: RequestHead, kept: frozenset[str], fields: Mapping[str, str]) -> Iterable[str]:
    names = {name for name, _ in request.headers}
    return [name for name in names - kept - fields.keys() if name != REQUEST_ID_HEADER and not name.startswith(_ENVOYS)]
