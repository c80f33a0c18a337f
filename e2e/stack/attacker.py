"""An attacker with more than any client has: a way to the engine's port, and for replays a permit that was really granted."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field, replace

import httpx2 as httpx

from cachescope.core.digests import sha256
from cachescope.core.epochs import EpochVector
from cachescope.core.heads import Epochs, Seen
from cachescope.core.keys import KeyRing
from cachescope.core.ledgers import Ledger
from cachescope.core.permits import PERMIT_HEADER, Permit, permit_keys, write_permit
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER, Statement, read_statement
from cachescope.core.types import Digest, Reuse, ScopeClass
from e2e.stack.install import Stack

PATH = "/v1/chat/completions"
# The forward is started again within a second or two; see e2e/stack/forwarding.py.
TRIES = 30
PAUSE = 0.2


def chat_body(text: str, *, model: str, salt: str | None = None) -> bytes:
    """A chat request as an engine gets it, with the salt if there is one."""
    asked = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": text}]}
    return json.dumps(asked if salt is None else {**asked, "cache_salt": salt}).encode()


BODY = chat_body("hello", model="tiny")


def send(url: str, body: bytes, headers: dict[str, str], *, method: str = "POST") -> httpx.Response:
    """Send a request through a forwarded port, again if its answer was lost.

    A server may answer before it has read the whole request and then close; a forwarded port can lose such an answer.
    """
    for _ in range(TRIES):
        try:
            return httpx.request(method, url, content=body, headers=headers, timeout=60)
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
        ledgers: States of the pool's ledger that it has read, by sequence: one is read for many permits.
    """

    stack: Stack
    address: str
    ledgers: dict[int, Ledger] = field(default_factory=dict)

    def post(self, body: bytes, permit: str | None = None, path: str = PATH) -> httpx.Response:
        """Send a request straight to the engine."""
        headers = {"content-type": "application/json"} | ({PERMIT_HEADER: permit} if permit else {})
        return send(f"http://{self.address}{path}", body, headers)

    def found(self, text: str, salt: str | None) -> int:
        """How many tokens of a prompt the engine has under a salt, or without one; from now on it has all of them.

        Raises:
            ValueError: The request was not served, or the engine does not say.
        """
        body = chat_body(text, model=self.stack.pool.spec.model.name, salt=salt)
        answer = self.post(body, self.permit(body))
        if answer.status_code != 200:
            raise ValueError(f"the engine answered {answer.status_code}: {answer.text}; the permit is valid, so look at the engine")
        details = answer.json()["usage"].get("prompt_tokens_details")
        return int((details or {}).get("cached_tokens") or 0)

    def statement(self) -> Statement:
        """The guard's statement now."""
        nonce = secrets.token_urlsafe(24)
        answer = send(f"http://{self.address}{PATH}", b"{}", {CHALLENGE_HEADER: nonce})
        return read_statement(self.keys(), answer.headers[STATEMENT_HEADER], nonce=nonce)

    def permit(self, body: bytes, **changes: object) -> str:
        """A valid permit for a body, with fields of it or of `Seen` changed at will before it is signed."""
        statement = self.statement()
        seen = {name: changes.pop(name) for name in Seen.__slots__ if name in changes}
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
            "epochs": self._epochs(self._ledger(statement.sequence)),
            "seen": replace(seen_by(statement), **seen),  # type: ignore[arg-type]
            "reuse": Reuse.SALTED,
        }
        return write_permit(self.keys().current, Permit(**{**fields, **changes}))  # type: ignore[arg-type]

    def keys(self) -> KeyRing:
        """The pool's permit keys."""
        return permit_keys(self.stack.root_keys, self.stack.pool.uid)

    def epochs(self) -> Epochs:
        """The pool's epoch alone, as it stands."""
        return self._epochs(self.stack.ledger)

    def _ledger(self, sequence: int) -> Ledger:
        if sequence not in self.ledgers:
            ledger = self.stack.ledger
            self.ledgers[ledger.sequence] = ledger
            return ledger
        return self.ledgers[sequence]

    def _epochs(self, ledger: Ledger) -> Epochs:
        return Epochs(ledger.vector(self.stack.pool_target), EpochVector(()))


def seen_by(statement: Statement) -> Seen:
    """The ledger states that a guard has applied."""
    return Seen(statement.lineage, statement.sequence, statement.authorization_lineage, statement.authorization_sequence)
