"""Front doors beside the guard: each is refused with a remedy, however it is written, and what is harmless is not."""

from __future__ import annotations

import pytest

from cachescope.core.front_doors import MIDDLEWARE, Option, forbidden, options
from cachescope.core.front_doors import REFUSED as FOR_PEOPLE

SERVE = ["serve", "/model"]
REFUSED = [
    ["--grpc"],
    ["--grpc-port", "1"],
    ["--grpc_port=1"],
    ["--headless"],
    ["--headle"],
    ["--config", "x.yaml"],
    ["--config=x.yaml"],
    ["--conf", "x.yaml"],
    ["--root-path", "/x"],
    ["--root_path=/x"],
    ["--api-server-count", "2"],
    ["--api_server_count=2"],
    ["--api-server-count", "0"],
    ["--api-server-count"],
    ["--api-server-count", "1", "--api-server-count", "2"],
    ["--api-server", "2"],
    ["-asc", "2"],
    ["-asc=2"],
    ["-as", "2"],
    ["--data-parallel-size", "2"],
    ["-dp", "2"],
    ["-dp=2", "--api-server-count"],
    ["-dph"],
    ["-dpm"],
    ["-dpr", "1"],
    ["--middleware", "other.Middleware"],
    ["--middleware=other.Middleware"],
    ["--middleware", MIDDLEWARE, "--middleware", "other.Middleware"],
    ["--middleware", "other.Middleware", "--middleware", MIDDLEWARE],
    ["--middle", "other.Middleware"],
    ["--enable-scale-out"],
    ["--enable_scale_out"],
    ["--kv-events-config", "{}"],
    ["--kv_events_config.enable_kv_cache_events", "true"],
    ["--kv-transfer-config", "{}"],
    ["--kv-transfer-config.kv_connector+", "x"],
    ["--ec-transfer-config={}"],
    ["--default-mm-loras", "{}"],
    ["--default_mm_loras.image=/x"],
    ["--enable-lor"],
    ["--lora-mod", "x=/x"],
    ["--max-cpu-lora", "1"],
    ["--max-lora", "1"],
    ["--prefix-caching-hash-algo", "xxhash"],
    ["--prefix_caching_hash_algo=xxhash_cbor"],
    ["--prefix-caching-hash-algo"],
    ["--prefix-caching", "xxhash"],
    ["--log-level", "DEBUG"],
    ["--log_level=debug"],
    ["--log-level", "NOTSET"],
    ["--log-l", "DEBUG"],
    ["--log-level", "INFO", "--log-level", "DEBUG"],
    ["--logging-config", '{"log_level": "DEBUG"}'],
    ["--logging_config.log_level", "DEBUG"],
    ["--logging-config.pylogging_config_file=/x.json"],
    ["--log-config-file", "/x.json"],
    ["--enable-log-requests", "--enable-log-outputs"],
    ["--log-error-stack"],
    ["--model-class-overrides", '{"A": "x:B"}'],
    ["--model_class_overrides.A=x:B"],
    ["--ec-manager-config", "{}"],
    ["--distributed-executor-backend", "x.Executor"],
    ["--distributed-exec=x.Executor"],
    ["--hf-config", "/x"],
    ["--generation-conf=/x"],
]
ALLOWED = [
    [],
    ["--middleware", MIDDLEWARE],
    [f"--middleware={MIDDLEWARE}"],
    ["--api-server-count", "1"],
    ["-asc=1"],
    ["--data-parallel-size", "1"],
    ["-dp", "2", "--api-server-count", "1"],
    ["--prefix-caching-hash-algo", "sha256"],
    ["--prefix_caching_hash_algo=sha256_cbor"],
    ["--disable-frontend-multiprocessing"],
    ["--config-format", "hf"],
    ["--enable-lora", "--max-cpu-loras", "1", "--max-loras", "1", "--lora-modules", "x=/x"],
    ["--max-lora-rank", "8", "--lora-dtype", "bfloat16"],
    ["--enable-prompt-tokens-details"],
    ["--max-model-len", "4096", "--dtype", "bfloat16", "-tp", "2"],
    ["--enable-log-requests"],
    ["--distributed-executor-backend", "mp"],
    ["--log-level", "INFO"],
    ["--tokenizer-mode", "slow", "--tokenizer", "/x", "--chat-template-content-format", "string", "--hf-config-path", "/x"],
    ["--log_level=warning"],
    ["--no-enable-prefix-caching"],
]
REFUSED_VARIABLES = [
    "VLLM_USE_RUST_FRONTEND",
    "VLLM_SERVER_DEV_MODE",
    "VLLM_PLUGINS",
    "VLLM_MODEL_REDIRECT_PATH",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
    "CUSTOM_FASTAPI_MIDDLEWARE_THROTTLE",
    "CUSTOM_FASTAPI_MIDDLEWARE_PRE_POST_PROCESS",
    "CUSTOM_FASTAPI_PING_HANDLER",
    "CUSTOM_PRE_PROCESS",
    "CUSTOM_POST_PROCESS",
    "CUSTOM_SCRIPT_FILENAME",
    "SAGEMAKER_ENABLE_STATEFUL_SESSIONS",
    "SAGEMAKER_MODEL_PATH",
    "PYTHONHOME",
    "PYTHONUSERBASE",
]


