"""A stub engine behind a gateway of a few lines: what a live run asks, and what it would see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from cachescope.core.probes import Pair, Prober
from cachescope.core.types import Salt
from cachescope.engines.vllm import ROUTES
from cachescope.probe import prompts
from cachescope.probe.cases import Identity
from cachescope.probe.live import Shown, examine
from cachescope.probe.questions import Question
from cachescope.probe.running import Reply
from e2e.stub_engine import asking
from e2e.stub_engine.asking import CHAT, COMPLETION, Asked
from e2e.stub_engine.leaks import Leaks
from e2e.stub_engine.prefix_cache import PrefixCache

MODEL = "tiny"
SERVED = (CHAT, COMPLETION)
WHO = "authorization"
_CHOICES = frozenset({"cache_salt", "extra_key"})


def identities(pair: Pair) -> tuple[Identity, Identity]:
    """The two of a pair, by headers that `ProbedEngine` understands."""
    return Identity({WHO: f"{pair.name} 0"}), Identity({WHO: f"{pair.name} 1"})


@dataclass
class ProbedEngine:
    """One process of a pool, with its gateway.

    Attributes:
        leaks: What it does wrong with salts.
        says: What its usage says of what was found; `None` for nothing.
        counted: Whether its counter can be read.
        trusted: Fields and headers by which the gateway lets clients choose a cache.
        noise: By how much others let the counter rise meanwhile.
        statuses: Routes that are answered with a status alone, by path.
        salted: What is made of a salt on its way.
        asked: Questions that it got.
    """

    leaks: Leaks = field(default_factory=Leaks)
    says: Callable[[int], int | None] = lambda found: found
    counted: bool = True
    trusted: frozenset[str] = frozenset()
    noise: Callable[[], int] = lambda: 0
    statuses: dict[str, int] = field(default_factory=dict)
    salted: Callable[[str], str] = lambda salt: salt
    asked: list[Question] = field(default_factory=list)
    cache: PrefixCache = field(default_factory=PrefixCache)

    async def run(self, seed: str = "seed") -> Shown:
        """Ask it, as the operator does."""
        return await examine(self.ask, ROUTES.values(), identities, model=MODEL, seed=seed)

    async def ask(self, question: Question) -> Reply:
        """Implements `Ask`."""
        self.asked.append(question)
        status = self.statuses.get(question.path, 200 if question.path in SERVED else 404)
        if status != 200:
            return Reply(status, b"{}")
        asked = self._understood(question)
        before, found = self.cache.hits, 0
        for _ in range(asked.answers):
            found = self.cache.look_up(asked.salt, asked.prompt)
            self.cache.fill(asked.salt, asked.prompt)
        rise = self.cache.hits - before + self.noise() if self.counted else None
        return Reply(200, self._content(asked, found), asked.stream, rise)

    def _understood(self, question: Question) -> Asked:
        """What the engine takes a question for, after the gateway and its own leaks."""
        kept = {name: value for name, value in question.body.items() if name in self.trusted or name not in _CHOICES}
        body = {"cache_salt": self.salted(_salt(question.headers[WHO])), **kept}
        headers = [(name.encode(), value.encode()) for name, value in question.headers.items() if name in self.trusted]
        return self.leaks.applied(asking.read(question.path, json.dumps(body).encode(), (MODEL,)), headers)

    def _content(self, asked: Asked, found: int) -> bytes:
        details = {"cached_tokens": self.says(found) if asked.tells_cached else 0}
        document = json.dumps({"id": "1", "usage": {"prompt_tokens": len(asked.prompt), "prompt_tokens_details": details}})
        return f"data: {document}\n\ndata: [DONE]\n\n".encode() if asked.stream else document.encode()


def _salt(who: str) -> Salt:
    name, _, one = who.partition(" ")
    prober = Prober("pool", "boot", Pair[name], int(one))
    return prober.salt(Salt(prompts.salt("made", prober.tenant_uid)))
