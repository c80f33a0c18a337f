"""One fault's play: traffic, an incident and a denial while something breaks, and what must hold afterwards."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cachescope.api.conditions import Reason
from e2e.faults import linearizability
from e2e.faults.control_plane import ControlPlane
from e2e.faults.declarations import FENCED, denial_of, rollback_of, status_of
from e2e.faults.engines import ENGINE
from e2e.faults.history import EVERYONE, Kind, Recorder
from e2e.faults.site import ENGINES, TENANTS, WELL_SECONDS, Site
from e2e.faults.traffic import PAUSE_SECONDS, flowing
from e2e.stack import kubectl
from e2e.stack.paths import CACHE
from e2e.stack.waiting import until
from e2e.stub_engine.fingerprint import boot_ms

FENCE_SECONDS = 40
"""Longest fence of a fault that does not say another bound: of a denial that waits for a lapsed gateway, after a failover."""


@dataclass
class Scene:
    """What a fault acts on.

    Attributes:
        site: The installation.
        recorder: The record.
        victim: A tenant that is denied.
        control_plane: The cluster's.
        fences: Revocations that were asked for: their numbers in the record, by the name of the CacheEpoch.
        times: Seconds that each fence took, as the operator says, by the name of the CacheEpoch.
        reasons: By what each was complete, by the name of the CacheEpoch.
        pausing: Whether nobody asks anew.
    """

    site: Site
    recorder: Recorder
    victim: str
    control_plane: ControlPlane = field(default_factory=ControlPlane)
    fences: dict[str, int] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    pausing: threading.Event = field(default_factory=threading.Event)

    def revoke(self) -> None:
        """Roll the pool forward and deny the victim, in one go."""
        rollback, denial = (f"{kind}-{secrets.token_hex(4)}" for kind in ("rollback", "denial"))
        self.fences[rollback] = self.recorder.revoking(EVERYONE, Kind.ROLLBACK, boot_ms())
        self.fences[denial] = self.recorder.revoking(self.victim, Kind.DENY, boot_ms())
        kubectl.apply([rollback_of(rollback), denial_of(denial, self.victim)], self.site.namespace)

    def latest(self, prefix: str) -> str:
        """Name of the last CacheEpoch of this play that begins so."""
        return [name for name in self.fences if name.startswith(prefix)][-1]

    def fenced(self, seconds: float = FENCE_SECONDS) -> None:
        """Wait until everything that was revoked is fenced.

        Raises:
            TimeoutError: It is not within that time.
        """
        until(lambda: not self._open(), f"fenced within {seconds} s: {', '.join(self.fences)}", seconds)

    def fenced_by_expiry(self, kind: str, seconds: float) -> None:
        """Wait until everything is fenced; the latest revocation of a kind because somebody was not heard of any more.

        Raises:
            AssertionError: Everybody acknowledged it: the fault was none.
        """
        self.fenced(seconds)
        if self.reasons[self.latest(kind)] != Reason.EXPIRED:
            raise AssertionError(f"the {kind} was acknowledged by everybody, so nothing was broken; see the fault")

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nobody asks anew in the block."""
        self.pausing.set()
        try:
            yield
        finally:
            self.pausing.clear()

    def refused_since(self, ms: int) -> int:
        """How many requests of the victim that were sent since then were refused as revoked."""
        uses = self.recorder.history().uses
        return sum(use.who == self.victim and use.invoke_ms >= ms and use.outcome == linearizability.REVOKED for use in uses)

    def _open(self) -> list[str]:
        found = [name for name in self.fences if name not in self.times]
        for name in list(found):
            status = status_of(self.site.namespace, name)
            if status is not None:
                self.recorder.fenced(self.fences[name], boot_ms())
                self.times[name] = float(status.get("seconds", 0.0))
                self.reasons[name] = next(item["reason"] for item in status["conditions"] if item["type"] == FENCED)
                found.remove(name)
        return found


@contextmanager
def playing(site: Site, fault: str, control_plane: ControlPlane | None = None) -> Iterator[Scene]:
    """Traffic, with reuse seen by everybody, until the end of the block; then whatever was declared goes.

    The record is kept, and everybody's logs where something went wrong.
    """
    path = CACHE / "histories" / ENGINE.name / f"{fault.replace(' ', '-')}.jsonl"
    recorder = Recorder(path)
    scene = Scene(site, recorder, f"victim-{secrets.token_hex(4)}", control_plane or ControlPlane())
    prefixes = {who: f"{who}-{secrets.token_hex(4)}" for who in (*TENANTS, scene.victim)}
    try:
        site.add_tenant(scene.victim)
        until(lambda: site.serves(scene.victim), "the victim is served", WELL_SECONDS)
        with flowing(site, recorder, prefixes, scene.pausing, pause_seconds=PAUSE_SECONDS * scene.control_plane.plays):
            until(lambda: _reusing(recorder) == set(prefixes), "every tenant reuses its prefix")
            yield scene
    except BaseException:
        path.with_suffix(".log").write_text(site.logs())
        judge(recorder)  # what came too late may have been wrong too
        raise
    finally:
        recorder.close()
        if scene.fences:
            kubectl.run("delete", "cacheepoch", *scene.fences, "--ignore-not-found", namespace=site.namespace)
        kubectl.run("delete", "tenant,secret", scene.victim, "--ignore-not-found", namespace=site.namespace)


def held(scene: Scene) -> None:
    """What must hold once the fault is over, with the traffic still on: fences, reuse, and then a history without a violation.

    Raises:
        AssertionError: Something does not.
        TimeoutError: Something does not come back.
    """
    scene.fenced()
    since = boot_ms()
    until(lambda: linearizability.reused_since(scene.recorder.history(), since) > ENGINES, "reuse comes back", WELL_SECONDS)
    until(lambda: scene.refused_since(since), "the victim is told that it is revoked")
    until(scene.site.is_well, "the pool is ready, and serves", WELL_SECONDS)
    judge(scene.recorder)


def judge(recorder: Recorder) -> None:
    """Look for what must not be.

    Raises:
        AssertionError: There is something.
    """
    found = linearizability.violations(recorder.history())
    if found:
        raise AssertionError(f"{len(found)} violations, the first: {found[0]}")


def drained(site: Site) -> float:
    """Seconds until the engines run nothing any more, once nobody asks."""
    started = time.monotonic()
    until(lambda: site.load() == 0, "the engines run and queue nothing", 30)
    return time.monotonic() - started


def _reusing(recorder: Recorder) -> set[str]:
    return {use.who for use in recorder.history().uses if use.cached_tokens}
