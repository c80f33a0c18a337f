"""Any other engine that speaks OpenAI's API: its image's own entry point, with the user's arguments. The guard is beside it.

The arguments say where the platform's values go: `{model}`, `{name}`, `{host}` and `{port}`. The last two must be there, since an
engine that listens where it likes could be reached beside its guard. What its cache does is unknown: the platform cannot switch it
off, keeps nobody from a disk but the read-only root, and knows of no counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Serving

_NEEDED = ("{host}", "{port}")


def _arguments(serving: Serving) -> list[str]:
    values = {"{model}": serving.model, "{name}": serving.name, "{host}": serving.host, "{port}": str(serving.port)}
    return [_filled(argument, values) for argument in serving.args]


def _filled(argument: str, values: Mapping[str, str]) -> str:
    """The argument with its placeholders replaced; what a value holds is none."""
    for name, value in values.items():
        before, found, after = argument.partition(name)
        if found:
            return _filled(before, values) + value + _filled(after, values)
    return argument


def _problems(serving: Serving) -> Iterator[str]:
    for name in _NEEDED:
        if not any(name in argument for argument in serving.args):
            yield f"engine.args has no {name}, so the engine could listen elsewhere; say with it where the engine takes that"


ENGINE: Final = Engine(
    type=EngineType.CUSTOM,
    source="none: its own documentation",
    program=(),
    arguments=_arguments,
    own_problems=_problems,
    metrics="",
    asks_itself=False,
    drain=Drain.BEFORE_SIGNAL,
    adapters=Adapters(why_not="how a custom engine serves adapters is not known; merge each into a model, and give it a pool"),
)
