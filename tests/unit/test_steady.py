"""Background work: a fault of one object ends none of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from cachescope.gateway import stores
from cachescope.gateway.steady import Steady
from cachescope.gateway.stores import CLUSTER, follow
from cachescope.kube.watched import Api


def test_a_fault_is_said_once_until_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    steady = Steady("work")
    for faulty in (True, True, False, True):
        with steady:
            if faulty:
                raise OverflowError
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_a_cancellation_passes() -> None:
    with pytest.raises(asyncio.CancelledError), Steady("work"):
        raise asyncio.CancelledError


async def test_a_watch_that_fails_goes_on_and_the_others_know_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RETRY_SECONDS", 0.0)
    followed = follow(cast("Api", None), "home", CLUSTER, changed=lambda: None, ledgers_changed=lambda: None)
    runs, thrice = dict.fromkeys(followed.watches(), 0), asyncio.Event()
    for kind, watch in followed.watches().items():

        async def run(kind: str = kind) -> None:
            runs[kind] += 1
            if runs["Tenant"] == 3:
                thrice.set()
            if kind == "Tenant" and runs[kind] < 3:
                raise RecursionError
            await asyncio.Event().wait()

        monkeypatch.setattr(watch, "run", cast("Any", run))
    task = asyncio.create_task(followed.run())
    await asyncio.wait_for(thrice.wait(), 5)
    assert {kind: count for kind, count in runs.items() if kind != "Tenant"} == dict.fromkeys(runs.keys() - {"Tenant"}, 1)
    assert not task.done()
    task.cancel()
