"""The images that were built here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from e2e.stack import helm
from e2e.stack.paths import ROOT

PRODUCT = ("operator", "gateway", "guard")
"""Those that an installation runs."""


def references() -> dict[str, str]:
    """`repository:tag` of each image, by name; the tag is a hash of what the image is made of."""
    command = [sys.executable, "-m", "images", "list", "--json"]
    found: dict[str, str] = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return found


def options(images: Mapping[str, str]) -> list[str]:
    """Helm's options for an installation that runs them."""
    named = {name: images[name].rpartition(":") for name in PRODUCT}
    values = {f"images.{name}.repository": repository for name, (repository, _, _) in named.items()}
    return helm.set_options(values | {f"images.{name}.tag": tag for name, (_, _, tag) in named.items()})
