"""Revoke or use wins, never both, wherever a request is when its epoch rises: on its way, in a queue, or amid its answer."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from e2e.faults import linearizability, site
from e2e.faults.declarations import denial_of, is_true, rollback_of
from e2e.faults.engines import ENGINE, STUB
from e2e.faults.history import CUT, EVERYONE, SERVED, History, Kind, Recorder
from e2e.faults.of_processes import slow_prefill
from e2e.faults.site import Site
from e2e.faults.table import TIMES
from e2e.faults.traffic import Asking
from e2e.stack import kubectl, outage
from e2e.stack.paths import CACHE
from e2e.stack.waiting import until
from e2e.stub_engine.fingerprint import boot_ms

AT_ONCE = 4
"""As many as one engine runs: none waits for another, whichever engines they are sent to."""
LONG = 80
"""Tokens of an answer that lasts some seconds."""
DRAIN_SECONDS = 10
QUICK_SECONDS = 5
IDLE_SECONDS, LOOK_SECONDS = 10, 0.01

pytestmark = [
    pytest.mark.skipif(not outage.possible(), reason="the node's addresses are none of this machine"),
    pytest.mark.skipif(
        ENGINE.name != STUB, reason="how long another engine's answer lasts is not known; unset CACHESCOPE_FAULT_ENGINE"
    ),
    pytest.mark.parametrize("turn", range(TIMES)),
]


@pytest.fixture(scope="session")
def fenced_site() -> Iterator[Site]:
    with site.shared() as found:
        yield found


class Race:
    """Requests of one tenant against one revocation.

    Args:
        place: The installation.
        name: Of the record.
    """

    def __init__(self, place: Site, name: str) -> None:
        self.site = place
        self.recorder = Recorder(CACHE / "histories" / f"race-{name}.jsonl")
        self.who = f"racer-{secrets.token_hex(4)}"
        self.prefix = secrets.token_hex(4)
        self.declared_ms = 0
        self._declared: list[str] = []

    def ask(self, tokens: int) -> str:
        """One request; returns how it ended."""
        with self.site.client(self.who) as client:
            return Asking(self.recorder, self.who, self.prefix).ask(client, secrets.token_hex(4), tokens)

    def revoke(self, kind: Kind, seconds: float = QUICK_SECONDS, **incident: object) -> None:
        """Revoke, and wait for the fence."""
        name = f"race-{secrets.token_hex(4)}"
        self._declared.append(name)
        denies = kind is Kind.DENY
        number = self.recorder.revoking(self.who if denies else EVERYONE, kind, boot_ms())
        document = denial_of(name, self.who) if denies else rollback_of(name, **incident)
        kubectl.apply([document], self.site.namespace)
        self.declared_ms = boot_ms()
        until(lambda: is_true(self.site.namespace, name, "Fenced"), f"fenced within {seconds} s", seconds)
        self.recorder.fenced(number, boot_ms())

    def cut(self, kind: Kind) -> None:
        """Revoke while requests are in the engines; prints how long after the declaration they had none any more."""
        with ThreadPoolExecutor(1) as beside:
            idle = beside.submit(self._idle_ms)
            self.revoke(kind)
            seconds = (idle.result() - self.declared_ms) / 1000
        print(f"{kind}: the engines ran and queued nothing {seconds:.3f} s after the declaration")  # noqa: T201 - a figure

    def _idle_ms(self) -> int:
        """When the engines have nothing to do; looked at much more often than a fence is."""
        deadline = time.monotonic() + IDLE_SECONDS
        while self.site.load():
            assert time.monotonic() < deadline, "the engines still run or queue something"
            time.sleep(LOOK_SECONDS)
        return boot_ms()

    def judged(self) -> History:
        """What happened, without a violation."""
        found = self.recorder.history()
        assert linearizability.violations(found) == ()
        return found

    def end(self) -> None:
        """Take away what was declared."""
        self.recorder.close()
        if self._declared:
            kubectl.run("delete", "cacheepoch", *self._declared, "--ignore-not-found", namespace=self.site.namespace)
        kubectl.run("delete", "tenant,secret", self.who, "--ignore-not-found", namespace=self.site.namespace)


@pytest.fixture
def race(fenced_site: Site, request: pytest.FixtureRequest, turn: int) -> Iterator[Race]:  # noqa: ARG001 - a repetition
    found = Race(fenced_site, request.node.name)
    fenced_site.add_tenant(found.who)
    until(lambda: fenced_site.serves(found.who), "the tenant is served")
    yield found
    found.end()
    until(lambda: fenced_site.load() == 0, "the engines are idle")


KINDS = pytest.mark.parametrize("kind", [Kind.ROLLBACK, Kind.DENY])


@KINDS
def test_between_lookup_and_first_token(race: Race, kind: Kind) -> None:
    """Short requests without pause: some are before the permit, some before the guard, some before their first token."""
    with _asking(race, tokens=2):
        _seen(race, SERVED)
        race.revoke(kind)
        _after(race, kind)
    race.judged()


@KINDS
def test_between_the_guard_and_the_first_token(race: Race, kind: Kind) -> None:
    """All of them are admitted, and have looked up their prefix; none has a token yet."""
    with ExitStack() as slow:
        for pod in race.site.pods():
            slow.enter_context(slow_prefill(race.site, pod, seconds=2 * QUICK_SECONDS))
        with _asking(race, tokens=2, times=1):
            until(lambda: race.site.load() >= AT_ONCE, "all requests are in the engines")
            race.cut(kind)
    assert not any(use.messages for use in race.judged().uses)


@KINDS
def test_in_the_middle_of_the_stream(race: Race, kind: Kind) -> None:
    with _asking(race, tokens=LONG, times=1):
        until(lambda: sum(bool(use.messages) for use in race.recorder.history().uses) >= AT_ONCE, "all answers have begun")
        race.cut(kind)
    assert {use.outcome for use in race.judged().uses} == {CUT}


def test_in_the_middle_of_a_stream_that_may_drain(race: Race) -> None:
    """They end whole, and only then is the fence complete."""
    with _asking(race, tokens=LONG, times=1):
        until(lambda: sum(bool(use.messages) for use in race.recorder.history().uses) >= AT_ONCE, "all answers have begun")
        drain = {"mode": "Drain", "drainSeconds": DRAIN_SECONDS}
        race.revoke(Kind.ROLLBACK, DRAIN_SECONDS + QUICK_SECONDS, inFlight=drain)
    assert {use.outcome for use in race.judged().uses} == {SERVED}


def test_a_drain_that_takes_too_long_is_cut(race: Race) -> None:
    with _asking(race, tokens=10 * LONG, times=1):
        until(lambda: sum(bool(use.messages) for use in race.recorder.history().uses) >= AT_ONCE, "all answers have begun")
        race.revoke(Kind.ROLLBACK, 2 * QUICK_SECONDS, inFlight={"mode": "Drain", "drainSeconds": 1})
    assert {use.outcome for use in race.judged().uses} == {CUT}


def _after(race: Race, kind: Kind) -> None:
    """Wait for what shows that the revocation counts: refusals of who is denied, reuse of the new generation by who is not."""
    since = boot_ms()
    if kind is Kind.DENY:
        _seen(race, linearizability.REVOKED, since)
    else:
        until(lambda: linearizability.reused_since(race.recorder.history(), since), "reuse of the new generation")


def _seen(race: Race, outcome: str, since: int = 0) -> None:
    def seen() -> bool:
        return any(use.outcome == outcome and use.invoke_ms >= since for use in race.recorder.history().uses)

    until(seen, f"an answer of a request sent since {since}: {outcome}")


@contextmanager
def _asking(race: Race, *, tokens: int, times: int | None = None) -> Iterator[None]:
    """Requests at once, again and again or so often, beside the block."""
    ending = threading.Event()

    def keep() -> None:
        asked = 0
        while not ending.is_set() and (times is None or asked < times):
            race.ask(tokens)
            asked += 1

    threads = [threading.Thread(target=keep, daemon=True) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(60)
