"""Arguments and environment of each engine: what is refused in every spelling, what is not, and what the platform sets."""

from __future__ import annotations

import pytest

from cachescope.core.front_doors import forbidden
from cachescope.engines.catalogue import facts
from cachescope.engines.facts import EngineType, Mode
from cachescope.engines.routes import Capability
from cachescope.engines.settings_of import problems
from tests.unit.judged_pools import judged

VERSIONS = {
    "SGLang": "0.5.23",
    "TensorRT-LLM": "1.2.1",
    "llama.cpp": "b11549",
    "TGI": "3.3.6",
    "LMDeploy": "0.18.0",
    "vLLM": "0.32.0",
}
REFUSED = [
    ("SGLang", ["--config", "x.yaml"]),
    ("SGLang", ["--config=x.yaml"]),
    ("SGLang", ["--conf", "x.yaml"]),
    ("SGLang", ["--grpc-mode"]),
    ("SGLang", ["--smg-grpc-mode"]),
    ("SGLang", ["--grpc-port", "1"]),
    ("SGLang", ["--grpc_port=1"]),
    ("SGLang", ["--sidecar", "x"]),
    ("SGLang", ["--smg-http-sidecar-port", "1"]),
    ("SGLang", ["--tokenizer-worker-num", "2"]),
    ("SGLang", ["--tokenizer-worker-num=0"]),
    ("SGLang", ["--tokenizer-worker-num"]),
    ("SGLang", ["--tokenizer-worker", "2"]),
    ("SGLang", ["--tokenizer-worker-num", "1", "--tokenizer-worker-num", "2"]),
    ("SGLang", ["--fastapi-root-path", "/x"]),
    ("SGLang", ["--kv-events-config", "{}"]),
    ("SGLang", ["--kv-ev={}"]),
    ("SGLang", ["--load-publish-endpoint", "auto"]),
    ("SGLang", ["--log-requests"]),
    ("SGLang", ["--log-req"]),
    ("SGLang", ["--disaggregation-mode", "prefill"]),
    ("SGLang", ["--disaggregation-mode=decode"]),
    ("SGLang", ["--hicache-storage-backend-extra-config", "{}"]),
    ("SGLang", ["--enable-custom-logit-processor"]),
    ("SGLang", ["--enable-streaming-session"]),
    ("SGLang", ["--enable-session-radix-cache"]),
    ("SGLang", ["--trust-mm-content-hashes"]),
    ("SGLang", ["--disable-radix-cache"]),
    ("SGLang", ["--disable-radix"]),
    ("SGLang", ["--hicache-storage-backend", "file"]),
    ("SGLang", ["--enable-lm"]),
    ("SGLang", ["--enable-lmcache"]),
    ("SGLang", ["--lmcache-config-file", "x"]),
    ("SGLang", ["--enable-flexkv"]),
    ("SGLang", ["--radix-cache-backend", "x"]),
    ("SGLang", ["--crash-dump-folder", "/x"]),
    ("SGLang", ["--crash-dump=/x"]),
    ("SGLang", ["--grpc-http-sidecar-port", "1"]),
    ("SGLang", ["--max-loaded-loras", "1"]),
    ("SGLang", ["--enable-metrics"]),
    ("SGLang", ["--enable-cache-rep"]),
    ("TensorRT-LLM", ["--config", "x.yaml"]),
    ("TensorRT-LLM", ["--extra_llm_api_options", "x.yaml"]),
    ("TensorRT-LLM", ["--extra-llm-api-options=x.yaml"]),
    ("TensorRT-LLM", ["--grpc"]),
    ("TensorRT-LLM", ["--custom_tokenizer", "x.y"]),
    ("TensorRT-LLM", ["--set", "kv_cache_config.enable_block_reuse=true"]),
    ("TensorRT-LLM", ["--backend", "tensorrt"]),
    ("TensorRT-LLM", ["--middleware", "x.Y"]),
    ("TensorRT-LLM", ["--num_serve_frontends=2"]),
    ("TensorRT-LLM", ["--custom_module_dirs", "/x"]),
    ("TensorRT-LLM", ["--post_processor_hook", "x.y"]),
    ("TensorRT-LLM", ["--report_addr", "/x"]),
    ("TensorRT-LLM", ["--disagg_cluster_uri", "x"]),
    ("TensorRT-LLM", ["--metadata_server_config_file", "x"]),
    ("TensorRT-LLM", ["--server_role", "CONTEXT"]),
    ("llama.cpp", ["--slot-save-path", "/x"]),
    ("llama.cpp", ["--slot_save_path", "/x"]),
    ("llama.cpp", ["--lookup-cache-dynamic", "/x"]),
    ("llama.cpp", ["-lcd", "/x"]),
    ("llama.cpp", ["--api-prefix", "/x"]),
    ("llama.cpp", ["--models-dir", "/x"]),
    ("llama.cpp", ["--models-preset", "/x"]),
    ("llama.cpp", ["--tools", "all"]),
    ("llama.cpp", ["--agent"]),
    ("llama.cpp", ["-ag"]),
    ("llama.cpp", ["--mcp-servers-config", "/x"]),
    ("llama.cpp", ["--mcp-servers-json", "{}"]),
    ("llama.cpp", ["--webui-mcp-proxy"]),
    ("llama.cpp", ["--props"]),
    ("llama.cpp", ["--reuse-port"]),
    ("llama.cpp", ["--rpc", "x:1"]),
    ("llama.cpp", ["-v"]),
    ("llama.cpp", ["--log-verbose"]),
    ("llama.cpp", ["-lv", "5"]),
    ("llama.cpp", ["--verbosity", "4"]),
    ("llama.cpp", ["--lookup-cache-static", "/x"]),
    ("llama.cpp", ["-lcs", "/x"]),
    ("llama.cpp", ["--log-prompts-dir", "/x"]),
    ("llama.cpp", ["--lora", "/x"]),
    ("llama.cpp", ["--lora-scaled", "/x:1"]),
    ("llama.cpp", ["--lora-init-without-apply"]),
    *[
        ("llama.cpp", [option, "x"])
        for option in ("--model-url", "-mu", "--hf-repo", "-hf", "-hfr", "--docker-repo", "-dr", "-mmu")
    ],
    *[("llama.cpp", [option]) for option in ("--metrics", "--slots", "--no-slots", "--offline", "--no-cache-prompt")],
    ("TGI", ["--ngrok"]),
    ("TGI", ["--ngrok-authtoken", "x"]),
    ("TGI", ["--ngrok-edge", "x"]),
    ("TGI", ["--usage-stats", "on"]),
    ("LMDeploy", ["--proxy-url", "http://x"]),
    ("LMDeploy", ["--prox=http://x"]),
    ("LMDeploy", ["--role", "Prefill"]),
    ("LMDeploy", ["--allow-terminate-by-client"]),
    ("LMDeploy", ["--allow_terminate"]),
    ("LMDeploy", ["--kv-transfer-config", "{}"]),
    ("LMDeploy", ["--migration-backend", "x"]),
    ("LMDeploy", ["--disable-metrics"]),
    ("LMDeploy", ["--enable-prefix-caching"]),
]
ALLOWED = [
    ("SGLang", []),
    ("SGLang", ["--tp-size", "2", "--mem-fraction-static", "0.8"]),
    ("SGLang", ["--tokenizer-worker-num", "1"]),
    ("SGLang", ["--tokenizer-worker-num=1"]),
    ("SGLang", ["--disaggregation-mode", "null"]),
    ("SGLang", ["--log-requests-level", "3"]),
    ("SGLang", ["--enable-hierarchical-cache"]),
    ("TensorRT-LLM", ["--tp_size", "2"]),
    ("TensorRT-LLM", ["--conf", "x.yaml"]),  # it takes no beginnings of names
    ("llama.cpp", ["--ctx-size", "4096", "-np", "2", "-ngl", "all"]),
    ("llama.cpp", ["--verbosity", "3"]),
    ("llama.cpp", ["-lv", "0"]),
    ("llama.cpp", ["--cache-ram", "1024"]),
    ("TGI", ["--num-shard", "2"]),
    ("LMDeploy", ["--role", "Hybrid", "--tp", "2"]),
    ("custom", ["--config", "x.yaml"]),  # nobody can say what it means
]
VARIABLES = [
    ("SGLang", "SGLANG_GRPC_PORT", "30001"),
    ("llama.cpp", "LLAMA_ARG_SLOT_SAVE_PATH", "/x"),
    ("llama.cpp", "LLAMA_ARG_API_PREFIX", "/x"),
    ("llama.cpp", "LLAMA_ARG_MODELS_DIR", "/x"),
    ("llama.cpp", "LLAMA_ARG_MODELS_PRESET", "/x"),
    ("llama.cpp", "LLAMA_ARG_TOOLS", "all"),
    ("llama.cpp", "LLAMA_ARG_AGENT", "on"),
    ("llama.cpp", "LLAMA_ARG_MCP_SERVERS_CONFIG", "/x"),
    ("llama.cpp", "LLAMA_ARG_MCP_SERVERS_JSON", "{}"),
    ("llama.cpp", "LLAMA_ARG_UI_MCP_PROXY", "1"),
    ("llama.cpp", "LLAMA_ARG_ENDPOINT_PROPS", "enabled"),
    ("llama.cpp", "LLAMA_ARG_REUSE_PORT", "true"),
    ("llama.cpp", "LLAMA_ARG_RPC", "x:1"),
    ("llama.cpp", "LLAMA_ARG_LOG_VERBOSITY", "5"),
    ("TGI", "NGROK", "true"),
    ("TGI", "NGROK_AUTHTOKEN", "x"),
    ("TGI", "USAGE_STATS", "on"),
    ("TGI", "PREFIX_CACHING", "1"),
    ("TGI", "USE_PREFIX_CACHING", "1"),
    ("SGLang", "SGLANG_PLUGINS", "x"),
    ("llama.cpp", "LLAMA_ARG_CTX_SIZE", "4096"),
    ("llama.cpp", "LLAMA_API_KEY", "x"),
]


