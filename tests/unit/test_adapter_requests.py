"""LoRA adapters over the whole path: who asks for one meets nobody who asks for the model, for another, or for other files of it.

The engine of these tests does not look at the model's name: what separates here is the salt alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.digests import sha256
from cachescope.core.types import Digest
from cachescope.gateway import binding
from cachescope.gateway.exchange import Answer, Forward
from tests.unit.whole_path import POOL, WholePath, prompt

TRIES = 50
LOADED = {name: sha256(name.encode()) for name in ("x", "y")}


def declare(path: WholePath, *names: str) -> None:
    adapters = [{"name": name, "source": {"imagePath": f"/adapters/{name}"}} for name in names]
    path.edit("ServingPool", POOL, lambda pool: pool["spec"]["engine"].update(adapters=adapters))


async def load(path: WholePath, adapters: dict[str, Digest]) -> None:
    """Let the engine have loaded these, and the gateway know of it."""
    assert path.process.loaded is not None
    path.process.loaded = replace(path.process.loaded, adapters=adapters)
    path.clock_ms += 20_000
    await path.prove()


@pytest.fixture
async def path(tmp_path: Path) -> WholePath:
    world = WholePath(tmp_path)
    declare(world, "x", "y")
    await load(world, LOADED)
    return world


def chat(model: str) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}]}).encode()


async def code(path: WholePath, model: str) -> tuple[int, str]:
    answer = await path.decide(path.credentials.api_keys["blue-carol"], chat(model))
    assert isinstance(answer, Answer)
    return answer.status, answer.reason


@pytest.mark.parametrize(("who", "model"), [("blue-carol", "tiny"), ("blue-carol", "y"), ("red-alice", "x"), ("red-alice", "tiny")])
async def test_an_adapters_cache_is_its_own_and_its_tenants_own(path: WholePath, who: str, model: str) -> None:
    keys = path.credentials.api_keys
    for _ in range(TRIES):
        text = prompt()
        await path.cached(keys["blue-carol"], text, model="x")
        assert await path.cached(keys[who], text, model=model) == 0
        assert await path.cached(keys["blue-dan"], text, model="x") > 0, "control: the same adapter for the same tenant"


async def test_what_the_model_cached_serves_no_adapter(path: WholePath) -> None:
    key = path.credentials.api_keys["blue-carol"]
    for _ in range(TRIES):
        text = prompt()
        await path.cached(key, text)
        assert [await path.cached(key, text, model=name) for name in ("x", "y")] == [0, 0]
        assert await path.cached(key, text) > 0, "control"


async def test_other_files_under_the_same_name_reach_nothing_of_before(path: WholePath) -> None:
    key, text = path.credentials.api_keys["blue-carol"], prompt()
    await path.cached(key, text, model="x")
    await path.cached(key, text, model="y")
    await load(path, {**LOADED, "x": sha256(b"trained further")})
    assert await path.cached(key, text, model="x") == 0
    assert await path.cached(key, text, model="y") > 0, "control: its files are the same"
    await load(path, LOADED)
    assert await path.cached(key, text, model="x") > 0, "control: the files of before"


async def test_a_gateway_that_does_not_know_of_other_files_yet_is_refused(path: WholePath) -> None:
    key = path.credentials.api_keys["blue-carol"]
    forwards = {name: await path.decide(key, chat(name)) for name in ("tiny", "x", "y")}
    assert path.process.loaded is not None
    path.process.loaded = replace(path.process.loaded, adapters={**LOADED, "x": sha256(b"trained further")})
    served = {name: (await path.send(item)).status for name, item in forwards.items() if isinstance(item, Forward)}
    assert served == {"tiny": 200, "x": 409, "y": 200}


async def test_only_declared_adapters_are_served_and_only_by_an_engine_that_loaded_them(path: WholePath) -> None:
    assert isinstance(await path.decide(path.credentials.api_keys["blue-carol"], chat("x")), Forward), "control"
    await load(path, {**LOADED, "z": sha256(b"z")})
    assert await code(path, "z") == (404, "model_not_found")
    declare(path, "x", "y", "z", "elsewhere")
    assert isinstance(await path.decide(path.credentials.api_keys["blue-carol"], chat("z")), Forward)
    assert await code(path, "elsewhere") == (503, "no_endpoint")
    declare(path, "y")
    assert await code(path, "x") == (404, "model_not_found")


async def test_an_engine_that_serves_an_adapter_by_the_name_that_the_model_has_now_is_not_chosen(path: WholePath) -> None:
    def rename(pool: dict[str, Any]) -> None:
        pool["spec"]["engine"].pop("adapters")
        pool["spec"]["model"]["name"] = "x"

    assert isinstance(await path.decide(path.credentials.api_keys["blue-carol"], chat("x")), Forward), "control: the adapter"
    path.edit("ServingPool", POOL, rename)
    assert await code(path, "x") == (503, "no_endpoint"), "its record would be the model's, and its answer the adapter's"
    await load(path, {})
    assert isinstance(await path.decide(path.credentials.api_keys["blue-carol"], chat("x")), Forward), "control: an engine since"


async def test_adapters_are_listed_as_models(path: WholePath) -> None:
    answer = await path.models(path.credentials.api_keys["blue-carol"])
    assert isinstance(answer, Answer)
    assert [item["id"] for item in json.loads(answer.body)["data"]] == ["tiny", "x", "y"]


async def test_a_pool_that_cannot_be_read_keeps_the_names_of_its_adapters(path: WholePath) -> None:
    def break_it(pool: dict[str, Any]) -> None:
        pool["spec"]["engine"]["image"] = 7

    path.edit("ServingPool", POOL, break_it)
    assert [await code(path, name) for name in ("tiny", "x", "other")] == [
        (503, "no_endpoint"),
        (503, "no_endpoint"),
        (404, "model_not_found"),
    ]


async def test_a_binding_that_forgets_the_adapter_is_noticed(path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement of above on a path that was broken on purpose."""
    monkeypatch.setattr(binding.Engine, "loaded", property(lambda engine: engine.statement.engine))
    key, text = path.credentials.api_keys["blue-carol"], prompt()
    await path.cached(key, text, model="x")
    assert await path.cached(key, text, model="y") > 0
