"""Who owns which fields of an object, read from and written as `metadata.managedFields`.

Rules:

- guarded is what an object does: every top-level field but metadata, status, and the lists of a ServiceAccount that platforms fill;
- surplus is what somebody owns and we do not want: guarded fields, and of our own fields the metadata too; who applies what we want
  owns it with us, and that is peace, whether the API server counts him or us as its owner;
- a map or a list that the API treats as one value (a Service's selector, a LabelSelector, rules) belongs to whoever changed it
  last: one that we want and no longer own may hold more than we want (`lost`), while a granular one shows what was added;
- the number of replicas is never surplus (autoscalers and `kubectl scale` set it), nor is the mark of `kubectl rollout restart`;
- writes to the subresources `status` and `scale` are nobody's edits.

Surplus of others is removed by taking it over: once it is in the set of what we applied, applying without it removes it, and the
API server fills in its defaults. That is how `kubectl` itself moves from client-side to server-side apply (package `csaupgrade`
of client-go), and it changes an object once, not twice.

Source: the format `FieldsV1` of structured-merge-diff; `.` marks a node itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

Path = tuple[str, ...]
Fields = Mapping[str, Any]

_UNGUARDED: Final = frozenset({"f:apiVersion", "f:kind", "f:metadata", "f:status", "f:secrets", "f:imagePullSecrets"})
_ANNOTATIONS: Final = ("f:spec", "f:template", "f:metadata", "f:annotations")
_OTHERS_MAY: Final = frozenset({("f:spec", "f:replicas"), (*_ANNOTATIONS, "f:kubectl.kubernetes.io/restartedAt")})
_UNNAMED: Final = frozenset({"f:apiVersion", "f:kind"})
_SUBRESOURCES: Final = frozenset({"status", "scale"})
_AUTOSCALER: Final = "kube-controller-manager"


def surplus(live: Mapping[str, Any], manager: str, desired: Mapping[str, Any]) -> bool:
    """Whether somebody, ourselves included, owns what we do not want (any more)."""
    ours = (path for path in _unwanted(owned_fields(live, manager), desired) if path[0] not in _UNNAMED)
    return any(path not in _OTHERS_MAY for path in ours) or bool(foreign_fields(live, manager, desired))


def foreign_fields(live: Mapping[str, Any], manager: str, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Guarded fields that others own and we do not want, as one tree.

    Args:
        live: The object.
        manager: Our field manager.
        desired: What we apply.
    """
    found: dict[str, Any] = {}
    for entry in _entries(live):
        if _is(entry, manager) or entry.get("subresource") in _SUBRESOURCES:
            continue
        fields = entry.get("fieldsV1") or {}
        guarded = {name: value for name, value in fields.items() if name not in _UNGUARDED}
        for path in _unwanted(guarded, _with_text(desired)):
            # An empty map of annotations is what a removed restart mark leaves behind.
            if path not in _OTHERS_MAY and path != _ANNOTATIONS:
                _copy(path, fields, found)
    return found


