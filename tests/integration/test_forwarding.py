"""A forwarded port is back on the same address after its kubectl has ended, and one that cannot start says why."""

from __future__ import annotations

from pathlib import Path

import httpx2 as httpx
import pytest

from e2e.stack.forwarding import ForwardError, kept
from e2e.stack.waiting import until

# Serves one answer, and ends: as kubectl does when a connection breaks.
ONE_ANSWER = """
import http.server, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1].split(":")[0] or 0)), Answer)
print(f"Forwarding from 127.0.0.1:{server.server_port} -> 80", flush=True)
server.handle_request()
"""


def test_a_forward_that_ended_is_started_again_on_its_port(tmp_path: Path) -> None:
    program = tmp_path / "kubectl.py"
    program.write_text(ONE_ANSWER)
    with kept(["python3", str(program)], "pod/one", 80) as address:
        for _ in range(3):
            until(lambda: answers(address), "the forward is back")
    assert not answers(address)


def test_a_forward_that_cannot_start_says_why() -> None:
    with pytest.raises(ForwardError, match=r"pods .* not found"), kept(["echo", "pods one not found;"], "pod/one", 80):
        pass


def answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/").status_code == 200
    except httpx.TransportError:
        return False
