"""Cross-scope acceptances are zero on the real pool, each beside the reuse that must be there."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from e2e.demo.cases import BLOCK_TOKENS, LEAST_HIT
from e2e.stack import client

TRIES = 50
# Two full blocks; the measured reuse of a long prefix has its own test.
TRY_TOKENS = 300
Clients = dict[str, openai.OpenAI]

WITHIN = [
    ("blue-carol", "blue-carol"),
    ("blue-carol", "blue-dan"),
    ("blue-north", "blue-carol"),
    ("red-alice", "red-alice"),
    ("violet-north", "violet-north"),
]
ACROSS = [
    ("red-alice", "blue-carol"),
    ("blue-carol", "red-alice"),
    ("red-alice", "red-bob"),
    ("blue-north", "green-south"),
    ("violet-north", "violet-south"),
]
CHOSEN: dict[str, Any] = {
    "cache_salt": "agreed",
    "extra_key": "agreed",
    "nvext": {"cache_salt": "agreed"},
    "kv_transfer_params": {"do_remote_prefill": False},
    "session_id": "agreed",
    "request_id": "agreed",
}


@pytest.mark.parametrize("pair", WITHIN, ids="→".join)
def test_a_long_prefix_is_reused_within_a_scope(who: Clients, pair: tuple[str, str]) -> None:
    text = client.prompt(3000)
    assert client.chat(who[pair[0]], text).cached_tokens == 0
    again = client.chat(who[pair[1]], text)
    assert again.cached_tokens >= LEAST_HIT * ((again.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS)


@pytest.mark.parametrize("pair", ACROSS, ids="→".join)
def test_nothing_is_reused_across_scopes(who: Clients, pair: tuple[str, str]) -> None:
    assert _cached_by_second(who, pair) == [0] * TRIES
    assert min(_cached_by_second(who, (pair[0], pair[0]), tries=5)) > 0


def test_a_client_cannot_choose_a_cache(who: Clients) -> None:
    assert _cached_by_second(who, ACROSS[0], extra=CHOSEN) == [0] * TRIES
    assert min(_cached_by_second(who, WITHIN[1], tries=5, extra=CHOSEN)) > 0


def test_headers_do_not_choose_a_cache(who: Clients) -> None:
    headers = {"x-tenant-id": "red", "x-cache-salt": "agreed", "x-cachescope-permit": "v1.a.b.c", "x-session-id": "agreed"}
    found = {name: each.with_options(default_headers=headers) for name, each in who.items()}
    assert _cached_by_second(found, ACROSS[0]) == [0] * TRIES
    assert min(_cached_by_second(found, WITHIN[1], tries=5)) > 0


def _cached_by_second(who: Clients, pair: tuple[str, str], tries: int = TRIES, extra: dict[str, Any] | None = None) -> list[int]:
    """What the second of a pair finds of prompts that the first has sent, every prompt new."""
    texts = [client.prompt(TRY_TOKENS) for _ in range(tries)]
    client.found(who[pair[0]], texts, **(extra or {}))
    return client.found(who[pair[1]], texts, **(extra or {}))
