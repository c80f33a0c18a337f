"""What the demo tries: reuse that must be there, observation that must not, and attacks that must fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import openai

from e2e.stack import client
from e2e.stack.client import Measured

BLOCK_TOKENS = 128
LEAST_HIT = 0.9


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        warmed_by: Who sent the prompt first.
        asked_by: Who sent it again.
        how: What is particular about it.
        outcome: What was observed.
        seconds: Time to the first token, where there was an answer.
        expected: What must be observed.
        holds: Whether it was.
    """

    warmed_by: str
    asked_by: str
    how: str
    outcome: str
    seconds: float | None
    expected: str
    holds: bool


Clients = dict[str, openai.OpenAI]
PAIRS = (
    ("blue/carol", "blue/carol", "same principal", True),
    ("blue/carol", "blue/dan", "same tenant, class Tenant", True),
    ("red/alice", "red/alice", "same principal, class Principal", True),
    ("red/alice", "red/bob", "same tenant, class Principal", False),
    ("red/alice", "blue/carol", "another tenant", False),
    ("blue/carol", "red/alice", "another tenant", False),
)


def pairs(clients: Clients) -> Iterator[Case]:
    """Every pair of the table: one warms a prompt, the other asks."""
    for warm, ask, how, must_hit in PAIRS:
        text = client.prompt()
        first = client.chat(clients[warm], text)
        cold = first.cached_tokens == 0  # a prompt that was warm before it was sent proves nothing
        case = judged(warm, ask, how, client.chat(clients[ask], text), must_hit=must_hit)
        yield replace(case, holds=case.holds and cold)


def chosen_salt(clients: Clients) -> Case:
    """Attack: both send the same `cache_salt`, hoping that it decides."""
    text = client.prompt()
    client.chat(clients["red/alice"], text, cache_salt="shared-by-agreement")
    measured = client.chat(clients["blue/carol"], text, cache_salt="shared-by-agreement")
    return judged("red/alice", "blue/carol", "attack: a client-chosen salt", measured, must_hit=False)


def judged(warm: str, ask: str, how: str, measured: Measured, *, must_hit: bool) -> Case:
    """Hold what was measured against what must be."""
    cached, total = measured.cached_tokens, measured.prompt_tokens
    full_blocks = (total - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    holds = cached >= LEAST_HIT * full_blocks if must_hit else cached == 0
    expected = "reuse" if must_hit else "nothing"
    return Case(warm, ask, how, f"{cached} of {total} tokens cached", measured.seconds, expected, holds)


def answered(how: str, send: Callable[[], int], status: int) -> Case:
    """A request past the gateway, whose answer must have this status."""
    found = send()
    return Case("-", "attacker", how, f"HTTP {found}", None, "served" if status == 200 else "refused", found == status)
