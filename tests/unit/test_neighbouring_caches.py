"""The example of caches beside the engine shares where the engine may, and nowhere else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_own_routes import HELLO, INTERNAL, KEYS, OTHER, told
from tests.unit.test_sharing import ALICE, CAROL, World

PATH = Path(__file__).parents[2] / "examples" / "neighbouring_caches.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.prove()
    made.declare("Tenant")
    return made


async def keys(world: World, who: str, body: object = HELLO, context: str = INTERNAL) -> dict[str, Any]:
    return await told(world, who, KEYS, body, x_cachescope_context=context)


async def test_passages_are_shared_within_a_tenant_and_never_beyond(world: World) -> None:
    caches, store, asked = example(), dict[str, str](), list[str]()

    def retrieve(query: str) -> str:
        asked.append(query)
        return "passage"

    for who in (ALICE, CAROL, CAROL, ALICE):
        caches.retrieved(store, await keys(world, who), "notice period", retrieve)
    assert len(asked) == 2
    world.raise_pool_epoch(5)
    world.round()
    await world.prove()
    caches.retrieved(store, await keys(world, CAROL), "notice period", retrieve)
    assert len(asked) == 3, "a rollback cools it too"


async def test_answers_belong_to_one_question_of_one_tenant(world: World) -> None:
    caches, store, made = example(), dict[str, str](), list[str]()

    def generate() -> str:
        made.append("")
        return "answer"

    for who, body in ((ALICE, HELLO), (CAROL, HELLO), (CAROL, OTHER), (CAROL, HELLO), (ALICE, HELLO)):
        caches.answered(store, await keys(world, who, body), generate)
    assert len(made) == 3


async def test_what_is_secret_is_kept_by_nobody(world: World) -> None:
    caches, store = example(), dict[str, str]()
    for _ in range(2):
        secret = await keys(world, CAROL, context='{"dataClass": "secret"}')
        assert caches.answered(store, secret, lambda: "answer") == "answer"
        assert caches.retrieved(store, secret, "notice period", lambda _: "passage") == "passage"
    assert store == {}
    caches.retrieved(store, await keys(world, CAROL), "notice period", lambda _: "passage")
    assert len(store) == 1, "control: what is not secret is kept"
