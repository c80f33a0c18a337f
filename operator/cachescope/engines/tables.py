"""Which routes clients may reach of each engine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cachescope.engines import openai_routes, vllm
from cachescope.engines.facts import EngineType
from cachescope.engines.routes import Route

Table = Mapping[tuple[str, str], Route]
"""Routes by method and path."""

TABLES: Final[Mapping[EngineType, Table]] = MappingProxyType(
    {engine: vllm.ROUTES if engine is EngineType.VLLM else openai_routes.routes_of(engine) for engine in EngineType}
)
KNOWN: Final = frozenset(place for table in TABLES.values() for place in table)
"""Methods and paths that some engine serves."""
