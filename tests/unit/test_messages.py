"""Envoy's messages: what is read of a request's head, and what is left of it on the way to an engine."""

from __future__ import annotations

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.gateway import messages
from cachescope.gateway.envoy import DESTINATION_HEADER, LENGTH_HEADER, REQUEST_ID_HEADER
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.local_replies import DECIDED
from tests.unit.envoy_streams import head

CHAT = "/v1/chat/completions"
FORWARD = Forward("10.0.0.1:8000", CHAT, {"x-permit": "p", "x-empty": ""}, frozenset({"content-type"}), b"salted")


def fields(mutation: ext_proc.HeaderMutation) -> dict[str, str]:
    """What is set; each replaces what was there."""
    assert all(option.append_action == base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD for option in mutation.set_headers)
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}


def test_a_head_is_read_without_its_pseudo_headers_and_keeps_repeated_ones_in_order() -> None:
    read = messages.head(head(f"{CHAT}?a=b", ("x-one", "1"), ("x-two", "2"), ("x-one", "3")))
    assert read == RequestHead("POST", f"{CHAT}?a=b", (("x-one", "1"), ("x-two", "2"), ("x-one", "3")))


def test_a_head_without_method_and_path_names_neither() -> None:
    assert messages.head(ext_proc.ProcessingRequest()) == RequestHead("", "", ())


@pytest.mark.parametrize("value", ["gr\xfcn", "\x80Bearer"])
def test_a_byte_outside_ascii_equals_nothing_that_is_looked_for(value: str) -> None:
    read = messages.head(head(CHAT, ("x-a", value), ("x-b", "plain")))
    assert read.values("x-b") == ["plain"]
    assert read.values("x-a") == ["".join(character if character.isascii() else "\ufffd" for character in value)]


def test_a_value_that_came_as_text_is_read_too() -> None:
    message = ext_proc.ProcessingRequest()
    message.request_headers.headers.headers.add(key="x-a", value="text")
    assert messages.head(message).one("x-a") == "text"


def test_an_engine_gets_the_headers_that_are_named_and_no_other_of_the_clients() -> None:
    kept = (("content-type", "application/json"), (REQUEST_ID_HEADER, "id"), ("x-envoy-a", "1"), ("x-forwarded-for", "2"))
    client = (("authorization", "Bearer secret"), ("x-permit", "forged"), ("x-unheard-of", "1"), (DESTINATION_HEADER, "10.6.6.6:1"))
    request = RequestHead("POST", CHAT, (*kept, *client))
    reply = messages.forward_headers(FORWARD, request, has_body=True).request_headers.response
    assert sorted(reply.header_mutation.remove_headers) == ["authorization", "x-unheard-of"]
    assert fields(reply.header_mutation) == {
        "x-permit": "p",
        "x-empty": "",
        ":path": CHAT,
        DESTINATION_HEADER: FORWARD.endpoint,
        LENGTH_HEADER: str(len(FORWARD.body)),
    }
    assert {option.header.key for option in reply.header_mutation.set_headers if option.keep_empty_value} == {"x-empty"}
    assert reply.clear_route_cache


def test_a_length_is_set_only_for_a_body() -> None:
    request = RequestHead("GET", "/v1/models", ((LENGTH_HEADER, "7"),))
    mutation = messages.forward_headers(FORWARD, request, has_body=False).request_headers.response.header_mutation
    assert LENGTH_HEADER not in fields(mutation)
    assert list(mutation.remove_headers) == [LENGTH_HEADER], "a client's own would be taken for ours"


def test_an_answer_of_the_gateways_own_says_that_it_was_decided() -> None:
    reply = messages.immediate(Answer(403, b"{}", "revoked", {"retry-after": "1"})).immediate_response
    assert (reply.status.code, reply.body, reply.details) == (403, b"{}", DECIDED)
    assert fields(reply.headers) == {"content-type": "application/json", "retry-after": "1"}
