"""Tenants that ask without pause while something breaks: short answers, and long ones that are cut when their epoch falls.

Each tenant begins its short requests with one prefix and its long ones with another, so that reuse shows as soon as it is there:
what was found by a request that is cut is not always known, and must not explain what others find. Nothing is tried twice: what
the gateway or an engine answers is what the record holds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

import httpx2 as httpx
import openai

from e2e.faults.declarations import POOL
from e2e.faults.engines import ENGINE
from e2e.faults.history import CUT, LOST, SERVED, Recorder
from e2e.faults.site import Site
from e2e.stub_engine.fingerprint import boot_ms
from e2e.stub_engine.prefix_cache import BLOCK_TOKENS

PAUSE_SECONDS = 0.1
"""Of one installation that has the machine to itself; several make no more traffic than one."""
END_SECONDS = 30


@dataclass(frozen=True)
class Asking:
    """How one thread asks.

    Attributes:
        recorder: Where it is recorded.
        who: The tenant.
        prefix: The prefix of all that it asks.
        pool: Whom it asks.
        pause_seconds: Between an answer and the next request.
    """

    recorder: Recorder
    who: str
    prefix: str
    pool: str = POOL
    pause_seconds: float = PAUSE_SECONDS

    def ask(self, client: openai.OpenAI, rest: str, max_tokens: int, ending: threading.Event | None = None) -> str:
        """Send one request; returns how it ended. `ending` breaks it off."""
        number = self.recorder.invoked(self.who, self.prefix, boot_ms())
        outcome = self._stream(number, client, prompt(self.prefix, rest), max_tokens, ending or threading.Event())
        self.recorder.ended(number, outcome, boot_ms())
        return outcome

    def _stream(self, number: int, client: openai.OpenAI, text: str, max_tokens: int, ending: threading.Event) -> str:
        outcome = LOST
        try:
            for seen in ENGINE.stream(client, self.pool, text, max_tokens=max_tokens):
                self.recorder.message(number, seen.made, seen.seen_ms)
                outcome = SERVED if seen.last else CUT
                if ending.is_set():
                    break
        except openai.APIStatusError as error:
            return str(error.code or error.status_code)
        except (openai.OpenAIError, OSError, ValueError, httpx.HTTPError):
            pass  # it broke off; what came before says how
        return outcome


def prompt(prefix: str, rest: str) -> str:
    """A prompt whose first blocks are the prefix alone."""
    return f"{prefix} " * (3 * BLOCK_TOKENS) + rest


@contextmanager
def flowing(
    site: Site, recorder: Recorder, prefixes: Mapping[str, str], pausing: threading.Event, *, pause_seconds: float = PAUSE_SECONDS
) -> Iterator[None]:
    """Traffic of tenants, each with its prefix, until the end of the block; nobody asks anew while it is pausing."""
    ending = threading.Event()
    askings = [
        (Asking(recorder, who, f"{prefix}-{length}", pause_seconds=pause_seconds), length)
        for who, prefix in prefixes.items()
        for length in ENGINE.lengths
    ]
    threads = [threading.Thread(target=_keep_asking, args=(site, *item, (ending, pausing)), daemon=True) for item in askings]
    for thread in threads:
        thread.start()
    with ExitStack() as stack:
        stack.callback(_end, threads)
        stack.callback(ending.set)
        yield


def _keep_asking(site: Site, asking: Asking, length: int, events: tuple[threading.Event, threading.Event]) -> None:
    ending, pausing = events
    with site.client(asking.who) as client:
        for number in count():
            if ending.is_set():
                return
            if not pausing.is_set():
                asking.ask(client, str(number), length, ending)
            ending.wait(asking.pause_seconds)


def _end(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(END_SECONDS)
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError("a client did not end; look for a connection without a timeout")