def lost(live: Mapping[str, Any], manager: str, desired: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """Maps and lists of one value that we want and do not own (any more): as they are, as we want them, and their field.

    A granular one has its parts in the set of whoever owns some of it; one of one value never has any. What nobody owns counts as
    one value too: nobody's record would show an addition to it.

    Args:
        live: The object; it holds all that we want.
        manager: Our field manager.
        desired: What we apply.
    """
    others: dict[str, Any] = {}
    for entry in _entries(live):
        if not _is(entry, manager) and entry.get("subresource") not in _SUBRESOURCES:
            others = _union(others, entry.get("fieldsV1") or {})
    # Metadata is never one value, and nobody owns it where it is no more than a name.
    return _lost(live, desired, {"f:metadata": {}, **owned_fields(live, manager)}, others)


def owned_fields(live: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """All that a manager owns, as one tree; empty when it has never applied the object."""
    merged: dict[str, Any] = {}
    for entry in _entries(live):
        if _is(entry, manager):
            merged = _union(merged, entry.get("fieldsV1") or {})
    return merged


def taken_over(live: Mapping[str, Any], manager: str, desired: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The managed fields under which everything foreign is the manager's, applied.

    Args:
        live: The object.
        manager: Our field manager.
        desired: What we apply.
    """
    foreign, api_version = foreign_fields(live, manager, desired), desired["apiVersion"]
    fields = _union(owned_fields(live, manager), foreign)
    ours = {"manager": manager, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields}
    others = (_without(entry, foreign) for entry in _entries(live) if not _is(entry, manager))
    return [ours, *(entry for entry in others if entry.get("fieldsV1"))]


def scaled(live: Mapping[str, Any]) -> bool:
    """Whether an autoscaler owns the number of replicas.

    That lasts after the autoscaler is gone, until somebody else sets another number (`kubectl scale`).
    """
    return any(
        entry.get("manager") == _AUTOSCALER
        and entry.get("subresource") == "scale"
        and "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
        for entry in _entries(live)
    )


def _entries(live: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    entries: Iterable[Mapping[str, Any]] = live["metadata"].get("managedFields") or ()
    return entries


def _is(entry: Mapping[str, Any], manager: str) -> bool:
    # What is under our name and was not applied is not removed by applying without it: it counts as foreign.
    return entry.get("manager") == manager and entry.get("operation") == "Apply"


def _with_text(desired: Mapping[str, Any]) -> Mapping[str, Any]:
    # The API server remembers the owner of a Secret's text, and keeps the text as data.
    return {**desired, "stringData": desired.get("data")} if desired.get("kind") == "Secret" else desired


def _unwanted(fields: Fields, wanted: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401 - any JSON value
    for mark, inner in fields.items():
        if mark == ".":
            continue
        there = _step(wanted, mark)
        if there is None:
            yield from _leaves(inner, (*path, mark))
        else:
            yield from _unwanted(inner, there, (*path, mark))


def _lost(live: Any, wanted: Any, ours: Fields, others: Fields) -> Iterator[tuple[Any, Any, str]]:  # noqa: ANN401 - any JSON value
    for mark, part in _containers(wanted, {**others, **ours}):
        found, mine, theirs = _step(live, mark), ours.get(mark), others.get(mark) or {}
        if mine is None and not _parted(theirs):
            if found or part:
                yield found, part, mark.partition(":")[2]
        elif mine is None or _parted(mine):
            yield from _lost(found, part, mine or {}, theirs)


def _containers(wanted: Any, marks: Fields) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any JSON value
    """Maps and lists in what we want, by their marks; items of a list that is one value have none."""
    if isinstance(wanted, Mapping):
        yield from ((f"f:{name}", part) for name, part in wanted.items() if isinstance(part, (Mapping, list, tuple)))
        return
    for mark in marks:
        if mark.startswith("k:") and (item := _step(wanted, mark)) is not None:
            yield mark, item


def _parted(fields: Fields) -> bool:
    return bool(fields.keys() - {"."})


def _step(wanted: Any, mark: str) -> Any:  # noqa: ANN401 - any JSON value
    kind, _, name = mark.partition(":")
    if kind == "f":
        return wanted.get(name) if isinstance(wanted, Mapping) else None
    items = wanted if isinstance(wanted, (list, tuple)) else ()
    value = json.loads(name)
    if kind == "k":
        # Parts of a key that we leave to the API's default (`protocol`) are no difference.
        return next((item for item in items if all(item.get(key, part) == part for key, part in value.items())), None)
    return value if kind == "v" and value in items else None


def _leaves(fields: Fields, path: Path) -> Iterator[Path]:
    children = [(name, value) for name, value in fields.items() if name != "."]
    if not children:
        yield path
    for name, value in children:
        yield from _leaves(value, (*path, name))


def _copy(path: Path, source: Fields, target: dict[str, Any]) -> None:
    for name in path:
        source, target = source[name], target.setdefault(name, {})
        # Without its own mark a list item would not be removed with its fields.
        if "." in source:
            target["."] = {}


def _union(left: Fields, right: Fields) -> dict[str, Any]:
    return {name: _union(left.get(name, {}), right.get(name, {})) for name in {**left, **right}}


def _without(entry: Mapping[str, Any], foreign: Fields) -> dict[str, Any]:
    if entry.get("subresource") in _SUBRESOURCES:
        return dict(entry)
    return {**entry, "fieldsV1": _difference(entry.get("fieldsV1") or {}, foreign)}


def _difference(fields: Fields, removed: Fields) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for name, value in fields.items():
        rest = _difference(value, removed[name]) if name in removed else dict(value)
        if name not in removed or set(rest) - {"."}:
            left[name] = rest
    return left
