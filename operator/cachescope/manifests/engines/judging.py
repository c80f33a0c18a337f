"""What is wrong with the arguments and variables that users give an engine beside the platform's: alike for all but vLLM.

vLLM has rules of its own (`core/front_doors`), since its guard also judges the process that it finds itself in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cachescope.core.front_doors import options
from cachescope.manifests.engines.launch import Adapters, Options, Serving

Problems = Callable[[Serving, Mapping[str, str]], Iterator[str]]


def judged(rules: Options, adapters: Adapters) -> Problems:
    """The problems of an engine whose guard runs beside it.

    Args:
        rules: What nobody else may set.
        adapters: How it serves adapters.
    """

    def problems(serving: Serving, env: Mapping[str, str]) -> Iterator[str]:
        for name in dict.fromkeys(option.name for option in options(serving.args)):
            yield from _option_problems(rules, name)
        for name in sorted(env):
            if name.startswith(rules.variables):
                yield f"{name} is an option in disguise; give it in engine.args, where it is checked"
        if serving.guarded_inside:
            yield "the engine cannot load the guard; set guard.mode Sidecar"
        if serving.adapters and not adapters.asked_as:
            yield adapters.why_not

    return problems


def _option_problems(rules: Options, name: str) -> Iterator[str]:
    if name in rules.refused:
        yield f"{name} {rules.refused[name]}"
    elif name in rules.owned:
        yield f"{name} is set by the platform; remove it from engine.args"
    elif rules.abbreviated and (whole := _whole(rules, name)):
        yield f"{name} abbreviates {whole}; write options in full"


def _whole(rules: Options, name: str) -> str | None:
    """What an option could be the beginning of, as argparse reads it."""
    guarded = sorted({*rules.owned, *rules.refused})
    return next((whole for whole in guarded if len(name) > 2 and whole.startswith(name)), None)
