"""A pool's adapters in its pods: every container that may see them does, read-only, and the engine is told of all and no others."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.core.adapters import declared_adapters
from cachescope.core.errors import SpecError
from cachescope.manifests.model_files import FETCH
from tests.unit.pools import ADAPTERS, COMMIT, HUB, Document, engine, environment, objects, pod

CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "tiny"}}
EMPTY_HUB = {"huggingFace": {"repository": "owner/other", "revision": COMMIT}}


def adapter(name: str, source: Document) -> Document:
    return {"name": name, "source": source}


def on_claim(claim: str, path: str) -> Document:
    return {"persistentVolumeClaim": {"claimName": claim, "path": path}}


def mounts(container: Document, folder: str = "/models") -> dict[str, str]:
    found = [mount for mount in container["volumeMounts"] if mount["mountPath"].startswith(folder)]
    assert all(mount.get("readOnly") for mount in found)
    return {mount["name"]: mount["mountPath"] for mount in found}


def test_the_engine_is_told_of_every_adapter_where_it_sees_it() -> None:
    made = engine({"engine.adapters": ADAPTERS})
    assert declared_adapters(made["command"][3:]) == {
        "in-image": "/adapters/in-image",
        "on-claim": "/models/adapter-2/sql/v2",
        "of-hub": f"/models/adapter-3/owner--adapter/{COMMIT}",
    }
    assert mounts(made) == {"adapter-2": "/models/adapter-2", "adapter-3": "/models/adapter-3"}
    assert "--enable-lora" in made["command"]
    assert not {"--enable-lora", "--lora-modules", "--max-cpu-loras"} & set(engine()["command"]), "control: a pool without adapters"


def test_the_platforms_arguments_come_last() -> None:
    command = engine({"engine.adapters": ADAPTERS, "engine.args": ["--max-loras", "5", "--max-lora-rank", "8"]})["command"]
    assert command.index("--max-lora-rank") < command.index("--enable-lora") < command.index("--enable-prefix-caching")
    assert command[command.index("--max-cpu-loras") + 1] == "5"


@pytest.mark.parametrize(
    ("model", "adapters", "volumes", "paths"),
    [
        (
            CLAIM,
            [on_claim("models", "a"), on_claim("models", "b")],
            {"model": "/models/claim"},
            ["/models/claim/a", "/models/claim/b"],
        ),
        (
            CLAIM,
            [on_claim("other", "a"), on_claim("other", "")],
            {"model": "/models/claim", "adapter-1": "/models/adapter-1"},
            ["/models/adapter-1/a", "/models/adapter-1"],
        ),
        (HUB, [HUB], {"model": "/models/hub"}, [f"/models/hub/owner--some.model/{COMMIT}"]),
        (
            HUB,
            [EMPTY_HUB, CLAIM],
            {"model": "/models/hub", "adapter-1": "/models/adapter-1", "adapter-2": "/models/adapter-2"},
            [f"/models/adapter-1/owner--other/{COMMIT}", "/models/adapter-2/tiny"],
        ),
        ({"imagePath": "/m"}, [{"imagePath": "/a"}], {}, ["/a"]),
    ],
)  # fmt: skip
def test_each_claim_is_one_volume(model: Document, adapters: list[Document], volumes: dict[str, str], paths: list[str]) -> None:
    changes = {"model.source": model, "engine.adapters": [adapter(f"x{at}", source) for at, source in enumerate(adapters)]}
    made = engine(changes)
    assert mounts(made) == volumes
    assert list(declared_adapters(made["command"][3:]).values()) == paths
    assert {volume["name"] for volume in pod(changes)["volumes"]} >= volumes.keys()


def test_what_is_of_the_hub_is_fetched_each_by_its_own_token() -> None:
    secret = {"huggingFace": {**EMPTY_HUB["huggingFace"], "tokenSecretName": "other-token"}}
    spec = pod(
        {"model.source": HUB, "engine.adapters": [adapter("x", secret), adapter("y", {"imagePath": "/y"}), adapter("z", EMPTY_HUB)]}
    )
    fetching = [item for item in spec["initContainers"] if item["name"].startswith("fetch-")]
    assert [item["name"] for item in fetching] == ["fetch-model", "fetch-adapter-1", "fetch-adapter-3"]
    assert fetching[1]["command"] == ["python3", "-c", FETCH, "owner/other", COMMIT, f"/models/adapter-1/owner--other/{COMMIT}"]
    tokens = [[entry["valueFrom"]["secretKeyRef"]["name"] for entry in item["env"] if "valueFrom" in entry] for item in fetching]
    assert tokens == [["hub-token"], ["other-token"], []]
    assert [volume["name"] for volume in spec["volumes"]].count("hub-tmp") == 1
    assert environment(fetching[2])["HF_HUB_OFFLINE"] == "0"


def test_a_pool_whose_adapters_are_of_the_hub_calls_out_and_takes_its_time() -> None:
    def outcome(*sources: Document) -> tuple[int, int]:
        found = objects({"engine.adapters": [adapter(f"x{at}", source) for at, source in enumerate(sources)]})
        return len(found["NetworkPolicy"]["spec"]["egress"]), found["Deployment"]["spec"]["progressDeadlineSeconds"]

    plain, one, two = outcome({"imagePath": "/x"}), outcome(EMPTY_HUB), outcome(EMPTY_HUB, HUB)
    assert (plain[0], one[0], two[0]) == (1, 3, 3)
    assert plain[1] < one[1] < two[1]


def test_a_sidecar_sees_the_adapters_that_the_engine_loads() -> None:
    changes = {"guard": {"mode": "Sidecar"}, "model.source": CLAIM, "engine.adapters": ADAPTERS[1:]}
    spec = pod(changes)
    guard = next(item for item in spec["initContainers"] if item["name"] == "guard")
    assert mounts(guard) == mounts(spec["containers"][0]) != {}
    with pytest.raises(SpecError, match="cannot see adapters in the engine's image; put them"):
        pod({**changes, "engine.adapters": ADAPTERS})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine.args": ["--enable-lora"]}, "--enable-lora is set by the platform; declare adapters in engine.adapters"),
        ({"engine.args": ["--enable_lora=true"]}, "--enable-lora is set by the platform"),
        ({"engine.args": ["--no-enable-lora"]}, "--no-enable-lora is set by the platform"),
        ({"engine.args": ["--lora-modules", "z=/z"]}, "--lora-modules is set by the platform"),
        ({"engine.args": ["--lora-mod", "z=/z"]}, "abbreviates --lora-modules"),
        ({"engine.args": ["--max-cpu-loras=1"]}, "--max-cpu-loras is set by the platform"),
        ({"engine.args": ["--default-mm-loras", "{}"]}, "--default-mm-loras loads adapters that no request names"),
        ({"engine.env": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}}, "declare adapters in the pool"),
        ({"engine.version": "0.30.0"}, "adapters need an engine that enforces salts"),
        ({"engine.adapters": [adapter("x", {"imagePath": "/a,b"})]}, "'x' holds a comma or an equals sign, '/a,b'; rename"),
        ({"engine.adapters": [adapter("x", on_claim("c", "a=b"))]}, "'x' holds a comma or an equals sign"),
        (
            {"engine.adapters": [adapter("x", on_claim("c", "../b"))]},
            "'x': source.persistentVolumeClaim.path '../b' leaves the claim",
        ),
        (
            {"model.source": HUB, "engine.adapters": [adapter("x", on_claim("hub-cache", "x"))]},
            "'hub-cache' is a source of files and a cache of the hub; use two claims",
        ),
    ],
)
def test_what_contradicts_the_declared_adapters_is_refused(changes: dict[str, Any], says: str) -> None:
    assert pod({"engine.adapters": ADAPTERS})
    with pytest.raises(SpecError, match=says) as refused:
        pod({"engine.adapters": ADAPTERS, **changes})
    assert "'tiny'" in str(refused.value)
