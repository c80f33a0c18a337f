"""Uses of an old generation are zero: after the pool's epoch rolled forward nothing of before is reachable."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import httpx2 as httpx
import openai
import pytest

from cachescope.core.labels import GUARD_METRICS_PORT
from e2e.stack import client, kubectl, stub_pool, vllm_pool
from e2e.stack.attacker import BODY, Insider
from e2e.stack.install import READY_SECONDS, Stack, incident
from e2e.stack.waiting import until

TRIES = 50
CLEANED = "cleaned"
_RESETS = re.compile(r'^cachescope_guard_cache_resets_total\{outcome="(\w+)"\} (\d+)$', re.MULTILINE)


def test_an_old_generation_is_never_used(stack: Stack, who: dict[str, openai.OpenAI], insider: Insider) -> None:
    carol, before = who["blue-carol"], insider.epochs()
    texts = [client.prompt(300) for _ in range(TRIES)]
    for text in texts:
        client.chat(carol, text)
    assert client.chat(carol, texts[0]).cached_tokens > 0
    assert insider.post(BODY, insider.permit(BODY, epochs=before)).status_code == 200

    head = stack.raise_pool_epoch()
    until(lambda: insider.statement().sequence == head.sequence, "the guard has applied the new head")
    until(lambda: client.chat(carol, texts[0]).cached_tokens == 0, "the gateway salts with the new epoch")

    assert [client.chat(carol, text).cached_tokens for text in texts[1:]] == [0] * (TRIES - 1)
    assert [insider.post(BODY, insider.permit(BODY, epochs=before)).status_code for _ in range(TRIES)] == [409] * TRIES
    assert insider.post(BODY, insider.permit(BODY)).status_code == 200
    assert client.chat(carol, texts[1]).cached_tokens > 0


@pytest.fixture
def cleaned(stack: Stack) -> Iterator[None]:
    pool = vllm_pool.document(stack, CLEANED)  # whose engine is cleaned up after fences
    pool["spec"]["fence"] = {"cleanup": "Reset"}
    kubectl.apply([pool])
    until(lambda: stub_pool.is_ready(CLEANED), f"the pool {CLEANED} is Ready", READY_SECONDS)
    yield
    kubectl.run("delete", "servingpool", CLEANED, "--wait=true", "--timeout=60s")


def _resets(address: str) -> dict[str, int]:
    """Resets of an engine's cache, by how they ended."""
    return {outcome: int(count) for outcome, count in _RESETS.findall(httpx.get(f"http://{address}/metrics", timeout=10).text)}


@pytest.mark.usefixtures("cleaned")
def test_after_a_rollback_the_engine_forgets_what_is_unreachable(who: dict[str, openai.OpenAI]) -> None:
    carol, text = who["blue-carol"], client.prompt(300)
    client.chat(carol, text, model=CLEANED)
    assert client.chat(carol, text, model=CLEANED).cached_tokens > 0

    rollback = incident(secrets.token_hex(8), name=CLEANED, pool=CLEANED)
    with kubectl.forwarded_pod(stub_pool.pods(CLEANED), GUARD_METRICS_PORT) as address:
        assert _resets(address) == {}
        kubectl.apply([rollback])
        until(lambda: bool(_resets(address)), "the engine was asked to forget")
        assert _resets(address) == {"success": 1}
    assert (
        kubectl.run("logs", "-l", stub_pool.pods(CLEANED), "-c", "engine", "--tail=-1").count("Successfully reset prefix cache")
        == 1
    )
    until(lambda: client.chat(carol, text, model=CLEANED).cached_tokens > 0, "the new generation is reused")
