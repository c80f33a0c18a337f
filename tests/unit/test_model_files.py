"""A model's files: one path for engine and guard, read-only for the engine, fetched once and only by who may."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.manifests.model_files import FETCH
from tests.unit.pools import COMMIT, HUB, engine, environment, pod

HUB_PATH = f"/models/hub/owner--some.model/{COMMIT}"
FAKE_HUB = """\
import pathlib
def snapshot_download(repository, *, revision, local_dir):
    folder = pathlib.Path(local_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "fetched").open("a") as file:
        file.write(f"{repository}@{revision}\\n")
    if (folder / "broken").exists():
        raise OSError("the hub went away")
"""


def claim(path: str | None = None) -> dict[str, Any]:
    fields = {"claimName": "models"} if path is None else {"claimName": "models", "path": path}
    return {"model.source": {"persistentVolumeClaim": fields}}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, "/models/tiny"),
        (claim(), "/models/claim"),
        (claim("llama/instruct"), "/models/claim/llama/instruct"),
        (claim("llama//./instruct/"), "/models/claim/llama/instruct"),
        (claim("..llama"), "/models/claim/..llama"),
        ({"model.source": HUB}, HUB_PATH),
    ],
)
def test_engine_and_guard_name_one_path(changes: dict[str, Any], path: str) -> None:
    container = engine(changes)
    command = container["command"]
    assert command[command.index("--model") + 1] == path
    assert environment(container)["CACHESCOPE_MODEL_PATH"] == path
    assert environment(container)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("path", ["..", "../other", "llama/../../other", "llama/.."])
def test_a_path_that_leaves_the_claim_is_refused(path: str) -> None:
    with pytest.raises(SpecError, match="leaves the claim; write a path below"):
        engine(claim(path))


def test_the_engine_sees_the_files_read_only() -> None:
    for changes, folder in ((claim(), "/models/claim"), ({"model.source": HUB}, "/models/hub")):
        (mount,) = [mount for mount in engine(changes)["volumeMounts"] if mount["name"] == "model"]
        assert mount == {"name": "model", "mountPath": folder, "readOnly": True}
    (volume,) = [volume for volume in pod(claim())["volumes"] if volume["name"] == "model"]
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert "model" not in {volume["name"] for volume in pod()["volumes"]}


def test_only_a_model_of_the_hub_is_fetched() -> None:
    assert [[item["name"] for item in pod(changes)["initContainers"]] for changes in ({}, claim(), {"model.source": HUB})] == [
        ["guard"],
        ["guard"],
        ["guard", "fetch-model"],
    ]


def test_the_engines_own_image_fetches_one_commit_into_the_claim() -> None:
    spec = pod({"model.source": HUB})
    fetch = spec["initContainers"][1]
    assert fetch["image"] == spec["containers"][0]["image"]
    assert fetch["command"] == ["python3", "-c", FETCH, "owner/some.model", COMMIT, HUB_PATH]
    assert environment(fetch)["HF_HUB_OFFLINE"] == "0", "the image may say 1"
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "model"]
    assert volume["persistentVolumeClaim"] == {"claimName": "hub-cache"}
    assert {"name": "model", "mountPath": "/models/hub"} in fetch["volumeMounts"]


def test_the_hubs_token_is_in_the_init_container_alone() -> None:
    spec = pod({"model.source": HUB})
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub-token", "key": "token"}}}
    assert token in spec["initContainers"][1]["env"]
    assert "hub-token" not in str([spec["containers"], spec["volumes"], spec["initContainers"][0]])


def test_without_claim_and_token_a_pod_keeps_the_files_itself_and_asks_as_nobody() -> None:
    spec = pod({"model.source": {"huggingFace": {"repository": "owner/some.model", "revision": COMMIT}}})
    assert {"name": "model", "emptyDir": {}} in spec["volumes"]
    assert all("valueFrom" not in item for item in spec["initContainers"][1]["env"])


def test_a_mirror_of_the_hub_is_where_the_engines_variables_are() -> None:
    fetch = pod({"model.source": HUB, "engine.env": {"HF_ENDPOINT": "https://hub.example", "OTHER": "x"}})["initContainers"][1]
    assert environment(fetch)["HF_ENDPOINT"] == "https://hub.example"
    assert "OTHER" not in environment(fetch)


def test_fetching_takes_no_gpu_and_adds_nothing_to_what_the_pod_asks_for() -> None:
    spec = pod({"model.source": HUB, "gpus": {"count": 2}})
    assert spec["initContainers"][1]["resources"] == {"requests": {"cpu": "500m", "memory": "3Gi"}, "limits": {"memory": "8Gi"}}


def test_a_commit_is_fetched_once_and_a_broken_fetch_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub.py").write_text(FAKE_HUB)
    folder = tmp_path / "hub" / "model"
    folder.mkdir(parents=True)
    (folder / "broken").touch()
    assert fetch(tmp_path, folder) != 0
    (folder / "broken").unlink()
    assert [fetch(tmp_path, folder) for _ in range(3)] == [0, 0, 0]
    assert (folder / "fetched").read_text() == "owner/some.model@commit\n" * 2


def test_files_that_are_there_need_no_hub(tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub.py").write_text("raise SystemExit('no hub here')\n")
    assert fetch(tmp_path, tmp_path) != 0
    (tmp_path / ".cachescope-complete").touch()
    assert fetch(tmp_path, tmp_path) == 0


def fetch(modules: Path, folder: Path) -> int:
    command = [sys.executable, "-c", FETCH, "owner/some.model", "commit", str(folder)]
    return subprocess.run(command, env={"PYTHONPATH": str(modules)}, capture_output=True, check=False).returncode
