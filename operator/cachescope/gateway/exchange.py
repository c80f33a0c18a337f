"""What passes between the proxy (Envoy's external processor) and the decision: plain values and one port.

The external processor knows Envoy's protocol and nothing of tenants; the decision knows tenants and nothing of Envoy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Peer:
    """A certificate that the client presented and the proxy verified.

    Attributes:
        uris: All URIs among its alternative names, joined by commas.
        issued: When it became valid, in seconds since 1970.
        expires: When it ends.
    """

    uris: str
    issued: int
    expires: int


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request before its body.

    Attributes:
        method: HTTP method, upper case.
        path: Raw path with its query, as the client sent it.
        headers: Names in lower case, without pseudo-headers, in the order in which they came; a name may repeat.
        peer: The certificate of the connection, or `None`. It never comes from a header.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    peer: Peer | None = None

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]

    def one(self, name: str) -> str | None:
        """The only value of a header; `None` if it is absent or comes more than once (which nothing may rely on)."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that the gateway gives itself.

    Attributes:
        status: HTTP status.
        body: JSON bytes in OpenAI's shape.
        headers: Further headers; `content-type: application/json` is implied.
        reason: Stable code, for metrics and the audit line.
    """

    status: int
    body: bytes
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forward:
    """A request that goes upstream.

    Attributes:
        endpoint: `address:port` of the chosen engine.
        path: Path to send, without a query.
        set_headers: Headers to set, each replacing all values of that name.
        keep_headers: Names that the client may pass through; the proxy removes every other one.
        body: The exact bytes to send.
    """

    endpoint: str
    path: str
    set_headers: Mapping[str, str]
    keep_headers: frozenset[str]
    body: bytes


class Gate(Protocol):
    """The decision, as the external processor calls it. Neither method raises; a fault inside is an `Answer` with 503."""

    @property
    def max_request_bytes(self) -> int:
        """Largest body that is accepted."""

    async def admit(self, head: RequestHead) -> object | Answer:
        """Decide from the headers alone: whether to read the body at all.

        Returns:
            What `decide` needs to know, opaque to the proxy; or the answer to give at once.
        """

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:
        """Decide with the whole body."""

    def finished(self, forward: Forward) -> None:
        """The request that was forwarded has ended, however it ended; called exactly once for each `Forward`."""
