"""What it takes to start an engine, whichever it is: what a pool asks of it, and what the operator has to know of it.

Rules:

- an engine is told everything by its command line, its variables, and at most a file that the pod mounts;
- the user's arguments come first and the platform's last, and what the platform sets nobody else may;
- what nobody may set, and what the platform has to, the catalogue says (`cachescope.engines`); an engine's file adds how it is told
  of its model, names, address and adapters, and where people declare those;
- with `reuse` off nothing of one request is found by another, whichever tenant sends it;
- nothing outlives the process: options that keep a cache on a disk or in a store are refused, whatever the pool shares.

Each engine's file names the source that its options were read from. The API accepts an engine once the operator can do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cachescope.engines import settings_of
from cachescope.engines.catalogue import facts
from cachescope.engines.facts import EngineType, Mode

LOOPBACK: Final = "127.0.0.1"
FILES_FOLDER: Final = "/etc/cachescope/engine"
"""Where an engine finds the files that it is told of."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_REUSING: Final = frozenset({Mode.SHARED, Mode.PER_TENANT})


class Drain(StrEnum):
    """How an engine's running requests get their time before it ends."""

    BY_OPTION = "an option of its own says how long it may take"
    ON_SIGNAL = "it ends them by itself once it is told to stop"
    BEFORE_SIGNAL = "it cuts them, so it is told to stop only after that time"


class Instead(StrEnum):
    """What people do instead of giving an option that the command line gives by itself."""

    MODEL = "declare it in model.source, and remove it here"
    NAME = "declare it in model.name, and remove it here"
    ADAPTERS = "declare adapters in engine.adapters, and remove it here"
    NOTHING = "remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a pool asks of its engine.

    Attributes:
        model: Path of the model's file or folder in the container.
        name: What clients send as `model`.
        host: Address to listen on.
        port: Port to listen on.
        guarded_inside: Whether the guard is a part of the engine's process.
        reuse: Whether a request may use what an earlier one computed.
        gpus: GPUs of the pod; 0 when it asks for none.
        adapters: Path of each adapter's folder, by its name.
        args: The user's own arguments.
    """

    model: str
    name: str
    host: str
    port: int
    guarded_inside: bool = False
    reuse: bool = True
    gpus: int = 0
    adapters: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adapters:
    """How an engine serves adapters.

    Attributes:
        asked_as: What a client's request names one by, with `{model}` and `{adapter}` in it; empty where none are served.
        why_not: Why none are, and what to do instead.
    """

    asked_as: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What the operator knows of an engine.

    Attributes:
        type: Its name in `spec.engine.type`.
        source: Where its options were read.
        tried: Whether a process of it was started with such a command line; otherwise it is rendered, not run.
        program: What starts it; empty where the image's own entry point does.
        arguments: Its arguments, the user's among them.
        owned: Options that its arguments give by themselves, those of the catalogue aside, each with what people do instead.
        own_problems: What is wrong with what it is asked for, beside what holds for all: one sentence each, with the remedy.
        variables: Variables that a user may change.
        files: Files of `FILES_FOLDER` that the arguments name, by their names.
        health: Path that answers 200 once it serves.
        metrics: Path of its Prometheus metrics on the same port; empty where it has none.
        asks_itself: Whether its image has a `python3` that can ask for its health; otherwise the guard beside it is asked.
        drain: How its running requests get their time.
        drain_option: The option that takes seconds, with `Drain.BY_OPTION`.
        adapters: How it serves adapters.
        takes_guard: Whether the guard can be a part of its process.
    """

    type: EngineType
    source: str
    tried: bool = False
    program: tuple[str, ...]
    arguments: Callable[[Serving], list[str]]
    owned: Mapping[str, Instead] = field(default_factory=dict)
    own_problems: Callable[[Serving], Iterator[str]] = lambda _serving: iter(())
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Callable[[Serving], Mapping[str, str]] = lambda _serving: _NOTHING
    health: str = "/health"
    metrics: str = "/metrics"
    asks_itself: bool = True
    drain: Drain
    drain_option: str = ""
    adapters: Adapters
    takes_guard: bool = False

    def problems(self, serving: Serving, env: Mapping[str, str]) -> Iterator[str]:
        """What is wrong with what it is asked for and with the user's environment: one sentence each, with the remedy."""
        known, modes = facts(self.type), modes_of(serving)
        for problem in settings_of.problems(known, serving.args, env, self.owned):
            if modes & set(problem.modes):
                yield problem.sentence
        if serving.guarded_inside and not self.takes_guard:
            yield "the engine cannot load the guard; set guard.mode Sidecar"
        if serving.adapters and not self.adapters.asked_as:
            yield self.adapters.why_not
        if not serving.reuse and known.stays_on:
            yield known.stays_on
        yield from self.own_problems(serving)

    def fixed(self, serving: Serving) -> dict[str, str]:
        """Variables that nobody may change."""
        found = demanded(self.type, serving)
        return {item.setting: item.value or "" for item in found if not item.setting.startswith("-")}

    def shutdown(self, seconds: int) -> list[str]:
        """The arguments that give running requests their time.

        Args:
            seconds: How long they may take.
        """
        return [self.drain_option, str(seconds)] if self.drain is Drain.BY_OPTION else []

    def pre_stop_seconds(self, *, removal: int, drain: int) -> int:
        """How long the engine is left alone before it is told to stop.

        Args:
            removal: Seconds until no gateway routes to it any more.
            drain: Seconds that its running requests may take after that.
        """
        return removal + drain if self.drain is Drain.BEFORE_SIGNAL else removal


def modes_of(serving: Serving) -> frozenset[Mode]:
    """The modes in which a pool may be that asks for this."""
    return _REUSING if serving.reuse else frozenset({Mode.DISABLED})


def demanded(engine: EngineType, serving: Serving) -> Iterator[settings_of.PlatformSetting]:
    """What the catalogue demands of the platform, in its order."""
    for setting in settings_of.overrides(facts(engine), (), _NOTHING):
        if modes_of(serving) & set(setting.modes):
            yield setting


def demanded_options(engine: EngineType, serving: Serving) -> list[str]:
    """The same, as far as it is options: as they stand in a command line."""
    found = [item for item in demanded(engine, serving) if item.setting.startswith("-")]
    return [word for item in found for word in (item.setting, item.value) if word is not None]


def parallel(option: str, serving: Serving, *, others: frozenset[str] = frozenset()) -> list[str]:
    """The option that spreads a model over the pod's GPUs, unless the user spreads it in another way.

    Args:
        option: The option.
        serving: What is asked.
        others: Options by which a user does.
    """
    chosen = {argument.partition("=")[0].replace("_", "-") for argument in serving.args}
    return [] if serving.gpus < 2 or chosen & {option.replace("_", "-"), *others} else [option, str(serving.gpus)]
