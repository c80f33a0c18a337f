"""What is done to the control plane, for several installations at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from e2e.faults import restore
from e2e.faults.control_plane import ControlPlane, at_once
from e2e.faults.site import Site
from e2e.stack import outage

SITES = [cast("Site", number) for number in range(3)]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done to the cluster, in order."""
    found: list[str] = []

    def put_back(meanwhile: Callable[[], object]) -> None:
        found.append("down")
        meanwhile()
        found.append("up")

    monkeypatch.setattr(restore, "copy", lambda: found.append("copy"))
    monkeypatch.setattr(restore, "put_back", put_back)
    monkeypatch.setattr(outage, "without_api_server", lambda seconds: found.append(f"gone {seconds}"))
    return found


def test_it_is_done_once_for_all_and_nobody_goes_on_before_it_is_done(done: list[str]) -> None:
    seen: list[list[str]] = []

    def play(_: Site, shared: ControlPlane) -> None:
        shared.copy()
        shared.put_back(lambda: done.append("forgot"))
        seen.append(list(done))
        shared.be_gone(5)

    at_once(SITES, play)
    assert done == ["copy", "down", "forgot", "forgot", "forgot", "up", "gone 5"]
    assert all(each[:6] == done[:6] for each in seen)


def test_one_play_does_it_alone(done: list[str]) -> None:
    ControlPlane().be_gone(60)
    assert done == ["gone 60"]


def test_what_the_plays_return_comes_in_the_order_of_the_installations() -> None:
    assert at_once(SITES, lambda site, _: site) == SITES


def test_a_play_that_fails_keeps_nobody_waiting_and_is_the_one_that_is_told(done: list[str]) -> None:
    def play(site: Site, shared: ControlPlane) -> None:
        if site == SITES[-1]:
            raise AssertionError("2 violations")
        shared.copy()

    with pytest.raises(AssertionError, match="2 violations"):
        at_once(SITES, play)
    assert done == []


def test_an_outage_that_fails_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no such folder")

    monkeypatch.setattr(restore, "copy", fail)
    with pytest.raises(OSError, match="no such folder"):
        at_once(SITES, lambda _, shared: shared.copy())
