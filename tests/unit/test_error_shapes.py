"""Errors in the shape that the clients of a route read: OpenAI's, and Anthropic's on the routes of its API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.engines.routes import Route
from cachescope.gateway.budget import ByteBudget
from cachescope.gateway.errors import ERRORS, ErrorName, answer, as_clients_of
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.processor import _Exchange
from tests.unit.bodies import COUNTING, MESSAGE, ROUTES
from tests.unit.envoy_streams import Stream, body, head

ANTHROPIC = [MESSAGE, COUNTING]
OPENAI = [route for route in ROUTES if route not in ANTHROPIC]
# https://docs.anthropic.com/en/api/errors
KNOWN_TYPES = {
    "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large", "rate_limit_error",
    "api_error", "timeout_error", "overloaded_error",
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_on_anthropics_routes_an_error_has_anthropics_shape(name: ErrorName) -> None:
    refusal = answer(name, "say this", param="model")
    for route in ANTHROPIC:
        shaped = as_clients_of(route.path, refusal)
        document = json.loads(shaped.body)
        assert document == {"type": "error", "error": {"type": document["error"]["type"], "message": "say this"}}
        assert document["error"]["type"] in KNOWN_TYPES
        assert (shaped.status, shaped.reason, shaped.headers) == (refusal.status, refusal.reason, refusal.headers)


@pytest.mark.parametrize("path", [*(route.path for route in OPENAI), "/", "/v1/messages/", "/v1/messages?x", "/v1/messages/render"])
def test_elsewhere_it_has_openais(path: str) -> None:
    refusal = answer("invalid_request")
    assert as_clients_of(path, refusal) is refusal


def test_what_is_no_error_keeps_its_shape() -> None:
    models = Answer(200, b"{}", "models")
    assert as_clients_of(MESSAGE.path, models) is models


class Gate:
    """Refuses heads, or waits for bodies of at most eight bytes."""

    max_request_bytes = 8

    def __init__(self, refusal: Answer | None) -> None:
        self.refusal = refusal

    async def admit(self, head: RequestHead) -> object:
        return self.refusal or head

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:  # noqa: ARG002 - no body is small enough
        raise AssertionError

    def finished(self, _: Forward) -> None:
        raise AssertionError


async def answered(route: Route, refusal: Answer | None) -> tuple[int, Any]:
    stream = Stream(head(route.path), body(b"x" * 9))
    await _Exchange(Gate(refusal), stream, ByteBudget(100), 1).run()
    (reply,) = stream.replies
    return reply.immediate_response.status.code, json.loads(reply.immediate_response.body)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_the_processor_shapes_the_decisions_answers_and_its_own(route: Route) -> None:
    for refusal, status in ((answer("authentication_required"), 401), (None, 413)):
        found, document = await answered(route, refusal)
        assert found == status
        assert ("type" in document) == (route in ANTHROPIC)
        assert document["error"]["message"]
