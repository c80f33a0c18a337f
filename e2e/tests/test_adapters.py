"""LoRA adapters on the real engine: each has a cache of its own, and other files under its path are another adapter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from e2e.stack import client, kubectl, outage, stub_pool, tiny_adapter, vllm_pool, volumes
from e2e.stack.install import READY_SECONDS, Stack
from e2e.stack.waiting import until

ADAPTED, CLAIM = "adapted", "adapters"
FIRST, SECOND = "first-adapter", "second-adapter"
TRIES, TOKENS = 50, 300
CAROL, DAN, ALICE = "blue-carol", "blue-dan", "red-alice"
Clients = dict[str, openai.OpenAI]

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's folders are none of this machine")


def _pool(stack: Stack) -> dict[str, Any]:
    """A pool with two adapters beside its model."""
    pool = vllm_pool.document(stack, ADAPTED)
    pool["spec"]["engine"]["adapters"] = [
        {"name": name, "source": {"persistentVolumeClaim": {"claimName": CLAIM, "path": name}}} for name in (FIRST, SECOND)
    ]
    return pool


@pytest.fixture(scope="module")
def folder(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the adapters' files are, of a pool that serves them."""
    made = tmp_path_factory.mktemp("volume") / "adapters"
    for seed, name in enumerate((FIRST, SECOND)):
        tiny_adapter.write(made / name, seed)
    with volumes.claimed(CLAIM, made):
        kubectl.apply([_pool(stack)])
        try:
            until(lambda: stub_pool.is_ready(ADAPTED), f"the pool {ADAPTED} is Ready", READY_SECONDS)
            yield made
        finally:
            kubectl.run("delete", "servingpool", ADAPTED, "--wait=true", "--timeout=60s")


def cached(who: openai.OpenAI, text: str, model: str) -> int:
    return client.chat(who, text, model=model).cached_tokens


def digests() -> dict[str, str]:
    """Digest of each adapter, where all engines loaded the same."""
    engines = kubectl.get("servingpool", ADAPTED)["status"].get("engines", [])
    return {item["name"]: item["digest"] for item in engines[0]["adapters"]} if len(engines) == 1 else {}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((CAROL, FIRST), (CAROL, ADAPTED)),
        ((CAROL, ADAPTED), (CAROL, FIRST)),
        ((CAROL, FIRST), (CAROL, SECOND)),
        ((CAROL, FIRST), (ALICE, FIRST)),
        ((CAROL, FIRST), (ALICE, ADAPTED)),
    ],
    ids="-".join,
)
def test_an_adapters_cache_is_its_own_and_its_tenants_own(who: Clients, first: tuple[str, str], second: tuple[str, str]) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    for text in texts:
        cached(who[first[0]], text, first[1])
    assert [cached(who[second[0]], text, second[1]) for text in texts] == [0] * TRIES
    assert min(cached(who[DAN], text, first[1]) for text in texts[:5]) > 0, "the control: the tenant's own, for the same model"


@pytest.mark.usefixtures("folder")
def test_only_declared_adapters_are_served_and_none_can_be_loaded(stack: Stack, gateway: str, who: Clients) -> None:
    assert {ADAPTED, FIRST, SECOND} <= {model.id for model in who[CAROL].models.list()}
    assert cached(who[CAROL], "hello", FIRST) == 0, "the control"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        cached(who[CAROL], "hello", "third-adapter")
    loading = httpx.post(
        f"http://{gateway}/v1/load_lora_adapter",
        json={"lora_name": "third-adapter", "lora_path": f"/models/adapter-1/{FIRST}"},
        headers={"authorization": f"Bearer {stack.credentials.api_keys[CAROL]}"},
        timeout=60,
    )
    assert loading.status_code == 404


def test_other_files_under_the_same_path_are_another_adapter(who: Clients, folder: Path) -> None:
    carol, before = who[CAROL], digests()
    assert before.keys() == {FIRST, SECOND}
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    for text in texts:
        cached(carol, text, FIRST)
    assert cached(carol, texts[0], FIRST) > 0, "the control: it is reused"

    tiny_adapter.write(folder / FIRST, seed=len(before))
    kubectl.run("delete", "pod", "-l", stub_pool.pods(ADAPTED), "--wait=true", timeout=READY_SECONDS)
    until(lambda: digests().get(FIRST, before[FIRST]) != before[FIRST], "the status names the files of now", READY_SECONDS)
    until(lambda: stub_pool.is_ready(ADAPTED), f"the pool {ADAPTED} is Ready", READY_SECONDS)

    assert digests()[SECOND] == before[SECOND], "the control: its files are the same"
    assert [cached(carol, text, FIRST) for text in texts] == [0] * TRIES
    assert cached(carol, texts[0], FIRST) > 0
