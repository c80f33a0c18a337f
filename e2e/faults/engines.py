"""The engines that faults are played with: CACHESCOPE_FAULT_ENGINE is `stub` or `vllm`.

Both get the same faults, but for those that only the stub can play (`table.fault`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import openai
import yaml
from openai.types.chat import ChatCompletionChunk

from e2e.faults import answers
from e2e.faults.answers import Seen
from e2e.stack import stub_pool
from e2e.stack.paths import EXAMPLES
from e2e.stub_engine.fingerprint import boot_ms

VARIABLE = "CACHESCOPE_FAULT_ENGINE"
STUB, VLLM = "stub", "vllm"
TOKEN_SECONDS = 0.05
MESSAGE_TOKENS = 4
"""Tokens in a message of vLLM's. One for each would keep every client busy with reading, and messages would come late."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine.

    Attributes:
        name: What it is called here.
        image: Name of its image.
        spec: Fields of the pool's `engine` that are its own.
        resources: The pool's `resources`.
        lengths: Tokens of the answers that tenants ask for. The long ones outlast every right: only a guard ends them.
        start_seconds: How long it takes to start, on two busy cores.
        read: Reads its messages; the second argument is when the request was sent.
        extra: Fields of a request's body that OpenAI's API does not have.
    """

    name: str
    image: str
    spec: dict[str, Any]
    resources: dict[str, Any]
    lengths: tuple[int, int]
    start_seconds: float
    read: Callable[[Iterable[ChatCompletionChunk], int], Iterator[Seen]]
    extra: dict[str, Any] = field(default_factory=dict)

    def stream(self, who: openai.OpenAI, pool: str, text: str, *, max_tokens: int = 2) -> Iterator[Seen]:
        """Send a chat request to a pool; its messages as they come. Closing the iterator closes the connection.

        Args:
            who: The client.
            pool: The pool, which names its model.
            text: The prompt.
            max_tokens: Tokens of the answer.
        """
        sent_ms = boot_ms()
        with who.chat.completions.create(
            model=pool,
            messages=[{"role": "user", "content": text}],
            max_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=self.extra,
        ) as chunks:
            yield from self.read(chunks, sent_ms)

    def found(self, who: openai.OpenAI, pool: str, text: str) -> int:
        """Send a chat request to a pool; how many tokens of it were found."""
        return [*self.stream(who, pool, text)][-1].made.cached_tokens


def _vllm() -> Engine:
    """The demo's engine."""
    pool = next(item for item in yaml.safe_load_all((EXAMPLES / "quickstart.yaml").read_text()) if item["kind"] == "ServingPool")
    spec = {name: pool["spec"]["engine"][name] for name in ("version", "args", "env")}
    spec["args"] = [*spec["args"], "--stream-interval", str(MESSAGE_TOKENS)]
    small = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "8Gi"}}
    return Engine(VLLM, "vllm-cpu", spec, small, (2, 6000), 120, answers.of_vllm, {"ignore_eos": True})


def _stub() -> Engine:
    pool = stub_pool.document("", image="", args=("--token-seconds", str(TOKEN_SECONDS)))["spec"]
    spec = {name: pool["engine"][name] for name in ("version", "args", "env")}
    return Engine(STUB, stub_pool.IMAGE, spec, pool["resources"], (2, 200), 0, answers.of_stub)


BY_NAME: Final = {STUB: _stub, VLLM: _vllm}


def chosen() -> Engine:
    """The engine that the environment names.

    Raises:
        ValueError: It names none.
    """
    name = os.environ.get(VARIABLE, STUB)
    if name not in BY_NAME:
        raise ValueError(f"{VARIABLE} is {name!r}; set it to one of {', '.join(BY_NAME)}")
    return BY_NAME[name]()


ENGINE: Final = chosen()
