"""What is done to the control plane, once for everybody who plays at that moment.

An outage takes minutes and hits the whole cluster, and a fence is mostly waiting: several installations play together, each with a
record of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from e2e.faults import restore
from e2e.faults.processes import stopped
from e2e.faults.site import Site
from e2e.stack import outage

T = TypeVar("T")

MEETING_SECONDS = 600
"""Longest wait for the slowest: a fence and a recovery may lie between two meetings."""


class ControlPlane:
    """The control plane; what a play does to it is done when all plays have come there, and they go on when it is done.

    Attributes:
        plays: How many there are.
    """

    def __init__(self, plays: int = 1) -> None:
        self.plays = plays
        self._meeting = threading.Barrier(plays, timeout=MEETING_SECONDS)
        self._meanwhile: list[Callable[[], object]] = []

    def meet(self) -> None:
        """Wait until every play has come there: rollouts of one are a load for the others."""
        self._once(lambda: None)

    def be_gone(self, seconds: float) -> None:
        """No API server for that time."""
        self._once(partial(outage.without_api_server, seconds))

    def copy(self) -> None:
        """Keep a copy of the present."""
        self._once(restore.copy)

    def put_back(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Go back to the copy; what each play does `meanwhile` is done while no API server is there."""
        self._meanwhile.append(meanwhile)
        self._once(self._put_back)

    @contextmanager
    def without_kubelet(self) -> Iterator[None]:
        """A node that starts and ends nothing, and that nobody hears of, until all plays are at the end of the block."""
        with stopped(outage.kubelet()):
            self.meet()
            yield
            with suppress(threading.BrokenBarrierError):
                self.meet()

    def leave(self) -> None:
        """A play has failed: nobody waits for it."""
        self._meeting.abort()

    def _put_back(self) -> None:
        restore.put_back(lambda: [act() for act in self._meanwhile])
        self._meanwhile.clear()

    def _once(self, act: Callable[[], object]) -> None:
        if self._meeting.wait() == 0:
            act()
        self._meeting.wait()


def at_once(sites: Sequence[Site], play: Callable[[Site, ControlPlane], T]) -> list[T]:
    """Play in several installations at the same time; what each returns.

    Raises:
        Exception: What the first play that failed by itself raised.
    """
    shared = ControlPlane(len(sites))
    with ThreadPoolExecutor(len(sites)) as players:
        done = [players.submit(_play, play, site, shared) for site in sites]
    failed = sorted(filter(None, (each.exception() for each in done)), key=_is_left_alone)
    if failed:
        raise failed[0]
    return [each.result() for each in done]


def _play(play: Callable[[Site, ControlPlane], T], site: Site, shared: ControlPlane) -> T:
    try:
        return play(site, shared)
    except BaseException:
        shared.leave()
        raise


def _is_left_alone(error: BaseException) -> bool:
    return isinstance(error, threading.BrokenBarrierError)
