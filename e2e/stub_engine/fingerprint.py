"""What an answer says of its making, in `system_fingerprint`: whoever reads the boot clock of the same machine can compare."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One token's making; times are milliseconds of `CLOCK_BOOTTIME`.

    Attributes:
        made_ms: When the engine made the token.
        arrived_ms: When its request reached the engine.
        scheduled_ms: When its request was scheduled, and its prefix looked up.
        cached_tokens: How many tokens of the prompt were found.
    """

    made_ms: int
    arrived_ms: int
    scheduled_ms: int
    cached_tokens: int

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())


def read(text: str | None) -> Fingerprint:
    """Read a fingerprint.

    Raises:
        ValueError: It is none of the stub's.
    """
    try:
        return Fingerprint(**{name: int(value) for name, _, value in (part.partition("=") for part in (text or "").split())})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is no fingerprint of the stub engine; send the request to a pool that runs it") from error


def boot_ms() -> int:
    """The machine's boot clock, in milliseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
