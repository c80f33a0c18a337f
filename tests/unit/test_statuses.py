"""Statuses: written only when they say something new; Events: never a flood; ledgers: only over what was read."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.statuses import Condition
from cachescope.kube.events import AGAIN_SECONDS, FORGET_SECONDS, MAX_NOTE_BYTES, Recorder, post
from cachescope.kube.kinds import path_of
from cachescope.kube.ledgers import create_ledger, read_ledger, replace_ledger
from cachescope.kube.rest import ApiError, ConflictError, Document, NotFoundError
from cachescope.kube.statuses import conditions, write_status
from tests.unit.fake_api import FakeApi

POOL = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "ServingPool",
    "metadata": {"name": "p", "namespace": "n", "uid": "uid-p", "generation": 4},
    "spec": {},
}
LEDGER = {"kind": "EpochLedger", "metadata": {"name": "p", "namespace": "n"}, "spec": {"sequence": 1}}


def condition(status: Any = "True", *, at: str = "now", message: str = "m", type_: str = "Ready") -> Condition:
    return Condition(type=type_, status=status, observed_generation=4, last_transition_time=at, reason="Routable", message=message)


def test_a_condition_keeps_its_time_while_its_status_is_the_same() -> None:
    old = conditions([], [condition(at="before")])
    assert old == [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 4,
            "lastTransitionTime": "before",
            "reason": "Routable",
            "message": "m",
        }
    ]
    assert conditions(old, [condition()]) == old
    assert conditions(old, [condition(message="other")]) == [{**old[0], "message": "other"}]
    assert conditions(old, [condition("False")])[0]["lastTransitionTime"] == "now"


def test_a_condition_that_no_longer_holds_goes_and_a_new_one_begins_now() -> None:
    old = conditions([], [condition(at="before"), condition(at="before", type_="Held")])
    now = conditions(old, [condition(type_="Progressing"), condition()])
    assert [(item["type"], item["lastTransitionTime"]) for item in now] == [("Progressing", "now"), ("Ready", "before")]


def pool(api: FakeApi) -> Document:
    return api._store(path_of(POOL), POOL)


async def test_a_status_is_written_once() -> None:
    api = FakeApi()
    status = {"replicas": 1, "epoch": None, "guards": ({"pod": "a"},)}
    assert await write_status(api, pool(api), status)
    live = api.objects[path_of(POOL)]
    assert live["status"] == {"replicas": 1, "guards": [{"pod": "a"}]}
    assert not await write_status(api, live, status)
    assert api.requests == ["replace"]
    assert await write_status(api, live, {"replicas": 1})
    assert api.objects[path_of(POOL)]["status"] == {"replicas": 1}


async def test_a_status_of_an_older_version_is_a_conflict() -> None:
    api = FakeApi()
    old = pool(api)
    await write_status(api, old, {"replicas": 1})
    with pytest.raises(ConflictError):
        await write_status(api, old, {"replicas": 2})


async def test_a_ledger_is_replaced_only_over_what_was_read() -> None:
    api = FakeApi()
    assert await read_ledger(api, "n", "p") is None
    created = await create_ledger(api, LEDGER)
    with pytest.raises(ConflictError):
        await create_ledger(api, LEDGER)
    second = await replace_ledger(api, {**created, "spec": {"sequence": 2}})
    assert await read_ledger(api, "n", "p") == second
    with pytest.raises(ConflictError):
        await replace_ledger(api, {**created, "spec": {"sequence": 3}})
    with pytest.raises(RuntimeError, match="read it first"):
        await replace_ledger(api, LEDGER)
    api.objects.clear()
    with pytest.raises(NotFoundError):
        await replace_ledger(api, second)


class Times:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def said(recorder: Recorder, message: str = "m") -> Any:
    return recorder.post(POOL, type="Warning", reason="PodFailing", message=message, action="Observed")


async def test_the_same_event_is_counted_every_ten_minutes_at_most() -> None:
    api, times = FakeApi(), Times()
    recorder = Recorder(api, times)
    for _ in range(50):
        await said(recorder)
    assert api.requests == ["create"]
    times.now += AGAIN_SECONDS
    for _ in range(50):
        await said(recorder)
    assert api.requests == ["create", "merge"]
    [event] = api.objects.values()
    assert event["series"]["count"] == 51
    assert event["regarding"]["uid"] == "uid-p"
    await said(recorder, "another")
    assert len(api.objects) == 2


async def test_an_event_begins_anew_after_an_hour_and_when_it_is_gone() -> None:
    api, times = FakeApi(), Times()
    recorder = Recorder(api, times)
    await said(recorder)
    api.objects.clear()
    times.now += AGAIN_SECONDS
    await said(recorder)
    assert len(api.objects) == 1
    api.objects.clear()
    times.now += FORGET_SECONDS
    await said(recorder)
    assert [("series" in event) for event in api.objects.values()] == [False]


async def test_a_successor_counts_on() -> None:
    api = FakeApi()
    for _ in range(3):
        await said(Recorder(api, Times()))
    [event] = api.objects.values()
    assert event["series"]["count"] == 3


async def test_an_event_that_cannot_be_posted_hinders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()

    async def refuse(*_: Any, **__: Any) -> Document:
        raise ApiError(403, "no right; give one")

    monkeypatch.setattr(api, "create", refuse)
    await post(api, POOL, type="Normal", reason="Routable", message="m", action="Routed")


@pytest.mark.parametrize("length", [10, 2000])
async def test_a_long_message_is_cut_between_characters(length: int) -> None:
    api = FakeApi()
    await post(api, POOL, type="Normal", reason="Routable", message="é" * length, action="Routed")
    [event] = api.objects.values()
    assert event["note"] == "é" * min(length, MAX_NOTE_BYTES // 2)