def _refused(engine: str, *args: str, env: dict[str, str] | None = None) -> list[str]:
    version = VERSIONS.get(engine, "1.0.0")
    return [problem.sentence for problem in judged(engine, version, *args, env=env).problems if Mode.SHARED in problem.modes]


@pytest.mark.parametrize(("engine", "args"), REFUSED)
def test_a_setting_is_refused_in_every_spelling_with_its_remedy(engine: str, args: list[str]) -> None:
    for arguments in (args, ["--host", "x", *args], [*args, "--port", "1"]):
        sentences = _refused(engine, *arguments)
        assert len(sentences) == 1
        assert args[0].partition("=")[0].replace("_", "-") in sentences[0]
        assert "; " in sentences[0]


@pytest.mark.parametrize(("engine", "args"), ALLOWED)
def test_what_is_harmless_is_not_refused(engine: str, args: list[str]) -> None:
    assert _refused(engine, *args) == []


@pytest.mark.parametrize(("engine", "name", "value"), VARIABLES)
def test_a_variable_that_means_the_same_is_refused_whatever_its_value(engine: str, name: str, value: str) -> None:
    for given in (value, "", "0", "false", "off"):
        (sentence,) = _refused(engine, env={name: given})
        assert sentence.startswith(f"{name} ")
        assert "; " in sentence
    assert _refused(engine, env={f"X_{name}": value}) == [], "the control"


