"""What is read from an engine's messages accuses nobody wrongly, and hides no answer that lives on after its fence."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from e2e.faults import answers
from e2e.faults.answers import SLACK_MS, of_stub, of_vllm
from e2e.faults.history import CUT, EVERYONE, SERVED, History, Kind, Message, Revocation, Use
from e2e.faults.linearizability import violations
from e2e.faults.site import LEASE_SECONDS
from e2e.stub_engine.fingerprint import Fingerprint

FENCED = 10_000
ROLLBACK = Revocation(EVERYONE, Kind.ROLLBACK, FENCED - 100, FENCED)
BEFORE, AFTER = FENCED - 5000, FENCED + 5000


def chunk(text: str = "", *, last: bool = False, found: int | None = None, fingerprint: str | None = None) -> ChatCompletionChunk:
    """A chunk as the client's library reads it; the one with the usage has no choices."""
    usage = {"prompt_tokens": 600, "completion_tokens": 2, "total_tokens": 602, "prompt_tokens_details": {"cached_tokens": found}}
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "length" if last else None}
    document: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "tiny"}
    document |= {"choices": [choice] if found is None else [], "system_fingerprint": fingerprint}
    return ChatCompletionChunk.model_validate(document | ({} if found is None else {"usage": usage}))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Moments at which messages come, one after the other."""
    moments: list[int] = []
    monkeypatch.setattr(answers, "boot_ms", lambda: moments.pop(0))
    return moments


def vllm(clock: list[int], sent_ms: int, *came: int, found: int | None = None, prefix: str = "prefix") -> Use:
    """A request of vLLM whose messages came then; whole, if it is told how much was found."""
    clock[:] = came
    chunks = [chunk("a") for _ in came]
    if found is not None:
        chunks[-1] = chunk(found=found)
    seen = list(of_vllm(chunks, sent_ms))
    messages = tuple(Message(item.made.made_ms, item.seen_ms) for item in seen)
    made, outcome = seen[-1].made, SERVED if seen[-1].last else CUT
    return Use("red", prefix, sent_ms, came[-1], outcome, made.arrived_ms, made.scheduled_ms, made.cached_tokens, messages)


def rules(*uses: Use) -> list[str]:
    return [item.rule for item in violations(History(uses, (ROLLBACK,)))]


def test_the_stub_says_of_each_token_how_it_was_made() -> None:
    made = Fingerprint(made_ms=3, arrived_ms=1, scheduled_ms=2, cached_tokens=16)
    chunks = [
        chunk("a", fingerprint=str(made)),
        chunk("b", last=True, fingerprint=str(made)),
        chunk(found=16, fingerprint=str(made)),
    ]
    assert [(seen.made, seen.last) for seen in of_stub(chunks, 1)] == [(made, False), (made, True)]


def test_a_message_of_vllm_was_made_between_the_request_and_its_coming(clock: list[int]) -> None:
    clock[:] = [1200, 5000, 5001]
    seen = list(of_vllm([chunk("a"), chunk("b", last=True), chunk(found=512)], 1000))
    assert [item.made.made_ms for item in seen] == [1000, 5000 - SLACK_MS, 5001 - SLACK_MS]
    assert [item.last for item in seen] == [False, False, True]
    assert {item.made.arrived_ms for item in seen} == {1200}
    assert [(item.made.scheduled_ms, item.made.cached_tokens) for item in seen] == [(1000, 0), (1000, 0), (1200, 512)]


def test_an_answer_of_vllm_that_lives_on_after_the_fence_is_seen(clock: list[int]) -> None:
    assert rules(vllm(clock, BEFORE, BEFORE + 1, FENCED + SLACK_MS + 1)) == ["used or admitted after the fence"]
    assert rules(vllm(clock, BEFORE, BEFORE + 1, FENCED + SLACK_MS)) == []


def test_the_slack_is_shorter_than_what_a_leak_lasts() -> None:
    """A guard that does not cut goes on until its right ends, at least."""
    assert SLACK_MS < 1000 * LEASE_SECONDS


def test_what_vllm_finds_of_before_the_fence_is_seen(clock: list[int]) -> None:
    old = vllm(clock, BEFORE, BEFORE + 1, found=0)
    found = "found what was cached before the fence, or by another tenant"
    assert rules(old, vllm(clock, AFTER, AFTER + 1, found=512)) == [found]
    assert rules(old, vllm(clock, AFTER, AFTER + 1, found=0), vllm(clock, AFTER + 2, AFTER + 3, found=512)) == []
    assert rules(old, vllm(clock, BEFORE + 2, BEFORE + 3, found=512)) == []


def test_a_request_that_was_cut_explains_only_what_is_found_of_its_own_prefix(clock: list[int]) -> None:
    """The long requests have a prefix of their own, so that the short ones stay exact."""
    old = vllm(clock, BEFORE, BEFORE + 1, found=0)
    short = vllm(clock, AFTER + 2, AFTER + 3, found=512)
    assert rules(old, vllm(clock, AFTER, AFTER + 1), short) == []
    assert rules(old, vllm(clock, AFTER, AFTER + 1, prefix="long"), short) != []


def test_requests_at_once_are_taken_in_the_order_that_explains_them(clock: list[int]) -> None:
    """Who found something may have been looked up after the one that was sent later."""
    assert rules(vllm(clock, AFTER, AFTER + 9, found=512), vllm(clock, AFTER + 1, AFTER + 20, found=0)) == []
    assert rules(vllm(clock, AFTER, AFTER + 9, found=512), vllm(clock, AFTER + 10, AFTER + 20, found=0)) != []
