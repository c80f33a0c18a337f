"""What an engine offers: its routes, streams, counters, and what lets one request go without reuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cachescope.core.errors import ClusterError
from cachescope.engines.routes import Dialect
from cachescope.engines.vllm import ROUTES
from cachescope.probe.cases import Asking, Case, Identity
from cachescope.probe.judgement import Verdict
from cachescope.probe.questions import DIALECTS, STREAMED, Question, body
from cachescope.probe.running import Prober, Reply

CANDIDATES: Mapping[str, Dialect] = {path: route.dialect for (_, path), route in ROUTES.items() if route.dialect in DIALECTS}
"""Routes that reach a cache, under the paths that OpenAI-compatible engines give them."""
BYPASSES: Mapping[str, Mapping[str, object]] = {
    "cache_prompt: false": {"cache_prompt": False},
    "prompt_logprobs: 1": {"prompt_logprobs": 1},
}
"""Fields by which an engine may read nothing from its cache for one request: llama.cpp's, and a side effect in vLLM."""
_BYPASSED = {Verdict.ISOLATED: "reads nothing", Verdict.LEAKS: "no effect", Verdict.FAILED: "refused"}


class Target(Protocol):
    """An engine that can be asked."""

    async def ask(self, question: Question) -> Reply:
        """Send a question."""
        ...

    async def document(self, path: str) -> Mapping[str, Any] | None:
        """What it says at a path, if that is a JSON object."""
        ...

    async def counter(self) -> int | None:
        """Tokens that were found so far, if it counts them."""
        ...


@dataclass(frozen=True, slots=True)
class Features:
    """What an engine offers.

    Attributes:
        routes: What became of a plain request, by path: `Reply.outcome`.
        streams: Paths whose answers can be streamed.
        counter: Whether the engine counts the tokens that it finds.
        reported: The version that it reports; `None` if it reports none.
        bypasses: What each field of `BYPASSES` does.
    """

    routes: Mapping[str, int]
    streams: frozenset[str]
    counter: bool
    reported: str | None
    bypasses: Mapping[str, str] = field(default_factory=dict)

    @property
    def askings(self) -> tuple[Asking, ...]:
        """Every way to ask that the engine serves."""
        whole = [Asking(path, CANDIDATES[path]) for path, status in self.routes.items() if status == 200]
        streamed = [Asking(asking.path, asking.dialect, streamed=True) for asking in whole if asking.path in self.streams]
        return (*whole, *streamed)


async def first_model(target: Target) -> str:
    """The first model that an engine lists.

    Raises:
        ClusterError: It lists none.
    """
    listed = await target.document("/v1/models") or {}
    try:
        return str(listed["data"][0]["id"])
    except (LookupError, TypeError) as error:
        raise ClusterError("the engine lists no model at /v1/models; wait until it is ready, or name one with --model") from error


async def look(target: Target, model: str) -> Features:
    """See what an engine offers.

    Raises:
        ClusterError: It serves no route that can be asked.
    """
    routes = {path: (await _status(target, path, dialect, model))[0] for path, dialect in CANDIDATES.items()}
    streams = [path for path, dialect in CANDIDATES.items() if routes[path] == 200 and dialect in STREAMED]
    streamed = frozenset([path for path in streams if (await _status(target, path, CANDIDATES[path], model, streamed=True))[1]])
    if 200 not in routes.values():
        raise ClusterError(f"the engine answers none of {', '.join(routes)}; see its log, and whether it serves {model}")
    return Features(routes, streamed, await target.counter() is not None, await _version(target))


async def _status(target: Target, path: str, dialect: Dialect, model: str, *, streamed: bool = False) -> tuple[int, bool]:
    """What became of a plain request, and whether it was answered by a whole stream."""
    reply = await target.ask(Question(path, {}, body(dialect, model, "hello", streamed=streamed)))
    return reply.outcome, reply.outcome == 200 and reply.streamed


async def _version(target: Target) -> str | None:
    """As vLLM reports it; builds that others report, such as llama.cpp's, are no versions that somebody could declare."""
    found = (await target.document("/version") or {}).get("version")
    return found if isinstance(found, str) else None


async def bypasses(prober: Prober, asking: Asking, identity: Identity) -> Mapping[str, str]:
    """What each field of `BYPASSES` does on a route, for somebody who asks for his own prompt again."""
    found = {}
    for name, fields in BYPASSES.items():
        case = Case(f"bypass {name}", Asking(asking.path, asking.dialect, of_other=fields), (identity, identity))
        judged = await prober.experiment(case, tries=2)
        found[name] = _BYPASSED.get(judged.verdict, "no evidence")
    return found
