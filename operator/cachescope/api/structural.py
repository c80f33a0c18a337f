"""Structural schemas (apiextensions.k8s.io/v1) from pydantic models.

Rules:

- references are inlined, and "or null" means that the field is optional: an API server drops nulls;
- unknown fields are pruned, which is what the absence of `additionalProperties` means there;
- lists are atomic unless they name their keys: two owners of one list would each see only half of what the operator obeys;
- the API server sets a default only where a GitOps tool does not take it for drift: never inside a list, whose items such tools
  compare whole, and only values that say something (an empty one is what the operator reads from a missing field anyway);
- a model with fields may have `allOf` in its `json_schema_extra`, in structural form: what CEL would say at too high a cost;
- a keyword that is not known here is an error: nothing of a model is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]

KEPT: Final = frozenset({
    "description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "minimum", "maximum", "required", "x-kubernetes-map-type", "x-kubernetes-int-or-string",
})  # fmt: skip
DROPPED: Final = frozenset({"title", "$defs"})
DEFAULTED: Final = (bool, int, str)


def structural(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The structural schema of a model.

    Args:
        model: Its fields are read by their aliases.
        defaults: Whether the API server sets defaults; not in what only machines write.

    Raises:
        ValueError: The model says something that a structural schema cannot say.
    """
    schema = model.model_json_schema(by_alias=True)
    return _convert(schema, schema.get("$defs", {}), defaults=defaults)


def _convert(node: Schema, definitions: Mapping[str, Schema], *, defaults: bool) -> Schema:
    node = _resolved(node, definitions)
    if node.get("x-kubernetes-int-or-string"):
        return node
    made: Schema = {}
    for keyword, value in node.items():
        if keyword in KEPT:
            made[keyword] = value
        elif keyword == "default":
            made |= {"default": value} if defaults and _says_something(value) else {}
        elif keyword == "properties":
            made["properties"] = {name: _convert(item, definitions, defaults=defaults) for name, item in value.items()}
        elif keyword == "additionalProperties":
            made |= _map(value, definitions, has_properties="properties" in node)
        elif keyword == "allOf" and "properties" in node:
            made["allOf"] = value  # written by the model itself; one that pydantic makes stands beside no fields
        elif keyword in ("items", "x-kubernetes-list-map-keys"):
            made |= _list(node, definitions)
        elif keyword not in DROPPED:
            raise ValueError(
                f"{keyword} of {node.get('title')} has no structural form; say it in another way, or teach this module"
            )
    return made


def _resolved(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The node without `$ref`, "or null" and `const`; what the field says of itself wins over what its type says."""
    if "$ref" in node:
        own = {keyword: value for keyword, value in node.items() if keyword != "$ref"}
        return _resolved({**definitions[node["$ref"].removeprefix("#/$defs/")], **own}, definitions)
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
        if len(choices) != 1:
            raise ValueError(f"{node.get('title')} is one of several types; a structural schema has one type for each field")
        own = {keyword: value for keyword, value in node.items() if keyword != "anyOf"}
        return _resolved({**choices[0], **own}, definitions)
    if "const" in node:
        return {**{keyword: value for keyword, value in node.items() if keyword != "const"}, "enum": [node["const"]]}
    return node


def _map(value: bool | Schema, definitions: Mapping[str, Schema], *, has_properties: bool) -> Schema:
    if has_properties or value is False:
        return {}
    if value is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return {"additionalProperties": _convert(value, definitions, defaults=False)}


def _list(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    keys = node.get("x-kubernetes-list-map-keys")
    kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys} if keys else {"x-kubernetes-list-type": "atomic"}
    return {"items": _convert(node["items"], definitions, defaults=False), **kind}


def _says_something(value: object) -> bool:
    return value is False or (isinstance(value, DEFAULTED) and bool(value))
