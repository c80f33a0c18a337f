"""What a pool says of its engine, as far as isolation rests on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ConnectorUse:
    """A connector that a pool declares, and the version of its package where it has one."""

    name: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What a pool says of its engine.

    Attributes:
        version: Version of the engine.
        args: Its arguments, without the program.
        env: Its environment.
        connectors: What keeps or moves blocks beside its cache; those that arguments name come to these.
        hash_algorithm: How it shall hash blocks; without one as the platform sets it.
        routes: Paths that the pool must serve; without any, those that can be.
    """

    version: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    connectors: tuple[ConnectorUse, ...] = ()
    hash_algorithm: str | None = None
    routes: tuple[str, ...] | None = None