def test_a_variable_of_vllm_is_off_where_its_guard_takes_it_so() -> None:
    for name in ("VLLM_SERVER_DEV_MODE", "VLLM_USE_RUST_FRONTEND"):
        assert len(_refused("vLLM", env={name: "1"})) == 1
        assert [_refused("vLLM", env={name: off}) for off in ("", "0", "false", "FALSE")] == [[]] * 4


def test_vllm_refuses_what_the_guard_refuses() -> None:
    args, env = ("--grpc", "--middleware", "x.Y", "--kv-events-config={}"), {"VLLM_SERVER_DEV_MODE": "1", "CUSTOM_PRE_PROCESS": "x"}
    expected = forbidden(args, env)
    assert len(expected) == 5
    assert tuple(problem.sentence for problem in judged("vLLM", "0.32.0", *args, env=env).problems) == expected


def test_each_setting_is_named_once() -> None:
    assert len(_refused("SGLang", "--grpc-mode", "--grpc-mode", "--sidecar", "x")) == 2


def test_reuse_that_lmdeploy_is_told_of_is_refused_in_each_mode_with_its_reason() -> None:
    off, reusing = judged("LMDeploy", "0.18.0", "--enable-prefix-caching").problems
    assert (off.modes, reusing.modes) == ((Mode.DISABLED,), (Mode.SHARED, Mode.PER_TENANT))
    assert "nothing switches it off again" in off.sentence
    assert reusing.sentence.startswith("--enable-prefix-caching is set by the platform: ")


def test_what_a_command_line_says_by_itself_is_refused_in_every_spelling_with_the_place_to_declare_it() -> None:
    def sentences(engine: EngineType, *args: str, env: dict[str, str] | None = None) -> list[str]:
        return [
            problem.sentence for problem in problems(facts(engine), args, env or {}, {"--model-path": "declare it in model.source"})
        ]

    for args in (["--model-path", "x"], ["--model_path=x"], ["--model", "x"], ["--model-p", "x"]):
        (found,) = sentences(EngineType.SGLANG, *args)
        assert found.endswith(" is set by the platform; declare it in model.source")
    assert sentences(EngineType.SGLANG, "--model-loader-extra-config", "{}") == [], "the control"
    assert len(sentences(EngineType.TGI, env={"MODEL_PATH": "x"})) == 1
    assert sentences(EngineType.SGLANG, env={"MODEL_PATH": "x"}) == [], "its options are no variables"


