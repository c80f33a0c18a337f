"""Uses of an old generation are zero: after the pool's epoch rolled forward nothing of before is reachable."""

from __future__ import annotations

import openai

from e2e.stack import client
from e2e.stack.attacker import BODY, Insider
from e2e.stack.install import Stack
from e2e.stack.waiting import until

TRIES = 50


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
