"""The guard beside its engine: it alone is reached from outside, and the engine has nothing of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.guard.engine_digests import separating
from cachescope.guard.proxy import Upstream
from cachescope.guard.settings import read_settings
from cachescope.guard.sidecar import read_engine
from cachescope.manifests.guard import API_ACCESS_FOLDER, PERMIT_KEYS_FOLDER, STATE_FOLDER
from cachescope.manifests.model_files import CLAIM_FOLDER
from tests.unit.pools import HUB, PLATFORM, TARGET, UID, engine, environment, objects, pod

CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "tiny"}}
BESIDE: dict[str, Any] = {"guard": {"mode": "Sidecar"}, "model.source": CLAIM}
NODE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
GUARDS_FOLDERS = {API_ACCESS_FOLDER, PERMIT_KEYS_FOLDER, STATE_FOLDER}


def _guard(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    containers = pod({**BESIDE, **(changes or {})})["initContainers"]
    return next(item for item in containers if item["name"] == "guard")


def test_the_guard_runs_beside_the_engine_from_the_guards_image_and_ends_after_it() -> None:
    guard = _guard()
    assert (guard["image"], guard["restartPolicy"]) == (PLATFORM.guard_image, "Always")
    assert guard["command"][1:] == ["-m", "cachescope.guard.sidecar"]
    assert guard["securityContext"] == engine(BESIDE)["securityContext"]


def test_the_services_port_is_the_guards_and_the_engine_listens_on_loopback_alone() -> None:
    (port,) = objects(BESIDE)["Service"]["spec"]["ports"]
    assert port["targetPort"] == "http"
    assert {item["name"]: item["containerPort"] for item in _guard()["ports"]} == {"http": 8000, "guard-metrics": 9400}
    made = engine(BESIDE)
    assert "ports" not in made
    command = made["command"]
    assert (command[command.index("--host") + 1], command[command.index("--port") + 1]) == ("127.0.0.1", "8001")
    inside = engine()["command"]
    assert (inside[inside.index("--host") + 1], inside[inside.index("--port") + 1]) == ("0.0.0.0", "8000"), "the control"  # noqa: S104 - what is looked for


def test_the_guards_resources_can_be_set_and_stay_as_they_were_without() -> None:
    assert _guard()["resources"]["limits"] == {"memory": "1Gi"}
    wanted = {"requests": {"memory": "1Gi"}, "limits": {"memory": "4Gi"}}
    assert _guard({"guard": {"mode": "Sidecar", "resources": wanted}})["resources"] == wanted
    with pytest.raises(SpecError, match="mode: Sidecar"):
        engine({"guard": {"resources": wanted}})


def test_the_engine_has_no_guard_no_key_and_no_token() -> None:
    made = engine(BESIDE)
    assert "--middleware" not in made["command"]
    assert not [name for name in environment(made) if name.startswith("CACHESCOPE_") or name == "PYTHONPATH"]
    assert "--middleware" in engine()["command"], "the control"
    folders = {mount["mountPath"] for mount in made["volumeMounts"]}
    assert folders.isdisjoint({*GUARDS_FOLDERS, "/cachescope"})
    assert {mount["mountPath"] for mount in _guard()["volumeMounts"]} == {*GUARDS_FOLDERS, CLAIM_FOLDER}
    assert "guard" not in [volume["name"] for volume in pod(BESIDE)["volumes"]]


def test_the_guard_can_read_all_that_the_pod_tells_it() -> None:
    guard = _guard()
    values = environment(guard)
    fields = {item["name"]: "x" for item in guard["env"] if "valueFrom" in item}
    settings = read_settings({**values, **fields, **NODE})
    assert (settings.pool_uid, settings.pool_target, str(settings.model_path)) == (UID, TARGET, f"{CLAIM_FOLDER}/tiny")
    told = read_engine(values)
    assert (told.upstream, told.name) == (Upstream(port=8001), "vLLM 0.32.0 registry.example/vllm:0.32.0")
    command = engine(BESIDE)["command"]
    assert list(told.args) == command[3 : command.index("--shutdown-timeout")]
    assert "--enforce-eager" in separating(told.args), "what separates in the engine separates here"


def test_an_argument_reaches_guard_and_engine_as_it_was_written() -> None:
    changes = {"engine.args": ["--seed", "$(HOME)"]}
    written = json.loads(environment(_guard(changes))["CACHESCOPE_ENGINE_ARGS"])
    assert written[:2] == ["--seed", "$$(HOME)"], "Kubernetes makes one dollar of two, here as in the command"
    assert engine({**BESIDE, **changes})["command"][3:5] == written[:2]


def test_the_guard_says_whether_the_pod_is_ready_and_a_command_whether_the_engine_lives() -> None:
    assert _guard()["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http", "scheme": "HTTP"}
    made = engine(BESIDE)
    assert "readinessProbe" not in made
    for name in ("startupProbe", "livenessProbe"):
        assert "127.0.0.1:8001/health" in made[name]["exec"]["command"][-1]
        assert {**made[name], "exec": None, "timeoutSeconds": 0} == {
            **{key: value for key, value in engine()[name].items() if key != "httpGet"},
            "exec": None,
            "timeoutSeconds": 0,
        }, "but for how they ask, they are those of an engine with its guard inside"


def test_the_model_is_fetched_before_the_guard_reads_it() -> None:
    names = [item["name"] for item in pod({**BESIDE, "model.source": HUB})["initContainers"]]
    assert names == ["fetch-model", "guard"]
    assert [item["name"] for item in pod({"model.source": HUB})["initContainers"]] == ["guard", "fetch-model"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model.source": {"imagePath": "/models/tiny"}}, "cannot see the model.*persistentVolumeClaim"),
        ({"fence": {"cleanup": "Reset"}}, r"cannot call its engine; set fence\.cleanup None"),
        ({"engine.args": ["--grpc"]}, "gRPC"),
        ({"engine.env": {"PYTHONPATH": "/x"}}, "PYTHONPATH"),
        ({"engine.env": {"CACHESCOPE_POOL": "x"}}, "CACHESCOPE_POOL"),
    ],
)
def test_what_a_sidecar_cannot_guard_is_refused(changes: dict[str, Any], problem: str) -> None:
    assert pod(BESIDE)
    with pytest.raises(SpecError, match=problem):
        pod({**BESIDE, **changes})
