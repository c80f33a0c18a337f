from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cachescope.cli import kubectl
from cachescope.cli.contexts import current_namespace, need_cluster
from cachescope.cli.main import app
from cachescope.controller import main
from cachescope.controller.options import Options
from cachescope.core.errors import SpecError
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.gateway.identity.api_keys import hash_key, parse

RUN = CliRunner()
CREATE = ["keys", "create", "--secret", "red-alice", "--principal", "alice"]


def test_a_key_is_shown_once_and_its_secret_holds_the_hash_alone() -> None:
    before = int(time.time())
    result = RUN.invoke(app, [*CREATE, "--namespace", "pools"])
    key_id, secret = parse(result.stderr.strip().rsplit(" ", 1)[1])
    manifest = yaml.safe_load(result.stdout)
    assert manifest["metadata"] == {"name": "red-alice", "namespace": "pools", "labels": {API_KEYS_LABEL: "true"}}
    entry = json.loads(manifest["stringData"][key_id])
    assert before <= entry.pop("created") <= time.time(), "by which the keys of before a moment can be refused"
    assert entry == {"hash": hash_key(key_id, secret, "pools/red-alice"), "principal": "alice"}
    assert entry["hash"] != hash_key(key_id, secret, "pools/another")
    assert secret not in result.stdout


@pytest.mark.parametrize("principal", ["", " "])
def test_no_key_is_made_for_nobody(principal: str) -> None:
    result = RUN.invoke(app, [*CREATE[:-1], principal])
    assert isinstance(result.exception, SpecError)
    assert "name its principal" in str(result.exception)
    assert result.stdout == ""


def test_two_keys_are_never_the_same() -> None:
    assert RUN.invoke(app, CREATE).stderr != RUN.invoke(app, CREATE).stderr


def test_the_plugin_has_what_people_ask_and_starts_nothing() -> None:
    shown = RUN.invoke(kubectl.app, ["--help"]).stdout
    assert all(name in shown for name in ("status", "doctor", "keys", "rollback", "revoke", "readmit", "restored"))
    assert "operator" in RUN.invoke(app, ["--help"]).stdout
    assert RUN.invoke(kubectl.app, ["operator"]).exit_code == 2


def test_the_operator_takes_its_options_from_the_environment_that_the_chart_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Options] = []
    monkeypatch.setattr(main, "run", started.append)
    environ = {
        "CACHESCOPE_NAMESPACE": "ns",
        "CACHESCOPE_SCOPE": "Cluster",
        "CACHESCOPE_GUARD_IMAGE": "guard:1",
        "CACHESCOPE_MONITORING_NAMESPACE": "watchers",
        "CACHESCOPE_API_SERVERS": "10.0.0.1/32,fd00::1/128",
        "CACHESCOPE_API_SERVER_PORTS": "443,8443",
        "CACHESCOPE_ENGINE_USER": "2000",
        "CACHESCOPE_GUARD_VERSION": "0.2.0",
        "CACHESCOPE_POD_NAME": "operator-0",
    }
    result = RUN.invoke(app, ["operator", "--port", "9090"], env=environ)
    assert result.exit_code == 0, result.output
    networks = ("10.0.0.1/32", "fd00::1/128")
    settings = Path("/etc/cachescope/config/settings.yaml")
    wanted = Options("ns", "guard:1", "Cluster", settings, "watchers", networks, (443, 8443), 9090, "operator-0", "0.2.0", 2000)
    assert started == [wanted]
    assert RUN.invoke(app, ["operator"], env={**environ, "CACHESCOPE_API_SERVER_PORTS": "https"}).exit_code == 1


def test_a_scope_that_does_not_exist_is_refused() -> None:
    assert RUN.invoke(app, ["operator"], env={"CACHESCOPE_SCOPE": "Everywhere"}).exit_code == 2


def kubeconfig(path: Path, namespace: str | None, *, current: bool = True) -> Path:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    path.write_text(
        yaml.safe_dump({**({"current-context": "one"} if current else {}), "contexts": [{"name": "one", "context": context}]})
    )
    return path


def test_the_namespace_is_that_of_the_current_context(tmp_path: Path) -> None:
    assert current_namespace({"KUBECONFIG": str(kubeconfig(tmp_path / "a", "team"))}) == "team"
    assert current_namespace({"KUBECONFIG": str(kubeconfig(tmp_path / "b", None))}) == "default"
    assert current_namespace({"HOME": str(tmp_path / "nowhere")}) == "default"


def test_of_several_kubeconfigs_the_first_that_says_something_decides(tmp_path: Path) -> None:
    first, second = kubeconfig(tmp_path / "a", "first", current=False), kubeconfig(tmp_path / "b", "second")
    assert current_namespace({"KUBECONFIG": f"{first}:{second}"}) == "first"
    assert current_namespace({"KUBECONFIG": f"{tmp_path / 'gone'}:{second}"}) == "second"


def test_a_pod_knows_its_namespace_itself(tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(kubeconfig(tmp_path / "a", "team")), "CACHESCOPE_NAMESPACE": "own"}
    assert current_namespace(environ) == "own"


def test_without_a_cluster_the_user_is_told_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="KUBECONFIG"):
        need_cluster({"HOME": str(tmp_path)})
    need_cluster({"KUBECONFIG": str(kubeconfig(tmp_path / "a", None))})
    need_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_a_kubeconfig_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("{")
    with pytest.raises(SpecError, match=str(tmp_path / "a")):
        current_namespace({"KUBECONFIG": str(tmp_path / "a")})
