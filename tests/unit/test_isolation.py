"""The four figures that must be zero, over the whole path, each beside its positive control."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachescope.core import salts
from cachescope.core.record import IdentityRecord
from cachescope.core.types import Salt
from cachescope.gateway import binding, decision
from cachescope.gateway.bodies import Sanitized
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.guard.asgi import Admitted, Guard
from cachescope.guard.in_flight import Flight
from cachescope.guard.process import GuardProcess
from cachescope.guard.wire import Receive, Scope
from tests.unit.test_permits import PERMIT
from tests.unit.whole_path import BLOCK, CHAT, NAMESPACE, WholePath, path, prompt

__all__ = ["path"]

TRIES = 50


def suspend(tenant: dict[str, Any]) -> None:
    tenant["spec"]["suspended"] = True


def people(path: WholePath) -> dict[str, str]:
    token = path.credentials.token
    return {
        **path.credentials.api_keys,
        "blue-north": token("north", "kim", "tiny"),
        "green-south": token("south", "kim", "tiny"),
        "violet-north": token("north", "kim", "violet"),
        "violet-south": token("south", "kim", "violet"),
    }


ALLOWED = [("blue-carol", "blue-carol"), ("blue-carol", "blue-dan"), ("red-alice", "red-alice"), ("blue-north", "blue-carol")]
FORBIDDEN = [
    ("red-alice", "blue-carol"),
    ("blue-carol", "red-alice"),
    ("red-alice", "red-bob"),
    ("blue-north", "green-south"),
    ("violet-north", "violet-south"),
    ("blue-carol", "green-south"),
]
CLIENT_CHOSEN: dict[str, Any] = {
    "cache_salt": "agreed",
    "extra_key": "agreed",
    "nvext": {"cache_salt": "agreed"},
    "kv_transfer_params": {"a": 1},
}


async def hits(path: WholePath, pair: tuple[str, str], tries: int = TRIES, **fields: Any) -> int:
    """How often the second of a pair profited from what the first had sent."""
    who, found = people(path), 0
    for _ in range(tries):
        text = prompt()
        assert await path.cached(who[pair[0]], text, **fields) == 0
        found += await path.cached(who[pair[1]], text, **fields) > 0
    return found


@pytest.mark.parametrize("pair", ALLOWED)
async def test_reuse_within_a_scope_is_kept(path: WholePath, pair: tuple[str, str]) -> None:
    text, who = prompt(), people(path)
    await path.cached(who[pair[0]], text)
    assert await path.cached(who[pair[1]], text) == len(text) // BLOCK * BLOCK


@pytest.mark.parametrize("pair", FORBIDDEN)
async def test_nothing_crosses_scopes(path: WholePath, pair: tuple[str, str]) -> None:
    assert await hits(path, pair) == 0


@pytest.mark.parametrize("pair", FORBIDDEN)
async def test_nothing_that_a_client_sends_chooses_a_cache(path: WholePath, pair: tuple[str, str]) -> None:
    assert await hits(path, pair, **CLIENT_CHOSEN) == 0


async def test_an_old_generation_is_never_used(path: WholePath) -> None:
    key = people(path)["blue-carol"]
    for epoch in range(2, 52):
        text = prompt()
        await path.cached(key, text)
        assert await path.cached(key, text) > 0
        path.raise_pool_epoch(epoch)
        assert await path.cached(key, text) == 0


async def test_a_permit_from_before_the_epoch_is_refused(path: WholePath) -> None:
    for epoch in range(2, 52):
        forward = await path.decide(people(path)["blue-carol"], chat())
        assert isinstance(forward, Forward)
        path.raise_pool_epoch(epoch)
        server = await path.send(forward)
        assert (server.status, server.code) == (409, "permit_behind")


async def test_nothing_is_served_without_a_permit(path: WholePath) -> None:
    forward = await path.decide(people(path)["blue-carol"], chat())
    assert isinstance(forward, Forward)
    naked = Forward(forward.endpoint, forward.path, {}, forward.keep_headers, forward.body)
    assert [(await path.send(naked)).status for _ in range(TRIES)] == [401] * TRIES
    assert (await path.send(forward)).status == 200


async def test_a_replay_is_served_once(path: WholePath) -> None:
    forward = await path.decide(people(path)["blue-carol"], chat())
    assert isinstance(forward, Forward)
    assert [(await path.send(forward)).status for _ in range(50)] == [200] + [403] * 49


async def test_another_body_is_not_served(path: WholePath) -> None:
    forward = await path.decide(people(path)["blue-carol"], chat())
    assert isinstance(forward, Forward)
    swapped = forward.body.replace(b"hello", b"hallo")
    assert swapped != forward.body
    assert (await path.send(forward, body=swapped)).status == 403
    assert (await path.send(forward)).status == 200


async def test_the_salt_never_leaves(path: WholePath) -> None:
    forward = await path.decide(people(path)["blue-carol"], chat())
    assert isinstance(forward, Forward)
    salt = json.loads(forward.body)["cache_salt"]
    server = await path.send(forward)
    assert salt.encode() not in b"".join(str(message).encode() for message in server.messages)
    assert all(salt not in value for value in forward.set_headers.values())


async def test_a_suspended_tenant_is_refused_at_once(path: WholePath) -> None:
    key = people(path)["blue-carol"]
    assert isinstance(await path.decide(key, chat()), Forward)
    path.edit("Tenant", "blue", suspend)
    answer = await path.decide(key, chat())
    assert isinstance(answer, Answer)
    assert answer.status == 403


class TestWhatWasTrueWhenAnUploadBegan:
    """A body may take as long as it likes: only what is true when it is complete counts."""

    async def admitted(self, path: WholePath, who: str) -> object:
        head = RequestHead("POST", CHAT, (("authorization", f"Bearer {people(path)[who]}"), ("content-type", "application/json")))
        found = await path.gate.admit(head)
        assert not isinstance(found, Answer)
        return found

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            (suspend, 403),
            (lambda tenant: tenant["spec"]["identities"]["apiKeys"].pop(), 401),
            (lambda tenant: tenant["status"].pop("accepted"), 401),
        ],
        ids=["suspended", "key removed", "claim not accepted any more"],
    )
    async def test_what_was_taken_away_is_refused(
        self, path: WholePath, change: Callable[[dict[str, Any]], object], status: int
    ) -> None:
        waiting = await self.admitted(path, "blue-dan")
        assert isinstance(await path.gate.decide(waiting, chat()), Forward)
        path.cluster.edit("Tenant", "blue", change, namespace=NAMESPACE, accept=False)
        path.refresh()
        answer = await path.gate.decide(waiting, chat())
        assert isinstance(answer, Answer)
        assert answer.status == status

    async def test_a_scope_that_was_narrowed_separates(self, path: WholePath) -> None:
        text = prompt()
        await path.cached(people(path)["blue-carol"], text)
        waiting = await self.admitted(path, "blue-dan")
        path.edit("CacheScope", "each-principal-alone", lambda scope: scope["spec"]["tenants"].append("blue"))
        forward = await path.gate.decide(waiting, chat(text))
        assert isinstance(forward, Forward)
        usage = json.loads((await path.send(forward)).body)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


class LeakyGuard(Guard):
    """Lets all pass."""

    async def decide(self, process: GuardProcess, scope: Scope, receive: Receive) -> Admitted:  # noqa: ARG002 - that is the leak
        heads = process.source.heads
        assert heads is not None
        flight = Flight(replace(PERMIT, seen=heads.seen), heads, generation=process.source.generation, now=process.tick())
        return Admitted(flight, (await receive())["body"])


class TestTheSuiteNoticesALeak:
    """The same measurements on a path that was broken on purpose: each must find what the real path never shows."""

    async def test_a_constant_salt(self, path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(binding, "salt", lambda *_: Salt("constant"))
        assert await hits(path, FORBIDDEN[0], tries=3) == 3

    async def test_a_strip_that_was_removed(self, path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
        def keeps_the_clients(cleaned: Sanitized, salt: Salt) -> bytes:
            return json.dumps({**cleaned.fields, "cache_salt": "agreed" if "cache_salt" in cleaned.stripped else salt}).encode()

        monkeypatch.setattr(decision, "with_salt", keeps_the_clients)
        assert await hits(path, FORBIDDEN[0], tries=3, **CLIENT_CHOSEN) == 3
        assert await hits(path, FORBIDDEN[0], tries=3) == 0

    async def test_a_guard_that_lets_all_pass(self, tmp_path: Path) -> None:
        path = WholePath(tmp_path)
        await path.prove()
        leaky = LeakyGuard(path.engine, path.guard._given)
        forward = await path.decide(people(path)["blue-carol"], chat())
        assert isinstance(forward, Forward)
        path.guard = leaky
        naked = Forward(forward.endpoint, forward.path, {}, forward.keep_headers, forward.body)
        assert [(await path.send(naked)).status for _ in range(3)] == [200] * 3

    async def test_a_salt_without_epochs(self, path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = salts.salted_fields

        def without_epochs(record: IdentityRecord) -> object:
            return whole(record)[:-1]

        monkeypatch.setattr(salts, "salted_fields", without_epochs)
        key, text = people(path)["blue-carol"], prompt()
        await path.cached(key, text)
        path.raise_pool_epoch(2)
        assert await path.cached(key, text) > 0


def chat(content: str = "hello") -> bytes:
    return json.dumps({"model": "tiny", "messages": [{"role": "user", "content": content}]}).encode()
