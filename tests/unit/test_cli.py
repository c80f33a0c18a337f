from __future__ import annotations

import json
from pathlib import Path

import yaml
from typer.testing import CliRunner

from cachescope.cli.main import app
from cachescope.gateway.identity.api_keys import hash_key, parse
from tests.unit.whole_path import EXAMPLES

RUN = CliRunner()


def render(folder: Path, *changes: str) -> list[str]:
    files = ["--resources", str(EXAMPLES / "resources.yaml"), "--settings", str(EXAMPLES / "settings.yaml")]
    state = ["--keys", str(folder / "keys"), "--head", str(folder / "head.json")]
    return ["render", *files, *state, "--gateway-image", "g", "--guard-image", "i", "--namespace", "pools", *changes]


def test_a_key_is_shown_once_and_its_secret_holds_the_hash_alone() -> None:
    result = RUN.invoke(app, ["keys", "create", "--secret", "red-alice", "--principal", "alice", "--namespace", "pools"])
    token = result.stderr.strip().rsplit(" ", 1)[1]
    key_id, secret = parse(token)
    manifest = yaml.safe_load(result.stdout)
    assert manifest["metadata"] == {"name": "red-alice", "namespace": "pools"}
    assert json.loads(manifest["stringData"][key_id]) == {"hash": hash_key(key_id, secret), "principal": "alice"}
    assert secret not in result.stdout


def test_an_installation_is_rendered_from_files(tmp_path: Path) -> None:
    assert RUN.invoke(app, ["keys", "root", str(tmp_path / "keys")]).exit_code == 0
    assert RUN.invoke(app, ["keys", "head", str(tmp_path / "head.json")]).exit_code == 0
    result = RUN.invoke(app, render(tmp_path))
    assert result.exit_code == 0, result.output
    kinds = [item["kind"] for item in yaml.safe_load_all(result.stdout)]
    assert {"Deployment", "NetworkPolicy", "Secret", "ConfigMap", "Service", "Role"} <= set(kinds)


def test_keys_and_head_that_exist_are_kept(tmp_path: Path) -> None:
    RUN.invoke(app, ["keys", "head", str(tmp_path / "head.json")])
    before = (tmp_path / "head.json").read_text()
    RUN.invoke(app, ["keys", "head", str(tmp_path / "head.json")])
    assert (tmp_path / "head.json").read_text() == before


def test_missing_keys_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    result = RUN.invoke(app, render(tmp_path))
    assert "cachescope keys root" in str(result.exception)
