"""An attacker with more than any client has: a way to the engine's port, and for replays a permit that was really granted."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field

import httpx2 as httpx

from cachescope.core.digests import sha256
from cachescope.core.epochs import EpochVector
from cachescope.core.heads import Head
from cachescope.core.keys import KeyRing
from cachescope.core.permits import PERMIT_HEADER, Permit, permit_keys, write_permit
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER, Statement, read_statement
from cachescope.core.types import Digest, Reuse, ScopeClass
from e2e.stack.install import Stack

PATH = "/v1/chat/completions"
# The forward is started again within a second or two; see e2e/stack/forwarding.py.
TRIES = 30
PAUSE = 0.2
BODY = json.dumps({"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}).encode()


def send(url: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    """Send a request through a forwarded port, again if its answer was lost.

    A server may answer before it has read the whole request and then close; a forwarded port can lose such an answer.
    """
    for _ in range(TRIES):
        try:
            return httpx.post(url, content=body, headers=headers, timeout=60)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.ConnectError) as error:
            lost = error
            time.sleep(PAUSE)
    raise ConnectionError(f"no answer in {TRIES} tries; look at the pod behind {url}") from lost


@dataclass(frozen=True)
class Insider:
    """Holds the pool's permit key, as only the gateway does; used to make the positive control of an attack.

    Attributes:
        stack: The installation.
        address: `address:port` of an engine.
        heads: Heads of the ledger that it has read, by sequence: one is read for many permits.
    """

    stack: Stack
    address: str
    heads: dict[int, Head] = field(default_factory=dict)

    def post(self, body: bytes, permit: str | None = None, path: str = PATH) -> httpx.Response:
        """Send a request straight to the engine."""
        headers = {"content-type": "application/json"} | ({PERMIT_HEADER: permit} if permit else {})
        return send(f"http://{self.address}{path}", body, headers)

    def statement(self) -> Statement:
        """The guard's statement now."""
        nonce = secrets.token_urlsafe(24)
        answer = send(f"http://{self.address}{PATH}", b"{}", {CHALLENGE_HEADER: nonce})
        return read_statement(self.keys(), answer.headers[STATEMENT_HEADER], nonce=nonce)

    def permit(self, body: bytes, **changes: object) -> str:
        """A valid permit for a body, with fields changed at will before it is signed."""
        statement = self.statement()
        fields = {
            "id": secrets.token_hex(16),
            "pool_uid": statement.pool_uid,
            "pod_uid": statement.pod_uid,
            "boot_id": statement.boot_id,
            "tick": statement.tick,
            "method": "POST",
            "path": PATH,
            "body_digest": sha256(body),
            "record_digest": Digest("sha256:" + "0" * 64),
            "runtime_digest": statement.engine.runtime,
            "scope": ScopeClass.TENANT,
            "epochs": self._vector(self._head(statement.sequence)),
            "lineage": statement.lineage,
            "sequence": statement.sequence,
            "reuse": Reuse.SALTED,
        }
        return write_permit(self.keys().current, Permit(**{**fields, **changes}))  # type: ignore[arg-type]

    def keys(self) -> KeyRing:
        """The pool's permit keys."""
        return permit_keys(self.stack.root_keys, self.stack.pool.uid)

    def epochs(self) -> EpochVector:
        """A vector with the pool's epoch alone, as it stands."""
        return self._vector(self.stack.head)

    def _head(self, sequence: int) -> Head:
        if sequence not in self.heads:
            head = self.stack.head
            self.heads[head.sequence] = head
            return head
        return self.heads[sequence]

    def _vector(self, head: Head) -> EpochVector:
        target = self.stack.pool_target
        return EpochVector.of({target: head.floors.floor(target)})
