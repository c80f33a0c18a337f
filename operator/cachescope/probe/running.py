"""Runs experiments: one request after the other, as counters tell only then which request found what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cachescope.probe.cases import Case, Step, plan
from cachescope.probe.judgement import Judgement, Observation, judge
from cachescope.probe.questions import Question, question
from cachescope.probe.usage import read

EVENTS = "text/event-stream"
"""Content type of an answer that is streamed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        status: HTTP status; 0 if nothing answered.
        content: The body.
        streamed: Whether it is server-sent events.
        counted_tokens: By how much the engine's counter of found tokens rose meanwhile; `None` if there is none.
        seconds: How long it took.
    """

    status: int
    content: bytes = b""
    streamed: bool = False
    counted_tokens: int | None = None
    seconds: float = 0.0

    @property
    def outcome(self) -> int:
        """The status, or what an answer of 200 says in its body: engines wrote errors there (vLLM 0.12.0, of a route without use).

        Returns:
            The status; of 200 with an error, what the error names; 0 for 200 without a whole answer.
        """
        if self.status != 200:
            return self.status
        told = read(self.content, streamed=self.streamed)
        return 200 if told.complete else told.error_code or 0


Ask = Callable[[Question], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Prober:
    """Who runs experiments.

    Attributes:
        ask: Sends one question.
        model: The model that is asked for.
        seed: Of the run: prompts and order follow from it.
        tries: Trials of an experiment, unless it asks for fewer.
        among_others: Whether others may use the engine meanwhile.
    """

    ask: Ask
    model: str
    seed: str
    tries: int
    among_others: bool = False

    async def experiment(self, case: Case, *, tries: int | None = None, closing: bool = False) -> Judgement:
        """Run one experiment, and judge it; `closing` as in `plan`."""
        observations = [
            await self._observe(case, step) for step in plan(case, tries or self.tries, seed=self.seed, closing=closing)
        ]
        return judge(observations, counted_only=case.counted_only, among_others=self.among_others)

    async def _observe(self, case: Case, step: Step) -> Observation:
        return observation(step, await self.ask(question(case, step, model=self.model, seed=self.seed)))


def observation(step: Step, reply: Reply) -> Observation:
    """What a reply shows."""
    told = read(reply.content, streamed=reply.streamed)
    return Observation(
        step,
        reply.status,
        told.complete,
        told.prompt_tokens,
        told.cached_tokens,
        reply.counted_tokens,
        reply.seconds,
    )
