"""What Envoy is started with: the mounted certificate, and the authorities of clients where the settings name some."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.errors import ClusterError
from cachescope.gateway.envoy import EnvoySettings, bootstrap
from cachescope.gateway.start_envoy import start

CLIENT_CA = "clientCa: {secretName: ca, trustDomains: [{name: corp}]}"


def started(root: Path, monkeypatch: pytest.MonkeyPatch, settings: str) -> dict[str, Any]:
    """The bootstrap of an Envoy that is started under some settings."""
    commands: list[list[str]] = []
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/bin/envoy")
    monkeypatch.setattr(os, "execv", lambda _, command: commands.append(command))
    (root / "config").mkdir()
    (root / "config" / "settings.yaml").write_text(settings)
    start(root, "/run/processor.sock", 8080)
    found: dict[str, Any] = json.loads(Path(commands[0][2]).read_text())
    return found


def door(bootstrap: dict[str, Any]) -> dict[str, Any]:
    """TLS with clients, each reference replaced by what its file holds."""
    chain = bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]
    if "transport_socket" not in chain:
        return {}
    common = chain["transport_socket"]["typed_config"]["common_tls_context"]
    references = [*common["tls_certificate_sds_secret_configs"], common.get("validation_context_sds_secret_config")]
    return {item["name"]: _resource(item) for item in references if item}


def _resource(reference: dict[str, Any]) -> dict[str, Any]:
    content = json.loads(Path(reference["sds_config"]["path_config_source"]["path"]).read_text())
    (found,) = [item for item in content["resources"] if item["name"] == reference["name"]]
    return dict(found)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("{}", set()),
        ("tls: {secretName: door}", {"listener"}),
        (f"tls: {{secretName: door, {CLIENT_CA}}}", {"listener", "clients"}),
    ],
)
def test_envoy_reads_what_the_settings_name_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, names: set[str]
) -> None:
    found = door(started(tmp_path, monkeypatch, settings))
    assert set(found) == names
    if "listener" in names:
        assert found["listener"]["tls_certificate"]["certificate_chain"]["filename"] == str(tmp_path / "tls/tls.crt")
    if "clients" in names:
        assert found["clients"]["validation_context"]["trusted_ca"]["filename"] == str(tmp_path / "client-ca/ca.crt")


def test_without_envoy_nothing_is_started_and_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started(tmp_path, monkeypatch, "{}")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ClusterError, match="not installed"):
        start(tmp_path, "/run/processor.sock", 8080)


@pytest.mark.parametrize(("socket", "address"), [("/run/admin.sock", "pipe"), (None, "socket_address")])
def test_envoys_admin_interface_is_the_pods_own(socket: str | None, address: str) -> None:
    found = bootstrap(EnvoySettings(processor_socket="/run/processor.sock", admin_socket=socket))["admin"]["address"]
    assert list(found) == [address]
    assert found.get("socket_address", {}).get("address", "127.0.0.1") == "127.0.0.1"
    assert found.get("pipe", {}).get("path") == socket
