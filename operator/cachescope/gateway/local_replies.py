"""The answers that Envoy makes up itself, rewritten to OpenAI's shape.

Envoy calls the answers of the external processor local replies too: those are the decision's own and pass unchanged, found by
the details that `messages.immediate` puts on them. Of the rest the first row that matches is used.
"""

from __future__ import annotations

from typing import Any, Final

from cachescope.gateway.errors import ERRORS, ErrorName, body

DECIDED: Final = "cachescope_answer"

# Envoy's response flags that say: it is the engine that cannot be reached, not the gateway that cannot decide.
_UPSTREAM_FLAGS: Final = ("UF", "UC", "UH", "UO", "UR", "LR", "LH")

_BY_STATUS: Final[tuple[tuple[int, ErrorName], ...]] = (
    (400, "invalid_request"),
    (403, "permission_denied"),
    (404, "not_found"),
    (408, "request_timeout"),
    (413, "body_too_large"),
    (431, "headers_too_large"),
    (500, "internal"),
    (502, "upstream_invalid_answer"),
    (503, "gateway_not_ready"),
    (504, "upstream_timeout"),
)


def local_replies() -> dict[str, Any]:
    """Envoy's `local_reply_config`."""
    by_status = [_mapper(name, _status("EQ", status)) for status, name in _BY_STATUS]
    return {
        "mappers": [
            {"filter": _details(DECIDED)},
            _mapper("upstream_unavailable", _all(_status("EQ", 503), {"response_flag_filter": {"flags": list(_UPSTREAM_FLAGS)}})),
            *by_status,
            _mapper("internal", _status("GE", 500)),
            _mapper("invalid_request", _status("GE", 400)),
        ]
    }


def _mapper(name: ErrorName, when: dict[str, Any]) -> dict[str, Any]:
    text = body(name).decode().replace("%", "%%")  # a lone % would begin one of Envoy's own substitutions
    headers = [
        {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
        for key, value in ERRORS[name].headers.items()
    ]
    return {
        "filter": when,
        "headers_to_add": headers,
        "body_format_override": {"text_format_source": {"inline_string": text}, "content_type": "application/json"},
    }


def _status(operator: str, value: int) -> dict[str, Any]:
    # Envoy asks for a runtime key here; nothing sets it.
    return {
        "status_code_filter": {
            "comparison": {
                "op": operator,
                "value": {"default_value": value, "runtime_key": f"cachescope.status.{operator}.{value}"},
            }
        }
    }


def _details(details: str) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    config = {"@type": kind, "expression": f"response.code_details == '{details}'"}
    return {"extension_filter": {"name": "envoy.access_loggers.extension_filters.cel", "typed_config": config}}


def _all(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"and_filter": {"filters": list(filters)}}
