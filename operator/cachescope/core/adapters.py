"""LoRA adapters: the names that requests ask for them by, and how an engine's arguments declare them.

Rules:

- an adapter is declared in arguments alone, so that what an engine serves is what somebody wrote down, and what its guard digested;
- its name is no other model's of the pool: vLLM takes a name for the adapter first;
- its name is no type of a message's part either: vLLM gives a chat for the model itself to an adapter that is named like one of its
  parts, since adapters for images and audio are declared in that way;
- all of them stay in memory: vLLM reads one that it dropped again from its files, which may be others by then.

Read from vLLM 0.32.0: `entrypoints/launchers/cli_args.py`, `entrypoints/serve/engine/serving.py`, `lora/worker_manager.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from cachescope.core.errors import SpecError
from cachescope.core.front_doors import options

NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
MAX_NAME = 63
MOST_ADAPTERS = 32
"""Of one pool: a guard names each in the header that proves it, of which HTTP clients read 8,190 characters."""
RESERVED = (
    "audio",
    "file",
    "image",
    "input",
    "output",
    "reasoning",
    "redacted",
    "refusal",
    "summary",
    "text",
    "thinking",
    "tool",
    "video",
)
"""Beginnings of the types of a message's parts, up to their first underscore."""

ENABLE = "--enable-lora"
MODULES = "--lora-modules"
KEPT = "--max-cpu-loras"
BATCHED = "--max-loras"
_WRITTEN = "give it once, with one `name=/path` for each adapter"
OWN_OPTIONS = frozenset({ENABLE, f"--no-{ENABLE.removeprefix('--')}", MODULES, KEPT})
"""What `adapter_arguments` sets, and nobody else may."""


def is_name(name: str) -> bool:
    """Whether an adapter may be asked for by a name."""
    return len(name) <= MAX_NAME and name not in RESERVED and re.fullmatch(NAME, name, re.ASCII) is not None


def is_path(path: str) -> bool:
    """Whether the engine finds an adapter at a path: it is absolute, and nothing in it ends the path or makes JSON of it."""
    return path.startswith("/") and not {",", "="} & set(path)


def served_names(document: Mapping[str, Any]) -> list[str]:
    """What a ServingPool serves by name, its model first, whatever else is wrong with it; each name once.

    Args:
        document: The object as the API server has it.
    """
    spec = document.get("spec")
    model, adapters = _at(spec, "model", "name"), _at(spec, "engine", "adapters")
    names = [_at(item, "name") for item in adapters] if isinstance(adapters, list) else []
    good = [name for name in names if isinstance(name, str) and is_name(name)][:MOST_ADAPTERS]
    return list(dict.fromkeys([*([model] if isinstance(model, str) else []), *good]))


def adapter_arguments(paths: Mapping[str, str], args: Sequence[str]) -> list[str]:
    """The arguments that make an engine serve adapters, and keep all of them; none without any.

    Args:
        paths: Path of each adapter's folder, for which `is_path` holds, by the adapter's name.
        args: What the engine is told beside them.
    """
    if not paths:
        return []
    # The engine refuses to keep fewer than it may use at once.
    kept = max(len(paths), _number(args, BATCHED) or 0)
    return [ENABLE, KEPT, str(kept), MODULES, *(f"{name}={path}" for name, path in paths.items())]


def declared_adapters(args: Sequence[str]) -> dict[str, str]:
    """Path of each adapter that an engine's arguments declare, by its name.

    Raises:
        SpecError: They declare adapters in another way than `adapter_arguments`, or keep fewer than they declare.
    """
    places = [place for place, argument in enumerate(args) if _named(argument) == MODULES]
    if not places:
        return {}
    if len(places) > 1 or "=" in args[places[0]]:
        raise SpecError(f"{MODULES} is given twice, or in one word with its values; {_WRITTEN}")
    found = _modules(takewhile(lambda argument: not argument.startswith("-"), args[places[0] + 1 :]))
    kept, all_of_them = _number(args, KEPT) or _number(args, BATCHED) or 1, len(found)
    if kept < all_of_them:
        raise SpecError(f"the engine keeps {kept} of {all_of_them} adapters, and reads others again; set {KEPT} {all_of_them}")
    return found


def _at(value: Any, *path: str) -> Any:  # noqa: ANN401 - any JSON
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _modules(values: Iterable[str]) -> dict[str, str]:
    found = list(map(_module, values))
    if not found or len(dict(found)) < len(found):
        raise SpecError(f"{MODULES} names an adapter twice, or none; {_WRITTEN}")
    return dict(found)


def _module(value: str) -> tuple[str, str]:
    name, _, path = value.partition("=")
    if not (is_name(name) and is_path(path)):
        raise SpecError(f"{MODULES} {value} is no `name=/path` with a name that an adapter may have; declare it in the pool")
    return name, path


def _number(args: Sequence[str], option: str) -> int | None:
    """The value of an option, of several the last; `None` where there is none that counts."""
    values = [found.value for found in options(args) if found.name == option]
    return int(values[-1]) if values and values[-1] and values[-1].isdecimal() else None


def _named(argument: str) -> str:
    """The option that an argument is, or nothing."""
    return next((option.name for option in options([argument])), "")
