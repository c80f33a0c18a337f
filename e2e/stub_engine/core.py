"""The engine's loop: one task that serves a queue of messages in order, schedules, and makes tokens.

Rules, all as in vLLM's `EngineCore`:

- requests, aborts and calls come through one queue: who has the answer to a call knows that the aborts before it are served;
- a request waits until fewer than `max_num_seqs` run; its prefix is looked up, and its blocks are kept, when it is scheduled;
- an abort takes a request out of the running or waiting ones; its blocks stay.

One difference: vLLM reads the queue between two steps, this loop also while a token is being made. With long token times, which are
there to make a request last, it stands for many short steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from dataclasses import dataclass, field

from e2e.stub_engine.faults import BUSY, IGNORE_ABORT, NEVER_CONFIRM, SLOW_PREFILL, Faults
from e2e.stub_engine.fingerprint import Fingerprint, boot_ms
from e2e.stub_engine.prefix_cache import PrefixCache


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was made.

    Attributes:
        index: Its place in the answer, from 0.
        last: Whether the answer ends with it.
        fingerprint: How it was made.
    """

    index: int
    last: bool
    fingerprint: Fingerprint


@dataclass(eq=False, slots=True)
class Request:
    """A request in the engine.

    Attributes:
        external_req_id: The API server's id of it, as vLLM calls it; several requests may have the same one.
        prompt: Its tokens.
        salt: Its `cache_salt`; empty without one.
        max_tokens: Tokens that it asks for.
        request_id: The engine's own id of it, which no other has.
        outputs: Where its tokens appear; `None` when it was aborted from outside.
    """

    external_req_id: str
    prompt: tuple[str, ...]
    salt: str
    max_tokens: int
    request_id: str = field(init=False)
    outputs: asyncio.Queue[Token | None] = field(default_factory=asyncio.Queue)
    arrived_ms: int = 0
    scheduled_ms: int = 0
    cached_tokens: int = 0
    made: int = 0
    due: float = 0.0

    def __post_init__(self) -> None:
        self.request_id = f"{self.external_req_id}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Abort:
    """Forget these requests."""

    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method by name, and answer with what it returns."""

    method: str
    arguments: tuple[object, ...]
    answer: asyncio.Future[object]


class EngineCore:
    """The engine.

    Args:
        max_num_seqs: How many requests run at once.
        token_seconds: How long a token takes.
        faults: Faults that tests switch.

    Attributes:
        messages: What it is asked.
        cache: Its prefix cache.
        waiting: Requests that are not scheduled yet.
        running: Requests that are.
    """

    def __init__(self, *, max_num_seqs: int = 4, token_seconds: float = 0.002, faults: Faults | None = None) -> None:
        self._max_num_seqs = max_num_seqs
        self._token_seconds = token_seconds
        self._faults = faults or Faults()
        self.messages: asyncio.Queue[Request | Abort | Call] = asyncio.Queue()
        self.cache = PrefixCache()
        self.waiting: deque[Request] = deque()
        self.running: dict[str, Request] = {}

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._message_or_token()
            while not self.messages.empty():
                self._serve(self.messages.get_nowait())
            self._step()
            # Last, as the places of what has just ended are free now.
            self._schedule()

    async def _message_or_token(self) -> None:
        first = min((request.due for request in self.running.values()), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(first):
                self._serve(await self.messages.get())

    def _serve(self, message: Request | Abort | Call) -> None:
        if isinstance(message, Request):
            message.arrived_ms = boot_ms()
            self.waiting.append(message)
        elif isinstance(message, Abort):
            self._abort(message)
        elif not message.answer.done() and not self._faults.active(NEVER_CONFIRM):
            self._call(message)

    def _abort(self, message: Abort) -> None:
        if self._faults.active(IGNORE_ABORT):
            return
        self.waiting = deque(request for request in self.waiting if request.request_id not in message.request_ids)
        for request_id in message.request_ids:
            self.running.pop(request_id, None)

    def _call(self, call: Call) -> None:
        methods = {"is_sleeping": lambda: False, "reset_prefix_cache": self._reset_prefix_cache}
        try:
            call.answer.set_result(methods[call.method](*call.arguments))
        except Exception as error:  # the caller's, as in vLLM; the loop goes on
            call.answer.set_exception(RuntimeError(f"call to {call.method} failed: {error!r}; see e2e/stub_engine/core.py"))

    def _reset_prefix_cache(self, *_options: object) -> bool:
        """As in vLLM, blocks of running requests are held: then nothing is reset. It preempts none for that, whatever is asked."""
        if self.running or self._faults.active(BUSY):
            return False
        self.cache.reset()
        return True

    def _step(self) -> None:
        now = _now()
        for request in [request for request in self.running.values() if request.due <= now]:
            request.made += 1
            last = request.made >= request.max_tokens
            made = Fingerprint(boot_ms(), request.arrived_ms, request.scheduled_ms, request.cached_tokens)
            request.outputs.put_nowait(Token(request.made - 1, last, made))
            request.due = now + self._token_seconds
            if last:
                del self.running[request.request_id]

    def _schedule(self) -> None:
        while self.waiting and len(self.running) < self._max_num_seqs:
            request = self.waiting.popleft()
            request.scheduled_ms = boot_ms()
            request.cached_tokens = self.cache.look_up(request.salt, request.prompt)
            self.cache.fill(request.salt, request.prompt)
            request.due = _now() + self._token_seconds + self._faults.seconds(SLOW_PREFILL)
            self.running[request.request_id] = request


def _now() -> float:
    return asyncio.get_running_loop().time()
