"""Becomes Envoy: writes its bootstrap and executes it in place of this process."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from cachescope.api.settings import Settings, Tls, read_settings
from cachescope.core.errors import ClusterError
from cachescope.gateway import client_certificates
from cachescope.gateway.envoy import EnvoySettings, bootstrap, secret


def start(root: Path, socket: str, port: int, probe_port: int = 0) -> None:
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
    certificate, authorities = _tls_files(root, folder, settings.tls) if settings.tls else (None, None)
    found = envoy_settings(settings, socket, port, probe_port, certificate=certificate, authorities=authorities)
    path = folder / "envoy.json"
    path.write_text(json.dumps(bootstrap(found)))
    os.execv(program, [program, "--config-path", str(path), "--log-format", "%L %n %v", "--disable-hot-restart"])  # noqa: S606


def envoy_settings(
    settings: Settings,
    socket: str,
    port: int,
    probe_port: int = 0,
    *,
    certificate: str | None = None,
    authorities: str | None = None,
) -> EnvoySettings:
    """Envoy's part of the installation's settings."""
    return EnvoySettings(
        processor_socket=socket,
        listen_port=port,
        probe_port=probe_port,
        stream_idle_seconds=settings.stream_idle_seconds,
        secret_file=certificate,
        authorities_file=authorities,
    )


def _tls_files(root: Path, folder: Path, tls: Tls) -> tuple[str, str | None]:
    """The files by which Envoy finds the mounted certificate and the authorities of clients, and takes over renewed ones."""
    mounted, clients = root / "tls", root / "client-ca"
    pair = _written(folder / "tls.json", secret(str(mounted / "tls.crt"), str(mounted / "tls.key"), str(mounted)))
    if tls.client_ca is None:
        return pair, None
    return pair, _written(folder / "client-ca.json", client_certificates.authorities(str(clients / "ca.crt"), str(clients)))


def _written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content))
    return str(path)
