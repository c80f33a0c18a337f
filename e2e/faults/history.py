"""The record of a test: who asked, what came when, and what was revoked meanwhile; one JSON object a line.

All times are milliseconds of the boot clock of one machine, on which client and engine run: so their order means something. A
line is written when the event happens: a test that is killed leaves what it saw.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from e2e.stub_engine.fingerprint import Fingerprint

SERVED, CUT, LOST = "served", "cut", "lost"
"""How a use ended: whole; broken off after some messages; without an answer, so that nobody knows what it did."""

EVERYONE = ""
"""Subject of what is revoked for all."""


class Kind(StrEnum):
    """What a revocation does to its subject."""

    ROLLBACK = "rollback"
    DENY = "deny"
    READMIT = "readmit"


@dataclass(frozen=True, slots=True)
class Message:
    """A part of an answer.

    Attributes:
        made_ms: When the engine made it.
        seen_ms: When the client had it. In between the guard handed it over.
    """

    made_ms: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Use:
    """One request.

    Attributes:
        who: The tenant that sent it.
        prefix: Names the prefix that it began with.
        invoke_ms: When it was sent.
        end_ms: When its end was seen; `None` while it was not.
        outcome: `SERVED`, `CUT`, `LOST`, or the code of the refusal; empty while it has not ended.
        arrived_ms: When it reached an engine; `None` when no message came.
        scheduled_ms: When its prefix was looked up and kept; `None` when no message came.
        cached_tokens: How much of it was found.
        messages: What came.
    """

    who: str
    prefix: str
    invoke_ms: int
    end_ms: int | None = None
    outcome: str = ""
    arrived_ms: int | None = None
    scheduled_ms: int | None = None
    cached_tokens: int = 0
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Revocation:
    """One revocation.

    Attributes:
        subject: The tenant, or `EVERYONE`.
        kind: What it does.
        invoke_ms: When it was asked for.
        fenced_ms: When `Fenced=True` was seen; `None` while it was not.
    """

    subject: str
    kind: Kind
    invoke_ms: int
    fenced_ms: int | None = None


@dataclass(frozen=True)
class History:
    """All of a test.

    Attributes:
        uses: Requests, in the order in which they were sent.
        revocations: Revocations, in the order in which they were asked for.
    """

    uses: tuple[Use, ...] = ()
    revocations: tuple[Revocation, ...] = ()


class Recorder:
    """Writes a history; any number of threads may call it.

    Args:
        path: The file, which is made anew.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("w", buffering=1)
        self._lock = threading.Lock()
        self._ids = itertools.count()

    def invoked(self, who: str, prefix: str, ms: int) -> int:
        """A request is sent; returns its number."""
        return self._write(next(self._ids), "use", who=who, prefix=prefix, invoke_ms=ms)

    def message(self, number: int, made: Fingerprint, seen_ms: int) -> None:
        """A part of its answer came."""
        self._write(number, "message", seen_ms=seen_ms, **asdict(made))

    def ended(self, number: int, outcome: str, ms: int) -> None:
        """Its end was seen."""
        self._write(number, "end", outcome=outcome, ms=ms)

    def revoking(self, subject: str, kind: Kind, ms: int) -> int:
        """A revocation is asked for; returns its number."""
        return self._write(next(self._ids), "revoke", subject=subject, kind=kind.value, ms=ms)

    def fenced(self, number: int, ms: int) -> None:
        """Its fence was seen."""
        self._write(number, "fenced", ms=ms)

    def history(self) -> History:
        """What was recorded so far."""
        with self._lock:
            return read(self._path.read_text().splitlines())

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def _write(self, number: int, event: str, **fields: Any) -> int:  # noqa: ANN401 - JSON of any kind
        with self._lock:
            self._file.write(json.dumps({"number": number, "event": event, **fields}) + "\n")
        return number


@dataclass
class _Reading:
    uses: dict[int, Use] = field(default_factory=dict)
    revocations: dict[int, Revocation] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        number, kind = event.pop("number"), event.pop("event")
        if kind == "use":
            self.uses[number] = Use(**event)
        elif kind == "message":
            self.uses[number] = _with_message(self.uses[number], **event)
        elif kind == "end":
            self.uses[number] = replace(self.uses[number], end_ms=event["ms"], outcome=event["outcome"])
        elif kind == "revoke":
            self.revocations[number] = Revocation(event["subject"], Kind(event["kind"]), event["ms"])
        else:
            self.revocations[number] = replace(self.revocations[number], fenced_ms=event["ms"])


def read(lines: Iterable[str]) -> History:
    """Read what a `Recorder` wrote."""
    reading = _Reading()
    for line in lines:
        reading.take(json.loads(line))
    return History(tuple(reading.uses.values()), tuple(reading.revocations.values()))


def _with_message(use: Use, *, made_ms: int, seen_ms: int, arrived_ms: int, scheduled_ms: int, cached_tokens: int) -> Use:
    return replace(
        use,
        arrived_ms=arrived_ms,
        scheduled_ms=scheduled_ms,
        cached_tokens=cached_tokens,
        messages=(*use.messages, Message(made_ms, seen_ms)),
    )
