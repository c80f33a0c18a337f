"""Decisions rest on whole records: where the digests of all of them collide, nothing crosses, and nobody else's handle matches."""

from __future__ import annotations

import json
import logging

import pytest

from cachescope.core.digests import sha256
from cachescope.core.types import Digest
from cachescope.gateway.exchange import Answer, Forward
from cachescope.gateway.own_routes import OWN, Purpose
from e2e.test_builds import short_digests
from tests.unit.guard_fakes import BODY, ENGINE, World
from tests.unit.test_isolation import ALLOWED, FORBIDDEN, hits, people
from tests.unit.whole_path import CHAT, WholePath, path, prompt

__all__ = ["path"]

TRIES = 50
HANDLES = next(path for (_, path), purpose in OWN.items() if purpose is Purpose.HANDLE)


def chat(text: str) -> dict[str, object]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}]}


async def handle(path: WholePath, person: str, text: str) -> str:
    """A person's handle for a prompt."""
    answer = await path.decide(people(path)[person], json.dumps({"path": CHAT, "body": chat(text)}).encode(), HANDLES)
    assert isinstance(answer, Answer)
    return str(json.loads(answer.body)["handle"])


async def presented(path: WholePath, owner: str, person: str) -> None:
    """A person presents the handle that another was given for the same request."""
    text = prompt()
    given = await handle(path, owner, text)
    body = json.dumps(chat(text)).encode()
    assert isinstance(await path.decide(people(path)[person], body, x_cachescope_handle=given), Forward)


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[object]:
    """What the audit lines say under a name, of all that was forwarded."""
    return [record.__dict__[name] for record in caplog.records if record.getMessage() == "forwarded"]


class TestShortened:
    @pytest.fixture(autouse=True)
    def _build(self, monkeypatch: pytest.MonkeyPatch) -> None:
        short_digests.shortened(monkeypatch.setattr)

    @pytest.mark.parametrize("pair", FORBIDDEN)
    async def test_nothing_crosses_scopes(self, path: WholePath, caplog: pytest.LogCaptureFixture, pair: tuple[str, str]) -> None:
        caplog.set_level(logging.INFO, "cachescope.audit")
        assert await hits(path, pair) == 0
        assert set(told(caplog, "record_digest")) == {short_digests.RECORD}, "every digest collides with every other"
        assert len(set(told(caplog, "namespace_digest"))) == 1

    @pytest.mark.parametrize("pair", ALLOWED)
    async def test_reuse_within_a_scope_is_kept(self, path: WholePath, pair: tuple[str, str]) -> None:
        text, who = prompt(), people(path)
        await path.cached(who[pair[0]], text)
        assert await path.cached(who[pair[1]], text) > 0

    @pytest.mark.parametrize("pair", FORBIDDEN)
    async def test_nobody_elses_handle_matches(
        self, path: WholePath, caplog: pytest.LogCaptureFixture, pair: tuple[str, str]
    ) -> None:
        caplog.set_level(logging.INFO, "cachescope.audit")
        for _ in range(TRIES):
            await presented(path, *pair)
        assert "Matches" not in told(caplog, "handle")
        await presented(path, pair[0], pair[0])
        assert told(caplog, "handle")[-1] == "Matches"


class TestTheSuiteNoticesWhoTrustsADigest:
    @pytest.fixture(autouse=True)
    def _build(self, monkeypatch: pytest.MonkeyPatch) -> None:
        short_digests.trusting(monkeypatch.setattr)

    async def test_two_tenants_share(self, path: WholePath) -> None:
        assert await hits(path, FORBIDDEN[0], tries=3) == 3

    async def test_everybodys_handle_matches(self, path: WholePath, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "cachescope.audit")
        await presented(path, *FORBIDDEN[0])
        assert told(caplog, "handle") == ["Matches"]


def almost(digest: Digest) -> Digest:
    """A digest that differs in its last digit."""
    return Digest(digest[:-1] + ("0" if digest[-1] != "0" else "1"))


@pytest.mark.parametrize(
    ("field", "digest", "status"), [("body_digest", sha256(BODY), 403), ("runtime_digest", ENGINE.runtime, 409)]
)
async def test_a_guard_compares_the_last_digit_too(field: str, digest: Digest, status: int) -> None:
    world = World()
    found = [(await world.ask(world.permit(**{field: almost(digest)}))).status for _ in range(TRIES)]
    assert found == [status] * TRIES
    assert (await world.ask(world.permit(**{field: digest}))).status == 200
