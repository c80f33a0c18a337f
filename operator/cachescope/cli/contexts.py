"""Where a command looks: the namespace that kubectl would use, unless one is named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cachescope.core.errors import SpecError

DEFAULT = "default"
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


def current_namespace(environ: Mapping[str, str] = os.environ) -> str:
    """The namespace of the pod, or of the kubeconfig's current context.

    Raises:
        SpecError: A kubeconfig cannot be read.
    """
    if own := environ.get("CACHESCOPE_NAMESPACE"):
        return own
    documents = [_read(path) for path in kubeconfigs(environ) if path.exists()]
    current = next((item["current-context"] for item in documents if item.get("current-context")), None)
    contexts = [entry for item in documents for entry in item.get("contexts") or [] if entry.get("name") == current]
    return str((contexts[0].get("context") or {}).get("namespace") or DEFAULT) if contexts else DEFAULT


def need_cluster(environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to go on where nothing says which cluster is meant.

    Raises:
        SpecError: There is no kubeconfig, and this is no pod.
    """
    if _IN_CLUSTER not in environ and not any(path.exists() for path in kubeconfigs(environ)):
        names = ", ".join(map(str, kubeconfigs(environ)))
        raise SpecError(f"there is no kubeconfig ({names}); set KUBECONFIG, or log in to the cluster first")


def kubeconfigs(environ: Mapping[str, str]) -> list[Path]:
    """The kubeconfig files, as kubectl finds them; the first that says something decides."""
    named = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return named or [Path(environ.get("HOME", ".")) / ".kube" / "config"]


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SpecError(f"the kubeconfig {path} cannot be read ({error}); correct it, or set KUBECONFIG") from error
    return document if isinstance(document, dict) else {}
