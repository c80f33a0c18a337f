"""A client that speaks TLS and may present a certificate; each request on a connection of its own, or all on one."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.certificates import client_context

CHAT = "/v1/chat/completions"
SECONDS = 30


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        status: HTTP status.
        headers: Names in lower case.
        body: Its bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of its error."""
        return str(json.loads(self.body)["error"]["code"])

    @property
    def cached(self) -> int:
        """Tokens that the engine found in its cache."""
        assert self.status == 200, (self.status, self.body)
        return int(json.loads(self.body)["usage"]["prompt_tokens_details"]["cached_tokens"])


def chat_body(text: str) -> dict[str, Any]:
    """A chat request of a few tokens."""
    return {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}


@dataclass(frozen=True)
class Client:
    """A client on loopback.

    Attributes:
        port: Where it connects to.
        pair: Folder of the certificate that it presents, if any.
        tls: Whether it speaks TLS.
    """

    port: int
    pair: Path | None = None
    tls: bool = True

    def connected(self) -> http.client.HTTPConnection:
        """A connection, to be closed."""
        if not self.tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS, context=client_context(self.pair))

    def chat(self, text: str, headers: Mapping[str, str]) -> Answer:
        """Send a chat request."""
        return self.post(CHAT, chat_body(text), headers)

    def post(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Answer:
        """Send a JSON request on a connection of its own; status 0 where there was no answer.

        Raises:
            ssl.SSLError: The handshake failed.
        """
        connection = self.connected()
        try:
            return post(connection, path, body, headers)
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        """Ask on a connection of its own; status 0 where there was no answer."""
        connection = self.connected()
        try:
            return _asked(connection, "GET", path)
        finally:
            connection.close()


def post(connection: http.client.HTTPConnection, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Answer:
    """Send a JSON request on a connection; status 0 where it was refused or ended without an answer."""
    return _asked(connection, "POST", path, json.dumps(body), {"content-type": "application/json", **headers})


def _asked(connection: http.client.HTTPConnection, *request: Any) -> Answer:
    try:
        connection.request(*request)
        response = connection.getresponse()
    except (ConnectionRefusedError, http.client.RemoteDisconnected):
        return Answer(0, {}, b"")
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
