"""Somebody who asks without pause beside a test, one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import openai

from e2e.stack import client
from e2e.stack.client import Measured

END_SECONDS = 120
"""The client tries a request again for a while, each time for a minute at most."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: the prompt, and what was measured."""

    text: str
    measured: Measured


class Traffic(threading.Thread):
    """Asks for one text after the other until it is ended, or fails.

    Args:
        who: The client.
        texts: The prompts; without an end.
        extra: Further fields of the body.

    Attributes:
        ending: Set to end it.
    """

    def __init__(self, who: openai.OpenAI, texts: Iterable[str], **extra: object) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self._answers: list[Answer] = []
        self._fault: Exception | None = None
        self._who, self._texts, self._extra = who, texts, extra

    def run(self) -> None:
        """Implements `Thread`."""
        try:
            for text in self._texts:
                if self.ending.is_set():
                    return
                self._answers.append(Answer(text, client.chat(self._who, text, **self._extra)))
        except Exception as error:  # told to whoever looks at the answers
            self._fault = error

    @property
    def answers(self) -> list[Answer]:
        """All answers so far; raises as `check` does."""
        self.check()
        return list(self._answers)

    def check(self) -> None:
        """Raise if one request was not served.

        Raises:
            RuntimeError: It was not.
        """
        if self._fault is not None:
            raise RuntimeError("a client that asks beside the test was not served; see the gateway's log") from self._fault

    def cached(self, text: str, prompt_tokens: int) -> list[int]:
        """What was found of a prompt each time, by engines for which it has so many tokens."""
        found = [answer.measured for answer in self.answers if answer.text == text]
        return [measured.cached_tokens for measured in found if measured.prompt_tokens == prompt_tokens]


@contextmanager
def flowing(*traffics: Traffic) -> Iterator[None]:
    """Traffic until the end of the block.

    Raises:
        RuntimeError: Some of it was not served.
        TimeoutError: Some of it does not end.
    """
    for traffic in traffics:
        traffic.start()
    with ExitStack() as stack:
        stack.callback(_end, traffics)
        yield


def _end(traffics: Iterable[Traffic]) -> None:
    for traffic in traffics:
        traffic.ending.set()
    for traffic in traffics:
        traffic.join(END_SECONDS)
        if traffic.is_alive():
            raise TimeoutError("a client that asks beside the test does not end; look for a request without an answer")
        traffic.check()
