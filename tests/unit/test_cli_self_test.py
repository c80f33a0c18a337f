from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cachescope.api.kinds import KINDS
from cachescope.cli import self_test as module
from cachescope.cli.self_test import self_test
from cachescope.core.errors import ClusterError
from cachescope.gateway.errors import body

ALL = frozenset(kind.model.PLURAL for kind in KINDS)


@contextmanager
def gateway(status: int, content: bytes = b"") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def serve(monkeypatch: pytest.MonkeyPatch, kinds: frozenset[str]) -> None:
    async def served() -> frozenset[str]:
        return kinds

    monkeypatch.setattr(module, "_served", served)


def test_a_gateway_that_refuses_nobody_in_particular_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, ALL)
    with gateway(401, body("authentication_required")) as url:
        assert len(self_test(url)) == 2


@pytest.mark.parametrize(
    ("status", "content"),
    [(200, b"{}"), (404, body("not_found")), (403, b"denied"), (401, b""), (401, b"[]"), (401, b'{"error": "who?"}')],
)
def test_an_answer_that_is_not_the_gateways_own_refusal_fails_the_test(
    monkeypatch: pytest.MonkeyPatch, status: int, content: bytes
) -> None:
    serve(monkeypatch, ALL)
    with gateway(status, content) as url, pytest.raises(ClusterError, match=f"answered with {status}"):
        self_test(url)


def test_a_gateway_that_is_not_ready_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, ALL)
    with gateway(503) as url, pytest.raises(ClusterError, match="503"):
        self_test(url)


def test_no_answer_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, ALL)
    with gateway(401) as url:
        pass
    with pytest.raises(ClusterError, match="does not answer"):
        self_test(url)


def test_a_kind_that_is_not_served_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, ALL - {"fenceleases"})
    with gateway(401) as url, pytest.raises(ClusterError, match="fenceleases"):
        self_test(url)
