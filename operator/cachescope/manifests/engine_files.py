"""Small files that an engine is told of by their path: the pod's own annotations, so that they are frozen with its template.

A ConfigMap could change under a running pod, and would be one more object to own; an annotation of the template can do neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from cachescope.manifests.engines.launch import FILES_FOLDER
from cachescope.manifests.parts import Manifest

_PREFIX = "cachescope.dev/engine-file."
_VOLUME = "engine-files"


def file_annotations(files: Mapping[str, str]) -> dict[str, str]:
    """The annotations that hold them.

    Args:
        files: Their texts, by their names.
    """
    return {f"{_PREFIX}{name}": text for name, text in sorted(files.items())}


def file_volumes(files: Mapping[str, str]) -> list[Manifest]:
    """The volume that shows them as files, where there are any."""
    items = [{"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{_PREFIX}{name}']"}} for name in sorted(files)]
    return [{"name": _VOLUME, "downwardAPI": {"items": items}}] if items else []


def file_mounts(files: Mapping[str, str]) -> list[Manifest]:
    """The engine's mount of it."""
    return [{"name": _VOLUME, "mountPath": FILES_FOLDER, "readOnly": True}] if files else []
