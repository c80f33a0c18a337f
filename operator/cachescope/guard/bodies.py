"""Request bodies, read whole and bounded before the engine sees any of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cachescope.core.types import Digest
from cachescope.guard.wire import REQUEST, Receive, Scope, header_values


class BodyTooLargeError(Exception):
    """The body is larger than the limit."""


@dataclass(frozen=True)
class Body:
    """A whole request body and its digest."""

    content: bytes
    digest: Digest


async def read_body(scope: Scope, receive: Receive, limit: int) -> Body | None:
    """Read a body.

    Args:
        scope: The request, whose declared length is looked at first.
        receive: The server's receive.
        limit: Greatest length in bytes.

    Returns:
        The body, or `None` if the client went away.

    Raises:
        BodyTooLargeError: It is longer than the limit.
    """
    if any(value.isdigit() and int(value) > limit for value in header_values(scope, "content-length") if len(value) < 20):
        raise BodyTooLargeError
    parts: list[bytes] = []
    size, hashed = 0, hashlib.sha256()
    while True:
        message = await receive()
        if message["type"] != REQUEST:
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLargeError
        parts.append(part)
        hashed.update(part)
        if not message.get("more_body", False):
            return Body(b"".join(parts), Digest("sha256:" + hashed.hexdigest()))
