"""The reference of all kinds: `python -m tests.unit.make_reference` writes it from the CRDs, with `--check` it only compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.unit.generated_files import cell, page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference.md"
MARK = "<!-- generated from crds/ by `python -m tests.unit.make_reference`; do not edit below -->\n"
KINDS = ("servingpools", "tenants", "cachescopes", "publicsources", "cacheepochs", "epochledgers", "fenceleases")
Schema = Mapping[str, Any]


def generated() -> str:
    """All that the page says of fields."""
    texts = ((ROOT / "crds" / f"{name}.cachescope.dev.yaml").read_text("utf-8") for name in KINDS)
    return MARK + "".join(_kind(yaml.load(text, yaml.CSafeLoader)) for text in texts)


def _kind(crd: Mapping[str, Any]) -> str:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    lines = [f"\n## {names['kind']}\n\n{schema['description']} Short name: {short}.\n"]
    for part in ("spec", "status"):
        if part in schema["properties"]:
            lines.append(f"\n| {part} | type | default | what it is |\n| --- | --- | --- | --- |\n")
            lines.extend(_rows(schema["properties"][part], ""))
    return "".join(lines)


def _rows(schema: Schema, prefix: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        inner = _inner(field)
        default = "required" if name in required else _text(field["default"]) if "default" in field else ""
        about = " ".join(filter(None, (str(field.get("description", "")), _limits(field))))
        yield f"| `{path}` | {_type(field)} | {default} | {cell(about)} |\n"
        yield from _rows(inner, f"{path}{'[]' if inner is not field else ''}.")


def _inner(field: Schema) -> Schema:
    items = field.get("items", field)
    return items if isinstance(items, Mapping) and "properties" in items else field


def _type(field: Schema) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"] if value != "")
    if field.get("type") == "array":
        return f"list of {field['items'].get('type', 'any')}s"
    return "any" if "type" not in field else "map" if "additionalProperties" in field else str(field["type"])


def _limits(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f"From {low} to {high}."
    return f"At least {low}." if low is not None else f"At most {high}." if high is not None else ""


def _text(value: object) -> str:
    return f"`{json.dumps(value) if isinstance(value, bool) else value}`" if value not in ("", [], {}) else ""


if __name__ == "__main__":
    sys.exit(page(PAGE, MARK, generated()))
