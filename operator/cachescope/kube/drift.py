"""Whether an object is still what we apply: pure, so that a steady state costs no request.

Rules:

- what we want must be contained in what is there; what the API server or an admission webhook adds is no drift;
- absent, empty text, empty list and empty map are equal; `false` and `0` are not absent;
- a map or a list that the API treats as one value, and that somebody wrote since we did, is compared whole (`ownership.lost`):
  a label more in a selector is another selector, also when ours are in it;
- list items are matched by their key where the API merges them by one, else by position and number;
- quantities are compared by value (`500m` is `0.5`), and only where the API has quantities;
- a field that somebody put where only we write, and that we do not want, is drift, and so is one that we no longer want
  (`ownership`); so is an object that does not know us: its record of owners was emptied, and additions would not be seen;
- what an autoscaler owns is left to it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.ownership import foreign_fields, lost, owned_fields, scaled, surplus
from cachescope.kube.rest import Document

Manifest = Mapping[str, Any]

_NAMED_BY_PATH: Final = frozenset({"apiVersion", "kind"})
_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_DEFAULTS: Final[Mapping[tuple[str, str], Any]] = {
    ("fieldRef", "apiVersion"): "v1",
    ("ports", "protocol"): "TCP",
    ("resourceFieldRef", "divisor"): "0",
    ("roleRef", "apiGroup"): "rbac.authorization.k8s.io",
    ("serviceAccountToken", "expirationSeconds"): 3600,
    ("subjects", "apiGroup"): "rbac.authorization.k8s.io",
}
"""What the API server fills in inside of values that it compares whole, by the field around it.

One that is missing here costs a write whenever somebody else forces such a value to be the same as ours; nothing else.
"""
_QUANTITIES: Final = frozenset({"limits", "requests", "sizeLimit", "storage", "divisor"})
_SCALED: Final = frozenset({"Deployment", "ServingPool"})
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{unit: Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
}


def drifted(live: Document, desired: Manifest, manager: str = FIELD_MANAGER) -> bool:
    """Whether an object must be written.

    Args:
        live: As the API server has it, with its `managedFields`.
        desired: As we would apply it.
        manager: Our field manager.
    """
    wanted = as_applied(live, desired, manager)
    named = {name: value for name, value in wanted.items() if name not in _NAMED_BY_PATH}
    kept = contains(live, named) and bool(owned_fields(live, manager))
    kept = kept and all(_whole(*pair) for pair in lost(live, manager, named))
    return not kept or surplus(live, manager, wanted) or unchangeable(live, desired)


def foreign(live: Document, manager: str, desired: Manifest) -> bool:
    """Whether somebody else owns a field where only we write, and that we do not want; see `ownership` for what others may."""
    return bool(foreign_fields(live, manager, as_applied(live, desired, manager)))


def unchangeable(live: Document, desired: Manifest) -> bool:
    """Whether the API server refuses the change for good, so that the object must be made anew."""
    kind, wanted = desired["kind"], as_applied(live, desired)
    if kind == "ControllerRevision":
        # Its content is opaque to the API server, which adds nothing to it: what is left over from before is a difference too.
        return not _same(live.get("data"), wanted.get("data"))
    if kind == "RoleBinding":
        return not contains(live.get("roleRef"), wanted["roleRef"])
    if kind == "Secret":
        kept = _same(live.get("data"), wanted.get("data")) and bool(wanted.get("immutable"))
        return (bool(live.get("immutable")) and not kept) or live.get("type", "Opaque") != wanted.get("type", "Opaque")
    return False


def as_applied(live: Document | None, desired: Manifest, manager: str = FIELD_MANAGER) -> dict[str, Any]:
    """The manifest as it is sent.

    A Secret's text is sent as data. Replicas are left out where an autoscaler sets them; where we no longer set them and nobody
    else does yet, those that are there are sent, because without them the API server would go back to one.
    """
    wanted = dict(desired)
    if text := wanted.pop("stringData", None):
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in text.items()}
        wanted["data"] = {**wanted.get("data", {}), **encoded}
    if live is not None and wanted.get("kind") in _SCALED:
        wanted["spec"] = {name: value for name, value in wanted["spec"].items() if name != "replicas"} | _replicas(
            live, wanted, manager
        )
    return wanted


def _replicas(live: Document, wanted: Manifest, manager: str) -> dict[str, Any]:
    if "replicas" in wanted["spec"]:
        # An autoscaler neither stops all of them nor starts the first one: that is decided by who applies.
        between = bool(wanted["spec"]["replicas"]) == bool(live["spec"].get("replicas")) or wanted["kind"] == "Deployment"
        return {} if scaled(live) and between else {"replicas": wanted["spec"]["replicas"]}
    ours = "f:replicas" in owned_fields(live, manager).get("f:spec", {})
    return {"replicas": live["spec"]["replicas"]} if ours else {}


def contains(live: Any, wanted: Any, field: str = "", *, quantity: bool = False) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a JSON value holds all of another one.

    Args:
        live: The value that is there.
        wanted: The value that must be in it.
        field: Name of the field that both are in.
        quantity: Whether they are quantities, or a map of them.
    """
    if wanted in (None, "", [], {}) and not isinstance(wanted, Mapping):
        return live in (None, "", [], {})
    quantity = quantity or field in _QUANTITIES
    if isinstance(wanted, Mapping):
        there = live or {}
        return isinstance(there, Mapping) and all(contains(there.get(k), v, k, quantity=quantity) for k, v in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return isinstance(live, (list, tuple)) and _contains_items(live, wanted, field)
    return _equal_quantities(live, wanted) if quantity else type(live) is type(wanted) and live == wanted


def _whole(live: Any, wanted: Any, field: str) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a value is what we want and no more, but for defaults; an empty map is not absent: it selects everything."""
    if isinstance(live, Mapping) and isinstance(wanted, Mapping):
        pairs = (
            (name, *(fields.get(name, _DEFAULTS.get((field, name))) for fields in (live, wanted))) for name in {**live, **wanted}
        )
        return all(_whole(there, part, name) for name, there, part in pairs)
    if live and wanted and isinstance(live, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return len(live) == len(wanted) and all(_whole(there, part, field) for there, part in zip(live, wanted, strict=True))
    return isinstance(live, Mapping) == isinstance(wanted, Mapping) and contains(live, wanted, field)


def _same(live: object, wanted: object) -> bool:
    return json.dumps(live or {}, sort_keys=True) == json.dumps(wanted or {}, sort_keys=True)


def _contains_items(live: Sequence[Any], wanted: Sequence[Any], field: str) -> bool:
    key = _KEYS.get(field)
    if key is None or not all(key in item for item in [*live, *wanted]):
        return len(live) == len(wanted) and all(contains(*pair) for pair in zip(live, wanted, strict=True))
    there = {item[key]: item for item in live}
    return len(there) == len(live) and all(contains(there.get(item[key]), item) for item in wanted)


def _equal_quantities(live: Any, wanted: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return _number(live) == _number(wanted)
    except InvalidOperation:
        return str(live) == str(wanted)


def _number(quantity: Any) -> Decimal:  # noqa: ANN401 - any JSON value
    text = str(quantity)
    suffix = next((unit for unit in _SUFFIXES if text.endswith(unit)), "")
    return Decimal(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, Decimal(1))
