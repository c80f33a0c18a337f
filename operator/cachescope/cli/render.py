"""`cachescope render`: plain manifests from declared resources, for `kubectl apply` until the operator does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from cachescope.api.documents import read_documents, select
from cachescope.api.resources import ServingPool, Tenant
from cachescope.api.settings import read_settings
from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.manifests.installation import Declared, installation
from cachescope.manifests.parts import Site


def render(site: Site, *, resources: Path, settings: Path, keys: Path, head: Path) -> str:
    """Render an installation as YAML documents.

    Raises:
        SpecError: A file is missing or cannot be read as what it should be.
    """
    declared = declare(_text(settings), _text(resources), source=str(resources))
    found = {path.name: path.read_text().strip() for path in sorted(keys.glob("*")) if path.is_file()}
    if "targets" not in found or len(found) < 2:
        raise SpecError(f"{keys} holds no root keys; make them with `cachescope keys root {keys}`")
    return yaml.safe_dump_all(installation(site, declared, found, _head(head)), sort_keys=False)


def declare(settings_text: str, resources_text: str, *, source: str) -> Declared:
    """Parse settings and resources.

    Raises:
        SpecError: One of them is not valid.
    """
    documents: list[dict[str, Any]] = read_documents(resources_text, source)
    settings = read_settings(settings_text, "the settings")
    pools, tenants = list(select(ServingPool, documents, source)), list(select(Tenant, documents, source))
    return Declared(settings_text, resources_text, settings, pools, tenants)


def _head(path: Path) -> Head:
    try:
        return parse_head(json.loads(_text(path)))
    except ValueError as error:
        raise SpecError(f"{path} is not JSON ({error}); make a first head with `cachescope keys head {path}`") from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise SpecError(f"{path} cannot be read ({error.strerror}); name an existing file") from error