@pytest.mark.parametrize("args", REFUSED, ids=" ".join)
def test_another_front_door_is_refused_with_a_remedy(args: list[str]) -> None:
    for arguments in ([*SERVE, *args], [*args, "--model", "/model"]):
        sentences = forbidden(arguments, {})
        assert sentences
        assert all("; " in sentence for sentence in sentences)


@pytest.mark.parametrize("args", ALLOWED, ids=" ".join)
def test_harmless_arguments_are_allowed(args: list[str]) -> None:
    assert forbidden([*SERVE, *args], {}) == ()


@pytest.mark.parametrize("name", REFUSED_VARIABLES)
def test_a_variable_that_opens_a_door_is_refused(name: str) -> None:
    for value in ("1", "true", "x"):
        (sentence,) = forbidden(SERVE, {name: value})
        assert sentence.startswith(name)


@pytest.mark.parametrize("name", REFUSED_VARIABLES)
def test_a_variable_that_is_off_is_allowed(name: str) -> None:
    for value in ("", "0", "false", "False"):
        assert forbidden(SERVE, {name: value}) == ()


def test_the_python_path_is_only_the_guards_own_folder() -> None:
    assert forbidden(SERVE, {"PYTHONPATH": "/guard"}, python_path="/guard") == ()
    for value in ("/other", "/other:/guard", "/guard:/other", "/guard/"):
        assert len(forbidden(SERVE, {"PYTHONPATH": value}, python_path="/guard")) == 1
    assert len(forbidden(SERVE, {"PYTHONPATH": "/guard"})) == 1


@pytest.mark.parametrize("args", [[], ["--enable-log-requests"]], ids=" ".join)
def test_a_level_at_which_the_engine_logs_whole_requests_is_refused(args: list[str]) -> None:
    for value in ("DEBUG", "debug", "NOTSET"):
        (sentence,) = forbidden([*SERVE, *args], {"VLLM_LOGGING_LEVEL": value})
        assert "prompts and salts" in sentence
    for value in ("", "INFO", "warning"):
        assert forbidden([*SERVE, *args], {"VLLM_LOGGING_LEVEL": value}) == ()


def test_every_door_is_named_once() -> None:
    sentences = forbidden([*SERVE, "--headless", "--headless", "--grpc"], {"VLLM_SERVER_DEV_MODE": "1"})
    assert [sentence.split(" ", 1)[0] for sentence in sentences] == ["--headless", "--grpc", "VLLM_SERVER_DEV_MODE"]


def test_options_are_read_as_the_engine_reads_them() -> None:
    found = list(options(["serve", "/m", "--a_b=c_d=e", "--x.y_z", "1", "--flag", "--last", "-asc", "2", "-", "--"]))
    expected = [("--a-b", "c_d=e"), ("--x", "1"), ("--flag", None), ("--last", None), ("--api-server-count", "2")]
    assert found == [Option(name, value) for name, value in expected]
    assert [option.key for option in found] == ["", "y_z", "", "", ""]


def test_people_are_told_of_every_setting_that_is_refused_whatever_its_value() -> None:
    for name in FOR_PEOPLE:
        given = ([name], {}) if name.startswith("--") else ([], {name.replace("*", "X"): "1"})
        (sentence,) = forbidden(*given)
        assert sentence.endswith(FOR_PEOPLE[name])
