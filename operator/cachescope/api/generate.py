"""Writes the CRDs: `python -m cachescope.api.generate`, with `--check` it only compares.

They go to `crds/` for kubectl and GitOps tools, and to the templates of the chart `cachescope-crds`: Helm never updates what lies
in a chart's own `crds/` folder. What else lies there under other names is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from cachescope.api.crds import definitions
from cachescope.api.documents import GROUP

ROOT = Path(__file__).parents[3]
COMMAND = "make generate"
HEADER = f"# Generated from the models in operator/cachescope/api by `{COMMAND}`; do not edit.\n"
KEEP = "    {{- if .Values.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n"


def files() -> dict[str, str]:
    """Path below the repository and text of every generated file."""
    made: dict[str, str] = {}
    for document in definitions():
        name, text = f"{document['metadata']['name']}.yaml", _yaml(document)
        made[f"crds/{name}"] = HEADER + text
        made[f"charts/cachescope-crds/templates/{name}"] = HEADER + template(text)
    return made


def template(text: str) -> str:
    """A CRD as a Helm template: its texts keep their braces, and it stays when the release goes, unless told otherwise."""
    opening = '{{ "{{" }}'
    return text.replace("{{", opening).replace("  annotations:\n", "  annotations:\n" + KEEP, 1)


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` say which differ."""
    made = files()
    found = {str(path.relative_to(ROOT)) for name in made for path in (ROOT / name).parent.glob(f"*.{GROUP}.yaml")}
    different = sorted(name for name, text in made.items() if name not in found or (ROOT / name).read_text("utf-8") != text)
    stale = sorted(found - made.keys())
    if "--check" in arguments:
        sys.stderr.writelines(f"{name} is not what the models say; run {COMMAND}\n" for name in different + stale)
        return 1 if different + stale else 0
    for name in different:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(made[name], "utf-8")
    for name in stale:
        (ROOT / name).unlink()
    return 0


class _Dumper(yaml.SafeDumper):
    """Writes equal values twice instead of naming one by an anchor, which Helm and people would have to follow."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - its base names it
        """No value gets an anchor."""
        return True


def _yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=130)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
