"""Writes the settings of the chart's `values.schema.json` anew: `python -m tests.unit.make_values_schema [--check]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cachescope.api.settings import Settings

PATH = Path(__file__).parents[2] / "charts" / "cachescope" / "values.schema.json"
PREFIX = "Settings"


def with_settings(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its settings as the model has them; everything else is as it was."""
    model = Settings.model_json_schema(ref_template="#/$defs/" + PREFIX + ".{model}")
    parts = {f"{PREFIX}.{name}": part for name, part in model.pop("$defs").items()}
    own = {name: part for name, part in schema["$defs"].items() if not name.startswith(f"{PREFIX}.")}
    return {**schema, "properties": {**schema["properties"], "settings": model}, "$defs": {**own, **parts}}


def main() -> int:
    """Write the schema, or with `--check` compare it; returns the exit status."""
    before = PATH.read_text()
    written = json.dumps(with_settings(json.loads(before)), indent=2) + "\n"
    if "--check" in sys.argv:
        return int(written != before)
    PATH.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
