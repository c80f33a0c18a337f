"""The guard's log: each line is JSON and says why, and none holds a permit, a salt or a body."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from cachescope.core.permits import write_permit
from cachescope.guard import logs
from cachescope.guard.start import make_process
from tests.unit.guard_fakes import KEY, World

BODY = b'{"cache_salt":"of-a-tenant","prompt":"a secret question"}'
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """What the guard logs; its logger is as before when the test ends."""
    logger = logging.getLogger(logs.LOGGER)
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.NOTSET)):
        monkeypatch.setattr(logger, name, value)
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        logs.install()
    return lambda: [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_misconfigured_guard_says_why(lines: Lines) -> None:
    make_process({}, ["--headless"])
    (line,) = lines()
    assert (line["level"], line["event"]) == ("ERROR", "the guard is misconfigured and refuses everything")
    assert "--headless starts no API server" in line["problem"]
    assert "CACHESCOPE_NAMESPACE is not set" in line["problem"]


def test_the_handler_is_installed_once(lines: Lines) -> None:
    logs.install()
    make_process({}, [])
    assert len(lines()) == 1


async def test_no_line_holds_a_permit_a_salt_or_a_body(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger(logs.LOGGER).setLevel(logging.DEBUG)
    world = World()
    permit = write_permit(KEY, world.permit())

    def quote(*_: object) -> None:
        raise ValueError(f"cannot read {permit} with {BODY!r}")

    await world.ask(permit, BODY)
    await world.ask(permit[:-4] + "AAAA", BODY)
    monkeypatch.setattr(world.process, "look", quote)
    assert (await world.ask(permit, BODY)).status == 503
    written = lines()
    assert {"the guard failed and refuses the request", "a permit cannot be read"} <= {line["event"] for line in written}
    assert next(line["error"] for line in written if "error" in line) == "ValueError"
    text = json.dumps(written)
    for secret in (permit, *permit.split(".")[2:], "of-a-tenant", "a secret question"):
        assert secret not in text
