"""The error bodies of the gateway, in OpenAI's shape: a fixed table, shared by the decision and by Envoy's local replies.

On the routes of Anthropic's API the decision's refusals take that API's shape, which its clients read. What Envoy answers by itself
stays in OpenAI's everywhere: it knows no routes.

The table is the list of codes that a client can meet. What a client is told never depends on text that a proxy made up
(Envoy's response code details), so that no internal address or state leaves with an error.

Sources: the error object of the OpenAI API (`message`, `type`, `param`, `code`), and that of the Anthropic API (`type`, `message`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

from cachescope.engines.routes import Dialect
from cachescope.engines.tables import TABLES
from cachescope.gateway.exchange import Answer

ErrorName = Literal[
    "authentication_required",
    "permission_denied",
    "revoked",
    "not_found",
    "model_not_found",
    "invalid_request",
    "unsupported_parameter",
    "unsupported_media_type",
    "body_too_large",
    "headers_too_large",
    "request_timeout",
    "conflict",
    "no_endpoint",
    "gateway_not_ready",
    "restore_unconfirmed",
    "upstream_unavailable",
    "upstream_invalid_answer",
    "upstream_timeout",
    "internal",
]


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """How one error is answered.

    Attributes:
        status: HTTP status.
        type: OpenAI's error type.
        message: What the client reads when the caller has nothing more exact to say; ends with what to do next.
        code: OpenAI's error code, where it is not the name in the table.
        headers: Headers that go with it.
    """

    status: int
    type: str
    message: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_ANTHROPIC_PATHS: Final = frozenset(
    route.path for table in TABLES.values() for route in table.values() if route.dialect in {Dialect.MESSAGE, Dialect.COUNTING}
)
_ANTHROPIC_TYPES: Final = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large", 504: "timeout_error"}
)
_RETRY: Final = MappingProxyType({"retry-after": "1"})

ERRORS: Final[Mapping[ErrorName, ErrorForm]] = MappingProxyType(
    {
        "authentication_required": ErrorForm(
            401,
            "authentication_error",
            "The credential is missing or not valid. Send a valid API key or token as `Authorization: Bearer …`.",
            "invalid_api_key",
            {"www-authenticate": "Bearer"},
        ),
        "permission_denied": ErrorForm(
            403, "permission_error", "This credential may not do that. Ask the platform team for access."
        ),
        "revoked": ErrorForm(403, "permission_error", "This credential was revoked. Ask the platform team for another one."),
        "not_found": ErrorForm(
            404, "invalid_request_error", "This gateway does not serve that method and path. Use a documented route."
        ),
        "model_not_found": ErrorForm(
            404, "invalid_request_error", "The model does not exist or you have no access to it. List the models at `/v1/models`."
        ),
        "invalid_request": ErrorForm(400, "invalid_request_error", "The request is not valid. Correct it and send it again."),
        "unsupported_parameter": ErrorForm(
            400, "invalid_request_error", "A parameter is not supported here. Remove it and send the request again."
        ),
        "unsupported_media_type": ErrorForm(
            415, "invalid_request_error", "The body's type or encoding is not supported. Send `application/json`, not compressed."
        ),
        "body_too_large": ErrorForm(413, "invalid_request_error", "The request body is too large. Send a shorter one."),
        "headers_too_large": ErrorForm(
            431, "invalid_request_error", "The request headers are too large. Send fewer or shorter ones."
        ),
        "request_timeout": ErrorForm(
            408, "invalid_request_error", "The request did not arrive in time. Check the connection and send it again."
        ),
        "conflict": ErrorForm(
            409, "server_error", "The request met a change of epoch. Send it again.", headers={"retry-after": "0"}
        ),
        "no_endpoint": ErrorForm(503, "server_error", "No engine is ready for this model. Try again in a moment.", headers=_RETRY),
        "gateway_not_ready": ErrorForm(
            503, "server_error", "The gateway cannot decide now. Try again in a moment.", headers=_RETRY
        ),
        "restore_unconfirmed": ErrorForm(
            503,
            "server_error",
            "The cluster was restored from a backup, and nobody has confirmed it yet. Try again later, or ask the platform team.",
            headers={"retry-after": "30"},
        ),
        "upstream_unavailable": ErrorForm(
            503, "server_error", "The engine cannot be reached. Try again in a moment.", headers=_RETRY
        ),
        "upstream_invalid_answer": ErrorForm(502, "server_error", "The engine's answer is not valid HTTP. Try again in a moment."),
        "upstream_timeout": ErrorForm(504, "server_error", "The engine did not answer in time. Try again, or ask for less."),
        "internal": ErrorForm(500, "server_error", "The gateway met a fault. Try again, and report it if it persists."),
    }
)


def body(name: ErrorName, message: str | None = None, *, param: str | None = None) -> bytes:
    """The JSON body of an error.

    Args:
        name: Name in the table.
        message: What to say instead of the table's message.
        param: The request's parameter that is at fault.

    Returns:
        JSON in UTF-8.
    """
    form = ERRORS[name]
    error = {"message": message or form.message, "type": form.type, "param": param, "code": form.code or name}
    return json.dumps({"error": error}, ensure_ascii=False).encode()


def answer(name: ErrorName, message: str | None = None, *, param: str | None = None) -> Answer:
    """The answer for an error; arguments as in `body`.

    Returns:
        An answer whose `reason` is the name in the table.
    """
    form = ERRORS[name]
    return Answer(form.status, body(name, message, param=param), name, form.headers)


def as_clients_of(path: str, refusal: Answer) -> Answer:
    """An answer of this table in the shape that the clients of a path read."""
    if path not in _ANTHROPIC_PATHS or refusal.status < 400:
        return refusal
    kind = _ANTHROPIC_TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
    error = {"type": kind, "message": json.loads(refusal.body)["error"]["message"]}
    return replace(refusal, body=json.dumps({"type": "error", "error": error}, ensure_ascii=False).encode())
