"""Settings of the plugin, from the environment that it shares with the guard (`guard.settings`), and one of its own.

| variable | what | default |
| --- | --- | --- |
| `CACHESCOPE_APPROVALS_FILE` | file with the pool's approval table | required |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cachescope.core.errors import SpecError


@dataclass(frozen=True)
class PluginSettings:
    """What the plugin is told.

    Attributes:
        approvals_file: Where the approval table is mounted.
        keys_folder: Where the permit keys are.
        pool_uid: UID of the pool.
        model_path: What the engine serves.
    """

    approvals_file: Path
    keys_folder: Path
    pool_uid: str
    model_path: Path


def read_plugin_settings(environ: Mapping[str, str]) -> PluginSettings:
    """Read the settings.

    Raises:
        SpecError: A variable is missing; the message names it.
    """
    names = ("CACHESCOPE_APPROVALS_FILE", "CACHESCOPE_PERMIT_KEYS_DIR", "CACHESCOPE_POOL_UID", "CACHESCOPE_MODEL_PATH")
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise SpecError(f"{', '.join(missing)} is not set; render the pod with CacheScope's own manifests")
    file, keys, pool, model = (environ[name] for name in names)
    return PluginSettings(Path(file), Path(keys), pool, Path(model))


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Where processes of the pod report to its guard, or `None`."""
    return Path(folder) if (folder := environ.get("CACHESCOPE_STATE_DIR")) else None
