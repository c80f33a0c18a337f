"""Which connectors an engine's settings name, as an option's value, in JSON at any depth, or after a dot.

A connector whose name cannot be read has a name of its own, so that it is never taken for none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from cachescope.engines.facts import ConnectorOption, Facts
from cachescope.engines.settings_of import Given

UNREADABLE = "unreadable"
"""Stands for a connector whose name cannot be read."""
_MODULE = "kv_connector_module_path"


def connectors(facts: Facts, found: Iterable[Given]) -> tuple[str, ...]:
    """Names of the connectors that settings name, each once; `UNREADABLE` for one whose name cannot be read."""
    rules = {rule.option: rule for rule in facts.connector_options}
    named = [name for item in found if item.name in rules for name in _connectors(rules[item.name], item)]
    return tuple(dict.fromkeys(named))


def _connectors(rule: ConnectorOption, item: Given) -> Iterator[str]:
    if rule.key is not None:
        yield from _keyed(rule.key, item)
    elif rule.connector is not None:
        yield rule.connector
    else:
        yield f"{rule.prefix}{item.value}" if item.value else UNREADABLE


def _keyed(key: str, item: Given) -> Iterator[str]:
    """The connectors that a JSON value names, at any depth, or a dotted key."""
    if item.key:
        last = item.key.rstrip("+").replace("-", "_").rpartition(".")[2]
        if last in {key, _MODULE}:
            yield (item.value or UNREADABLE) if last == key else f"code at {item.value}"
            return
        if key not in (item.value or ""):
            return
    try:
        named = list(_at_any_depth(json.loads(item.value or ""), key))
    except (ValueError, RecursionError):
        named = []
    yield from named or (UNREADABLE,)


def _at_any_depth(value: Any, key: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        if key in value:
            yield value[key] if isinstance(value[key], str) and value[key] else UNREADABLE
        if _MODULE in value:
            yield f"code at {value[_MODULE]}"
        for part in value.values():
            yield from _at_any_depth(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from _at_any_depth(part, key)
