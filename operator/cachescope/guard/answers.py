"""The guard's own answers, in the shape of OpenAI's errors, so that their clients raise their own exception classes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cachescope.core.admission import Refusal
from cachescope.guard.wire import BODY, START, Send

_TYPES = {401: "authentication_error", 403: "permission_error", 409: "conflict_error", 413: "invalid_request_error"}


@dataclass(frozen=True)
class Answer:
    """One answer of the guard.

    Attributes:
        status: HTTP status.
        code: Stable code.
        advice: What to do.
        retry_after: Seconds after which a retry helps, or `None`.
    """

    status: int
    code: str
    advice: str
    retry_after: int | None = None

    @classmethod
    def of(cls, refusal: Refusal) -> Answer:
        """The answer that says a refusal."""
        return cls(refusal.status, refusal.code, refusal.advice, refusal.retry_after)


GUARD_ERROR = Answer(503, "guard_error", "the guard failed and lets nothing pass; see the engine pod's log", 1)


def misconfigured(problem: str) -> Answer:
    """The answer of a guard that cannot work as it was set up."""
    return Answer(503, "guard_misconfigured", problem)


async def send_answer(send: Send, answer: Answer, *extra: tuple[bytes, bytes]) -> None:
    """Send an answer.

    Args:
        send: The server's send.
        answer: What to say.
        *extra: Further headers.
    """
    kind = _TYPES.get(answer.status, "server_error")
    error = {"message": f"refused by the guard: {answer.advice}", "type": kind, "param": None, "code": answer.code}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *extra]
    if answer.retry_after is not None:
        headers.append((b"retry-after", str(answer.retry_after).encode()))
    await send({"type": START, "status": answer.status, "headers": headers})
    await send({"type": BODY, "body": body, "more_body": False})
