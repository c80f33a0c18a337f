"""The catalogue: one data file for each engine, beside this module. What the files may hold is in `facts`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pydantic import ValidationError

from cachescope.api.documents import faults
from cachescope.engines.facts import EngineType, Facts


@cache
def facts(engine: EngineType) -> Facts:
    """All that is known of an engine.

    Raises:
        RuntimeError: Its data file is not there, or not of the described shape.
    """
    name = file_name(engine)
    found = files(__name__).joinpath(name)
    if not found.is_file():
        raise RuntimeError(f"{name} is missing from the installed package; install it anew")
    known = parsed(found.read_text("utf-8"), name)
    if known.engine is not engine:
        raise RuntimeError(f"{name} speaks of {known.engine.value}; install the package anew")
    return known


def parsed(text: str, name: str) -> Facts:
    """The facts in a data file.

    Args:
        text: The file, JSON.
        name: What errors call it.

    Raises:
        RuntimeError: It is not of the described shape; every fault is named.
    """
    try:
        return Facts.model_validate_json(text)
    except ValidationError as error:
        raise RuntimeError(f"{name} is no catalogue ({faults(error)}); correct these fields") from error


def file_name(engine: EngineType) -> str:
    """The data file of an engine."""
    return f"{engine.value.lower().replace('.', '-')}.json"
