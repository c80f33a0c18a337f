"""What an engine's container asks for: the resources as written, and the GPUs among them."""

from __future__ import annotations

import re

from cachescope.api.pools import Gpus, ServingPool
from cachescope.core.errors import SpecError
from cachescope.manifests.parts import Manifest

_KINDS = ("requests", "limits")
_QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?\Z")
_OF_ANY_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})


def engine_resources(pool: ServingPool) -> Manifest:
    """Requests and limits of the engine container.

    Raises:
        SpecError: They hold something else, or another count of GPUs than `gpus`.
    """
    others = sorted(set(pool.spec.resources) - set(_KINDS))
    if others:
        raise SpecError(f"{_where(pool)} holds {', '.join(others)}; set requests and limits only")
    asked = {kind: _quantities(pool, kind) for kind in _KINDS}
    if pool.spec.gpus:
        for kind in _KINDS:
            asked[kind] = _with_gpus(pool, kind, asked[kind], gpus=pool.spec.gpus)
    return {kind: quantities for kind, quantities in asked.items() if quantities}


def without_devices(resources: Manifest) -> Manifest:
    """The same for a container that runs before the engine: what it asks for adds nothing to the pod's sum, and no GPU idles."""
    kept = {kind: {name: value for name, value in items.items() if name in _OF_ANY_CONTAINER} for kind, items in resources.items()}
    return {kind: items for kind, items in kept.items() if items}


def _quantities(pool: ServingPool, kind: str) -> dict[str, str]:
    written = pool.spec.resources.get(kind) or {}
    if not isinstance(written, dict):
        raise SpecError(f"{_where(pool)}.{kind} is no mapping; write names and quantities, such as `memory: 8Gi`")
    for name, value in written.items():
        if isinstance(value, bool) or not _QUANTITY.match(str(value)):
            raise SpecError(f"{_where(pool)}.{kind}.{name} is {value!r}, which is no quantity; write one such as 2, 500m or 8Gi")
    return {name: str(value) for name, value in sorted(written.items())}


def _with_gpus(pool: ServingPool, kind: str, quantities: dict[str, str], *, gpus: Gpus) -> dict[str, str]:
    written = quantities.get(gpus.resource_name, str(gpus.count))
    if written != str(gpus.count):
        where = f"{_where(pool)}.{kind}.{gpus.resource_name}"
        raise SpecError(f"{where} is {written} and gpus.count is {gpus.count}; remove the one under resources")
    return {**quantities, gpus.resource_name: str(gpus.count)}


def _where(pool: ServingPool) -> str:
    return f"ServingPool {pool.name!r}: resources"
