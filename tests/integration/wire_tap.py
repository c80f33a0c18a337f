"""A wire tap between gateway and engine: it keeps what it forwards, and asks the guard what no gateway would."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from cachescope.core.permits import PERMIT_HEADER
from cachescope.core.signed import key_id_of
from cachescope.core.statements import CHALLENGE_HEADER
from tests.integration.tls_client import Answer

SECONDS = 30
_HOP = frozenset({"connection", "content-length", "transfer-encoding"})


@dataclass(frozen=True)
class Tapped:
    """A request that the engine got.

    Attributes:
        method: Its method.
        path: Its path.
        headers: Names in lower case.
        body: Its bytes.
        status: How it was answered.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int = 0

    @property
    def permit(self) -> str:
        """Its permit, or nothing."""
        return self.headers.get(PERMIT_HEADER, "")

    @property
    def key_id(self) -> str:
        """The id of the key of its permit."""
        return key_id_of(self.permit)


@dataclass
class WireTap:
    """The tap.

    Attributes:
        port: Where gateways connect to, on every address.
        engine_port: Where the engine listens.
        requests: What was forwarded, challenges left out.
    """

    port: int
    engine_port: int
    requests: list[Tapped] = field(default_factory=list)

    @property
    def latest(self) -> Tapped:
        """The last request that was served."""
        return next(item for item in reversed(self.requests) if item.status == 200)

    @property
    def without_permit(self) -> list[Tapped]:
        """Requests without a permit that were not refused."""
        return [item for item in self.requests if not item.permit and item.status < 400]

    def send(self, request: Tapped, permit: str) -> Answer:
        """Send a request to the engine with another permit."""
        return self._ask(request, {**request.headers, PERMIT_HEADER: permit})

    def forward(self, request: Tapped) -> Answer:
        """Send a request on, and keep it."""
        answer = self._ask(request, request.headers)
        if CHALLENGE_HEADER not in request.headers:
            self.requests.append(Tapped(request.method, request.path, request.headers, request.body, answer.status))
        return answer

    def _ask(self, request: Tapped, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.engine_port, timeout=SECONDS)
        try:
            kept = {name: value for name, value in headers.items() if name not in _HOP}
            connection.request(request.method, request.path, request.body, kept)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders() if name.lower() not in _HOP}
            return Answer(response.status, found, response.read())
        except (ConnectionError, http.client.HTTPException):
            return Answer(502, {}, b"")
        finally:
            connection.close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    tap: WireTap

    def handle_error(self, request: object, client_address: object) -> None:
        """Be silent: a gateway closes connections whenever it likes."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.tap.forward(Tapped(self.command, self.path, headers, body))
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = _forward  # noqa: N815 - names of the standard library

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


@contextmanager
def tapping(engine_port: int) -> Iterator[WireTap]:
    """A tap before an engine that will listen on that port."""
    with _Server(("0.0.0.0", 0), _Handler) as server:  # noqa: S104 - gateways come by an address that is not loopback's
        server.tap = WireTap(server.server_address[1], engine_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.tap
        finally:
            server.shutdown()
            thread.join()
