"""An API server in memory: versions, conflicts, and field ownership by a small server-side apply."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.kinds import KINDS
from cachescope.kube.rest import ConflictError, Document, NotFoundError, Rest

_PLURALS = frozenset(plural for _, plural in KINDS.values())


class FakeApi(Rest):
    """What the tests need of `Rest`, and a list of the requests that it got.

    Attributes:
        webhook: Changes every object that is written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, Document] = {}
        self.requests: list[str] = []
        self.webhook: Callable[[Document], None] = lambda _: None
        self._version = 100

    async def get(self, path: str, **_: str) -> Document:
        self.requests.append("get")
        if path not in self.objects and path.rpartition("/")[2] in _PLURALS:
            items = [item for name, item in self.objects.items() if name.rpartition("/")[0] == path]
            return copy.deepcopy({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        return copy.deepcopy(self._found(path))

    async def create(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self.requests.append("create")
        path = f"{path}/{document['metadata']['name']}"
        if path in self.objects:
            raise ConflictError(409, "it exists; read it")
        return self._store(path, dict(document))

    async def replace(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self.requests.append("replace")
        path = path.removesuffix("/status")
        self._check(self._found(path), document["metadata"])
        return self._store(path, dict(document))

    async def merge(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self.requests.append("merge")
        live = copy.deepcopy(self._found(path))
        meta = document.get("metadata", {})
        self._check(live, meta)
        live["metadata"].update({name: value for name, value in meta.items() if name != "resourceVersion"})
        live.update({name: value for name, value in document.items() if name != "metadata"})
        return self._store(path, live)

    async def apply(self, path: str, document: Mapping[str, Any], field_manager: str) -> Document:
        self.requests.append("apply")
        document = copy.deepcopy(dict(document))
        conditions = {name: document["metadata"].pop(name, None) for name in ("uid", "resourceVersion")}
        live = copy.deepcopy(self.objects.get(path, {"metadata": {}}))
        if path in self.objects or conditions["uid"]:
            self._check(live, conditions)
        entries = live["metadata"].pop("managedFields", [])
        before: dict[str, Any] = next(
            (e["fieldsV1"] for e in entries if (e["manager"], e["operation"]) == (field_manager, "Apply")), {}
        )
        wanted = fields_of(document)
        _prune(live, before, wanted)
        _overlay(live, document)
        others = [entry for entry in entries if (entry["manager"], entry["operation"]) != (field_manager, "Apply")]
        live["metadata"]["managedFields"] = [managed(field_manager, wanted, "Apply"), *others]
        return self._store(path, live)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None, **_: str) -> None:
        self.requests.append("delete")
        self._check(self._found(path), {"uid": uid, "resourceVersion": resource_version})
        del self.objects[path]

    def _found(self, path: str) -> Document:
        if path not in self.objects:
            raise NotFoundError(404, f"there is no {path}; create it")
        return self.objects[path]

    def _check(self, live: Mapping[str, Any], conditions: Mapping[str, Any]) -> None:
        for name in ("uid", "resourceVersion"):
            if conditions.get(name) and conditions[name] != live["metadata"].get(name):
                raise ConflictError(409, f"{name} differs; read it again")

    def _store(self, path: str, document: Document) -> Document:
        document = copy.deepcopy(document)
        self.webhook(document)
        self._version += 1
        document["metadata"].setdefault("uid", f"uid-{self._version:06}")
        old = self.objects.get(path)
        document["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"] if old else ""
        if document != old:
            document["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = document
        return copy.deepcopy(document)


def managed(manager: str, fields: Mapping[str, Any], operation: str = "Update", subresource: str = "") -> dict[str, Any]:
    """One entry of `managedFields`."""
    entry = {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    return {**entry, "subresource": subresource} if subresource else entry


def fields_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of what was applied."""
    named = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    named["metadata"] = {name: value for name, value in document["metadata"].items() if name not in ("name", "namespace")}
    tree: dict[str, Any] = _tree(named)
    return tree


def owned_by_us(document: Mapping[str, Any], *others: Mapping[str, Any]) -> Document:
    """An object as it is after we applied it, and others wrote."""
    live = copy.deepcopy(dict(document))
    live["metadata"] |= {
        "uid": "uid-1",
        "resourceVersion": "7",
        "managedFields": [managed(FIELD_MANAGER, fields_of(document), "Apply"), *others],
    }
    return live


def _tree(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {f"f:{name}": _tree(item) for name, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        return {f"k:{json.dumps({'name': item['name']}, separators=(',', ':'))}": {".": {}, **_tree(item)} for item in value}
    return {}


def _overlay(live: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        there = live.get(name)
        if isinstance(value, Mapping) and isinstance(there, dict):
            _overlay(there, value)
        elif isinstance(there, list) and _tree(value):
            known = {item["name"]: item for item in there}
            for item in value:
                _overlay(known.setdefault(item["name"], {}), item)
            live[name] = list(known.values())
        else:
            live[name] = copy.deepcopy(value)


def _prune(live: Any, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for mark, inner in before.items():
        if mark == ".":
            continue
        if mark.startswith("k:"):
            key = json.loads(mark[2:])["name"]
            item = next((item for item in live if item["name"] == key), None)
            if item is not None and mark not in wanted:
                live.remove(item)
            elif item is not None:
                _prune(item, inner, wanted[mark])
        elif mark[2:] in live:
            if mark not in wanted:
                del live[mark[2:]]
            else:
                _prune(live[mark[2:]], inner, wanted[mark])
