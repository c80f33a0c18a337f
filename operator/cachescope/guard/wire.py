"""The few ASGI 3 types and messages that the guard uses; the specification is at https://asgi.readthedocs.io."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

DISCONNECT = "http.disconnect"
REQUEST = "http.request"
START = "http.response.start"
BODY = "http.response.body"


def header_values(scope: Scope, name: str) -> list[str]:
    """All values of a header; ISO 8859-1, as headers are read."""
    wanted = name.encode()
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted]


def target(scope: Scope) -> str:
    """The request target as it was sent: raw path, and `?` with the query if there is one."""
    raw_path = scope.get("raw_path")
    path = raw_path.decode("latin-1") if raw_path is not None else scope["path"]
    query = scope.get("query_string", b"")
    return f"{path}?{query.decode('latin-1')}" if query else str(path)
