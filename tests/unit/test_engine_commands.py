"""How each engine is started: what its command line must and must not hold, with reuse and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from cachescope.api.pools import EngineName
from cachescope.core.errors import SpecError
from cachescope.engines.catalogue import facts
from cachescope.manifests.engine import DRAIN_SECONDS, ENDPOINT_REMOVAL_SECONDS, GRACE_SECONDS
from cachescope.manifests.engine_command import variables
from cachescope.manifests.engines.known import ENGINES
from cachescope.manifests.engines.launch import FILES_FOLDER, LOOPBACK, Drain, modes_of
from tests.unit import make_engine_golden
from tests.unit.engine_pools import ON_CLAIM, OTHERS, USERS, arguments, children, engine_pool, serving, template
from tests.unit.pools import environment

ALL = sorted(ENGINES)
MODEL, NAME = "/models/claim/tiny", "tiny"

# What must be there with reuse, and what must be there without it and only then.
MUST: dict[str, tuple[list[str], list[str]]] = {
    "vLLM": (
        ["--model", MODEL, "--served-model-name", NAME, "--host", LOOPBACK, "--port", "8001", "--enable-prefix-caching"],
        ["--no-enable-prefix-caching"],
    ),
    "SGLang": (
        ["--model-path", MODEL, "--served-model-name", NAME, "--host", LOOPBACK, "--port", "8001", "--enable-metrics"],
        ["--disable-radix-cache"],
    ),
    "TensorRT-LLM": (
        ["serve", MODEL, "--served_model_name", NAME, "--host", LOOPBACK, "--port", "8001", "--extra_llm_api_options"],
        [],
    ),
    "TGI": (["--model-id", MODEL, "--hostname", LOOPBACK, "--port", "8001", "--usage-stats", "off"], []),
    "LMDeploy": (
        ["serve", "api_server", MODEL, "--model-name", NAME, "--server-name", LOOPBACK, "--server-port", "8001"],
        [],
    ),
    "llama.cpp": (
        ["--model", MODEL, "--alias", NAME, "--host", LOOPBACK, "--port", "8001", "--metrics", "--no-slots", "--offline"],
        ["--no-cache-prompt", "--cache-ram", "--no-cache-idle-slots", "--slot-prompt-similarity", "--cache-reuse"],
    ),
    "custom": ([f"--model={MODEL}", "--name", NAME, "--listen", f"{LOOPBACK}:8001"], []),
}
ONLY_WITH_REUSE = {"vLLM": ["--enable-prefix-caching"], "LMDeploy": ["--enable-prefix-caching"], "llama.cpp": ["--cache-prompt"]}
# Options by which something would outlive the process: a disk, another process, another machine.
OUTLIVING = {
    "vLLM": ["--kv-transfer-config", "--kv-offloading-backend"],
    "SGLang": ["--hicache-storage-backend", "--enable-lmcache", "--enable-flexkv", "--crash-dump-folder"],
    "TensorRT-LLM": ["--config", "--extra_llm_api_options", "--set", "--disagg_cluster_uri"],
    "LMDeploy": ["--kv-transfer-config", "--migration-backend", "--role"],
    "llama.cpp": ["--slot-save-path", "--lookup-cache-dynamic", "-lcd", "--log-prompts-dir"],
    "TGI": [],
    "custom": [],
}


def _problems(engine: str, env: dict[str, str] | None = None, **changes: Any) -> list[str]:
    return list(ENGINES[engine].problems(serving(engine, **changes), env or {}))


def _container(engine: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = template(engine, changes)["spec"]["containers"][0]
    return found


def _spellings(option: str) -> Iterator[tuple[str, ...]]:
    yield (option, "x")
    yield (f"{option}=x",)
    if option.startswith("--"):
        yield ("--" + option.removeprefix("--").replace("-", "_"),)


@pytest.mark.parametrize("engine", OTHERS)
def test_the_pods_of_an_engine_are_as_in_its_file(engine: str) -> None:
    assert make_engine_golden.written(engine) == make_engine_golden.path(engine).read_text(), make_engine_golden.HOW


def test_the_api_accepts_every_engine_that_the_operator_can_start() -> None:
    assert sorted(get_args(EngineName)) == ALL


@pytest.mark.parametrize("engine", ALL)
def test_a_command_line_holds_what_it_must(engine: str) -> None:
    always, without = MUST[engine]
    reusing, fresh = arguments(engine), arguments(engine, reuse=False)
    only = ONLY_WITH_REUSE.get(engine, [])
    assert [part for part in always if part not in reusing] == []
    assert [part for part in always if part not in fresh and part not in only] == []
    assert [part for part in without if part not in fresh] == []
    assert [part for part in without if part in reusing] == []
    assert [part for part in only if part not in reusing or part in fresh] == []


@pytest.mark.parametrize("engine", sorted(set(ALL) - {"custom"}))
def test_without_reuse_an_engine_is_told_something_else(engine: str) -> None:
    def told(*, reuse: bool) -> object:
        asked, known = serving(engine, reuse=reuse), ENGINES[engine]
        return known.arguments(asked), dict(known.fixed(asked)), dict(known.files(asked))

    assert told(reuse=True) != told(reuse=False)


@pytest.mark.parametrize("engine", sorted(set(ALL) - {"custom"}))
def test_the_platforms_options_follow_the_users(engine: str) -> None:
    made = arguments(engine)
    last_of_users = max(made.index(argument) for argument in USERS[engine])
    assert made.index(LOOPBACK) > last_of_users


@pytest.mark.parametrize("engine", OTHERS)
def test_an_engine_behind_its_guard_listens_on_loopback_alone(engine: str) -> None:
    container = _container(engine)
    words = " ".join(container.get("command") or container["args"])
    assert (LOOPBACK in words, "0.0.0.0" in words) == (True, False)  # noqa: S104 - what is looked for
    assert "ports" not in container


@pytest.mark.parametrize("engine", ALL)
def test_what_people_may_add_is_accepted(engine: str) -> None:
    assert _problems(engine) == []


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("engine", sorted(set(ALL) - {"custom", "vLLM"}))
def test_what_the_platform_sets_or_refuses_nobody_else_may_give(engine: str, *, reuse: bool) -> None:
    for option in _taken(engine, reuse=reuse):
        for spelling in _spellings(option):
            (problem,) = _problems(engine, args=(*USERS[engine], *spelling), reuse=reuse)
            assert problem.startswith(f"{option} "), spelling
            assert ";" in problem, "it says what to do"


def _taken(engine: str, *, reuse: bool) -> list[str]:
    """Options that the catalogue refuses or demands in these modes, and those that the command line says by itself."""
    known, modes = facts(ENGINES[engine].type), modes_of(serving(engine, reuse=reuse))
    found = [*ENGINES[engine].owned]
    found += [rule.option for rule in known.refused if rule.option and modes & set(rule.modes)]
    found += [name for rule in known.overrides if modes & set(rule.modes) for name in (rule.setting, *rule.opposes)]
    return [name for name in dict.fromkeys(found) if name.startswith("-")]


# Engine, what somebody gives, what he does instead.
OWNED = [
    ("SGLang", ["--model-path", "/x"], "model.source"),
    ("SGLang", ["--model", "/x"], "model.source"),
    ("SGLang", ["--served-model-n", "x"], "model.name"),
    ("SGLang", ["--lora-paths", "x=/x"], "engine.adapters"),
    ("SGLang", ["--host=0.0.0.0"], "remove it"),
    ("TensorRT-LLM", ["--served_model_name", "x"], "model.name"),
    ("TensorRT-LLM", ["--port", "1"], "remove it"),
    ("TGI", ["--model-id", "x"], "model.source"),
    ("TGI", ["-p", "1"], "remove it"),
    ("TGI", ["--lora-adapters", "x"], "engine.adapters"),
    ("LMDeploy", ["--model-name", "x"], "model.name"),
    ("LMDeploy", ["--adapters", "x"], "engine.adapters"),
    ("LMDeploy", ["--server-p", "1"], "remove it"),
    ("llama.cpp", ["--model", "x"], "model.source"),
    ("llama.cpp", ["-m", "x"], "model.source"),
    ("llama.cpp", ["-a", "x"], "model.name"),
    ("vLLM", ["--lora-modules", "x=/x"], "engine.adapters"),
    ("vLLM", ["--enable_lora"], "engine.adapters"),
]


@pytest.mark.parametrize(("engine", "args", "remedy"), OWNED)
def test_what_the_command_line_says_by_itself_is_declared_elsewhere(engine: str, args: list[str], remedy: str) -> None:
    (problem,) = _problems(engine, args=(*USERS[engine], *args))
    assert "is set by the platform; " in problem
    assert remedy in problem


@pytest.mark.parametrize(("engine", "option"), [(engine, option) for engine in ALL for option in OUTLIVING[engine]])
def test_nothing_may_outlive_the_process(engine: str, option: str) -> None:
    assert len(_problems(engine, args=(option, "/x"))) == 1
    assert option not in [*arguments(engine, args=()), *arguments(engine, args=(), reuse=False)] or engine == "TensorRT-LLM"


@pytest.mark.parametrize("engine", ["LMDeploy", "SGLang"])
def test_the_beginning_of_an_option_is_refused_where_the_engine_takes_it(engine: str) -> None:
    for option in _taken(engine, reuse=True):
        assert _problems(engine, args=(*USERS[engine], option[:-1], "x")), option[:-1]
    assert _problems("llama.cpp", args=("--lor", "x")) == [], "the control: it takes none"


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *[("llama.cpp", name) for name in ("LLAMA_ARG_SLOT_SAVE_PATH", "LLAMA_ARG_HOST", "LLAMA_API_KEY")],
        *[("TGI", name) for name in ("HOSTNAME", "PORT", "MODEL_ID", "LORA_ADAPTERS", "PREFIX_CACHING", "USAGE_STATS")],
        ("SGLang", "SGLANG_GRPC_PORT"),
    ],
)
def test_a_variable_that_is_an_option_is_refused(engine: str, name: str) -> None:
    assert _problems(engine, {"OMP_NUM_THREADS": "2"}) == []
    (problem,) = _problems(engine, {name: "x"})
    assert problem.startswith(f"{name} ")
    with pytest.raises(SpecError, match=name):
        template(engine, {"engine.env": {name: "x"}})


def test_tgi_reuses_nothing_whichever_variable_its_release_reads() -> None:
    fixed = ENGINES["TGI"].fixed
    assert fixed(serving("TGI", reuse=False)) == {"PREFIX_CACHING": "0", "USE_PREFIX_CACHING": "0"}
    assert fixed(serving("TGI")) == {}


def test_tgi_would_take_another_model_name_for_an_adapter() -> None:
    (problem,) = _problems("TGI", name="tiny")
    assert problem.endswith("set model.name tgi")


@pytest.mark.parametrize("reuse", [True, False])
def test_tensorrt_llm_reads_from_its_file_whether_it_reuses(*, reuse: bool) -> None:
    asked = serving("TensorRT-LLM", reuse=reuse)
    ((name, text),) = ENGINES["TensorRT-LLM"].files(asked).items()
    assert json.loads(text) == {"kv_cache_config": {"enable_block_reuse": reuse}, "return_perf_metrics": True}
    assert arguments("TensorRT-LLM", reuse=reuse)[-2:] == ["--extra_llm_api_options", f"{FILES_FOLDER}/{name}"]


def test_a_file_is_an_annotation_of_the_pod_and_mounted_where_the_engine_is_told() -> None:
    made = template("TensorRT-LLM")
    ((key, text),) = made["metadata"]["annotations"].items()
    (volume,) = [item for item in made["spec"]["volumes"] if "downwardAPI" in item]
    (item,) = volume["downwardAPI"]["items"]
    assert item == {"path": "options.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
    assert json.loads(text)["kv_cache_config"] == {"enable_block_reuse": True}
    mounts = {mount["name"]: mount for mount in made["spec"]["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]] == {"name": volume["name"], "mountPath": FILES_FOLDER, "readOnly": True}
    assert "annotations" not in template("SGLang")["metadata"], "the control"


@pytest.mark.parametrize(
    ("engine", "option", "own"),
    [
        ("SGLang", "--tp-size", ("--tp", "4")),
        ("TensorRT-LLM", "--tp_size", ("--tensor_parallel_size", "2")),
        ("TGI", "--num-shard", ("--sharded", "false")),
        ("LMDeploy", "--tp", ("--dp=2",)),
    ],
)
def test_a_model_is_spread_over_the_pods_gpus_unless_people_say_how(engine: str, option: str, own: tuple[str, ...]) -> None:
    made = arguments(engine, gpus=4)
    assert made[made.index(option) + 1] == "4"
    assert option not in arguments(engine, gpus=1)
    assert option not in arguments(engine)
    given = arguments(engine, gpus=4, args=(*USERS[engine], *own))
    assert "4" not in [word for word in given if word not in own]
    assert given.count(option) == int(option in own)


@pytest.mark.parametrize("engine", ALL)
def test_adapters_are_offered_by_the_engines_own_option_or_not_at_all(engine: str) -> None:
    known, paths = ENGINES[engine], {"sql": "/models/adapter-1/sql"}
    problems = _problems(engine, adapters=paths)
    if known.adapters.asked_as:
        assert (problems, known.adapters.why_not) == ([], "")
        assert any("sql=/models/adapter-1/sql" in argument for argument in arguments(engine, adapters=paths))
    else:
        assert problems == [known.adapters.why_not]
        assert "pool" in known.adapters.why_not, "it says what to do"
    assert not any("sql" in argument for argument in arguments(engine)), "the control"


def test_an_adapter_of_lmdeploy_makes_it_the_engine_that_serves_adapters() -> None:
    assert "pytorch" in arguments("LMDeploy", adapters={"sql": "/a"})
    assert "pytorch" not in arguments("LMDeploy")


@pytest.mark.parametrize("engine", OTHERS)
def test_a_pool_with_adapters_is_rendered_or_refused_with_the_reason(engine: str) -> None:
    if engine == "vLLM":
        assert template(engine, {"engine.adapters": ON_CLAIM})
        return
    with pytest.raises(SpecError, match="give it a pool") as refused:
        template(engine, {"engine.adapters": ON_CLAIM})
    assert ENGINES[engine].adapters.why_not in str(refused.value)


@pytest.mark.parametrize("engine", OTHERS)
def test_no_engine_but_vllm_can_be_without_a_guard_beside_it(engine: str) -> None:
    assert not ENGINES[engine].takes_guard
    with pytest.raises(SpecError, match=r"set guard\.mode Sidecar"):
        template(engine, {"guard": {"mode": "InProcess"}})


@pytest.mark.parametrize("engine", OTHERS)
def test_running_requests_get_their_time_within_the_grace(engine: str) -> None:
    known, container = ENGINES[engine], _container(engine)
    slept = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert known.drain is not Drain.BY_OPTION
    assert slept == ENDPOINT_REMOVAL_SECONDS + (DRAIN_SECONDS if known.drain is Drain.BEFORE_SIGNAL else 0)
    assert slept < template(engine)["spec"]["terminationGracePeriodSeconds"] == GRACE_SECONDS


@pytest.mark.parametrize("engine", OTHERS)
def test_an_engine_is_asked_for_its_health_where_it_can_be(engine: str) -> None:
    known, container = ENGINES[engine], _container(engine)
    for name in ("startupProbe", "livenessProbe"):
        probe = container[name]
        if known.asks_itself:
            assert f"{LOOPBACK}:8001{known.health}" in probe["exec"]["command"][-1]
        else:
            assert (probe["httpGet"]["path"], probe["httpGet"]["port"]) == (known.health, 8000), "the guard passes it on"


@pytest.mark.parametrize("engine", OTHERS)
def test_a_pool_has_the_same_objects_whatever_its_engine(engine: str) -> None:
    assert [item["kind"] for item in children(engine)] == [item["kind"] for item in children("vLLM")]


@pytest.mark.parametrize("engine", OTHERS)
def test_a_guard_is_told_of_metrics_that_are_elsewhere(engine: str) -> None:
    guard = next(item for item in template(engine)["spec"]["initContainers"] if item["name"] == "guard")
    told = environment(guard).get("CACHESCOPE_UPSTREAM_METRICS", "/metrics")
    assert told == (ENGINES[engine].metrics or "/metrics")


@pytest.mark.parametrize("engine", OTHERS)
def test_what_an_engine_writes_goes_with_its_pod(engine: str) -> None:
    spec = template(engine, {"sharedMemory": "1Gi"})["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (container,) = spec["containers"]
    writable = [mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert sorted(writable) == ["home", "shm", "tmp"]
    assert all("emptyDir" in volumes[name] for name in writable)


@pytest.mark.parametrize("engine", OTHERS)
def test_an_engine_fetches_nothing_and_cannot_be_made_to(engine: str) -> None:
    assert variables(engine_pool(engine))["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(SpecError, match="HF_HUB_OFFLINE"):
        template(engine, {"engine.env": {"HF_HUB_OFFLINE": "0"}})


def test_an_engine_of_its_images_entry_point_gets_arguments_alone() -> None:
    container = _container("custom")
    assert "command" not in container
    assert container["args"] == [f"--model={MODEL}", "--name", NAME, "--listen", f"{LOOPBACK}:8001"]
    assert "args" not in _container("llama.cpp"), "the control"


@pytest.mark.parametrize("missing", ["{host}", "{port}"])
def test_a_custom_engine_that_is_not_told_where_to_listen_is_refused(missing: str) -> None:
    args = tuple(argument.replace(missing, "x") for argument in USERS["custom"])
    (problem,) = _problems("custom", args=args)
    assert missing in problem


def test_what_a_placeholder_becomes_is_no_placeholder() -> None:
    made = arguments("custom", args=("{name}{name}", "{port}/{host}/{model}"), name="{port}{model}")
    assert made == ["{port}{model}{port}{model}", f"8001/{LOOPBACK}/{MODEL}"]


def test_the_reuse_of_a_custom_engine_cannot_be_switched_off() -> None:
    (problem,) = _problems("custom", reuse=False)
    assert problem.endswith("; use isolation PerTenant")