# Engine, mode, what the platform sets in it.
SET = [
    (
        "vLLM",
        Mode.SHARED,
        {"--enable-prefix-caching", "--prefix-caching-hash-algo", "--enable-prompt-tokens-details", "VLLM_PLUGINS"},
    ),
    (
        "vLLM",
        Mode.DISABLED,
        {"--no-enable-prefix-caching", "--prefix-caching-hash-algo", "--enable-prompt-tokens-details", "VLLM_PLUGINS"},
    ),
    ("SGLang", Mode.SHARED, {"SGLANG_PLUGINS", "--enable-cache-report", "--enable-metrics"}),
    ("SGLang", Mode.DISABLED, {"SGLANG_PLUGINS", "--enable-cache-report", "--enable-metrics", "--disable-radix-cache"}),
    ("llama.cpp", Mode.PER_TENANT, {"--no-slots", "--metrics", "--offline", "--cache-prompt"}),
    (
        "llama.cpp",
        Mode.DISABLED,
        {
            *("--no-slots", "--metrics", "--offline", "--no-cache-prompt", "--cache-ram", "--no-cache-idle-slots"),
            *("--slot-prompt-similarity", "--cache-reuse"),
        },
    ),
    ("TGI", Mode.PER_TENANT, {"--usage-stats"}),
    ("TGI", Mode.DISABLED, {"--usage-stats", "PREFIX_CACHING", "USE_PREFIX_CACHING"}),
    ("LMDeploy", Mode.PER_TENANT, {"--enable-prefix-caching"}),
    ("LMDeploy", Mode.DISABLED, set()),
    ("TensorRT-LLM", Mode.PER_TENANT, set()),
    ("custom", Mode.PER_TENANT, set()),
]


@pytest.mark.parametrize(("engine", "mode", "expected"), SET)
def test_the_platform_sets_what_a_mode_needs(engine: str, mode: Mode, expected: set[str]) -> None:
    found = judged(engine, VERSIONS.get(engine, "1.0.0")).overrides
    assert {item.setting for item in found if mode in item.modes} == expected
    assert all(item.instead_of == () for item in found)


# Engine, arguments, environment, setting of the platform, what counts for nothing.
AGAINST = [
    ("vLLM", ["--no-enable-prefix-caching"], {}, "--enable-prefix-caching", "--no-enable-prefix-caching"),
    ("vLLM", ["--no_enable_prefix_caching"], {}, "--enable-prefix-caching", "--no-enable-prefix-caching"),
    ("vLLM", ["--enable-prefix-caching"], {}, "--no-enable-prefix-caching", "--enable-prefix-caching"),
    (
        "vLLM",
        ["--prefix-caching-hash-algo=sha256_cbor"],
        {},
        "--prefix-caching-hash-algo",
        "--prefix-caching-hash-algo sha256_cbor",
    ),
    ("vLLM", [], {"VLLM_PLUGINS": "x"}, "VLLM_PLUGINS", "VLLM_PLUGINS=x"),
    ("llama.cpp", ["--slots"], {}, "--no-slots", "--slots"),
    ("llama.cpp", ["--no-cache-prompt"], {}, "--cache-prompt", "--no-cache-prompt"),
    ("llama.cpp", ["-cram", "4096"], {}, "--cache-ram", "-cram 4096"),
    ("TGI", [], {"USE_PREFIX_CACHING": "1"}, "USE_PREFIX_CACHING", "USE_PREFIX_CACHING=1"),
]


@pytest.mark.parametrize(("engine", "args", "env", "setting", "against"), AGAINST)
def test_what_is_given_against_the_platform_is_said(
    engine: str, args: list[str], env: dict[str, str], setting: str, against: str
) -> None:
    (found,) = (item for item in judged(engine, VERSIONS[engine], *args, env=env).overrides if item.setting == setting)
    assert found.instead_of == (against,)
    assert found.sentence.endswith(f"; {against} counts for nothing, so remove it")


def test_a_declared_hash_that_keeps_salts_apart_is_the_one_that_is_set() -> None:
    def hashed(name: str | None) -> str | None:
        (found,) = (
            item for item in judged("vLLM", "0.32.0", hashed=name).overrides if item.setting == "--prefix-caching-hash-algo"
        )
        return found.value

    assert [hashed(name) for name in (None, "sha256", "sha256_cbor", "xxhash")] == ["sha256", "sha256", "sha256_cbor", "sha256"]


def test_the_guard_and_the_catalogue_let_the_same_hashes_pass() -> None:
    hashes = facts(EngineType.VLLM).hashes
    assert hashes
    for item in hashes.algorithms:
        assert (forbidden((hashes.option, item.name), {}) == ()) is (item.capability is Capability.ENFORCED)


def test_a_value_is_shown_only_where_it_is_what_is_judged() -> None:
    secret = '{"token": "s3cret"}'
    for found in (
        _refused("llama.cpp", "--mcp-servers-json", secret),
        _refused("llama.cpp", env={"LLAMA_ARG_MCP_SERVERS_JSON": secret}),
    ):
        assert found
        assert "s3cret" not in "".join(found)
    assert _refused("LMDeploy", "--role", "Prefill")[0].startswith("--role Prefill moves")
