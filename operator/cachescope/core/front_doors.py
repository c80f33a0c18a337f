"""Front doors: settings of an engine that would let a request pass beside its guard, or past what the guard checked.

Rules:

- one function judges arguments and environment, for whoever renders a pool and for the guard that finds itself in a process;
- arguments are read as vLLM reads them: `--a b` and `--a=b`, underscores or dashes, `--a.key b`, and unambiguous abbreviations;
- the guard wraps one API server process that serves HTTP; whatever starts another server, or several, is refused;
- a variable whose value is empty, `0` or `false` is off.

Read from vLLM 0.32.0: `entrypoints/cli/serve.py`, `entrypoints/launchers/cli_args.py`, `utils/argparse_utils.py`, and the container
standards package that it imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MIDDLEWARE = "cachescope.guard.asgi.Guard"
"""The import path of the guard, as `--middleware` takes it."""

_EXECUTORS = frozenset({"ray", "mp", "uni", "external_launcher"})
_ENFORCING_HASHES = frozenset({"sha256", "sha256_cbor"})
_OFF = frozenset({"", "0", "false"})
_LOG_LEVEL = "VLLM_LOGGING_LEVEL"
_QUIET_LEVELS = frozenset({"", "INFO", "WARNING", "ERROR", "CRITICAL"})

_REFUSED_OPTIONS = {
    "--grpc": "serves gRPC, which no guard sees; remove it",
    "--grpc-port": "serves gRPC, which no guard sees; remove it",
    "--headless": "starts no API server that a guard could wrap; remove it",
    "--config": "reads arguments from a file that nobody checked; pass them as arguments",
    "--root-path": "makes the engine read another path than the permit names; remove it",
    "--enable-scale-out": "opens routes that take tokens and echo salts; remove it",
    "--kv-events-config": "publishes tokens and salts on a socket of its own; remove it",
    "--kv-transfer-config": "moves cache blocks to stores whose isolation is not proven; remove it",
    "--kv-offloading-size": "moves cache blocks to stores whose isolation is not proven; remove it",
    "--kv-offloading-backend": "moves cache blocks to stores whose isolation is not proven; remove it",
    "--worker-cls": "loads code into the engine that nobody checked; remove it",
    "--worker-extension-cls": "loads code into the engine that nobody checked; remove it",
    "--scheduler-cls": "loads code into the engine that nobody checked; remove it",
    "--ec-manager-config": "loads code into the engine that nobody checked; remove it",
    "--model-class-overrides": "loads code into the engine that nobody checked; remove it",
    "--logits-processors": "loads code into the engine that nobody checked; remove it",
    "--tool-parser-plugin": "loads code into the engine that nobody checked; remove it",
    "--reasoning-parser-plugin": "loads code into the engine that nobody checked; remove it",
    "--io-processor-plugin": "loads code into the engine that nobody checked; remove it",
    "--log-config-file": "loads code and log settings that nobody checked; remove it",
    "--logging-config": "loads code and log settings that nobody checked; remove it",
    "--enable-log-outputs": "writes answers to the log; remove it",
    "--log-error-stack": "writes requests that are not valid to the log, prompts and salts with them; remove it",
    "--default-mm-loras": "loads adapters that no request names and no record holds; remove it",
    "--ec-transfer-config": "moves encoder outputs, which no salt separates; remove it",
    "--data-parallel-multi-port-external-lb": "starts several API servers; run one replica of the pool for each",
    "--data-parallel-hybrid-lb": "starts several API servers; run one replica of the pool for each",
    "--data-parallel-start-rank": "starts several API servers; run one replica of the pool for each",
}
_ALIASES = {
    "-asc": "--api-server-count",
    "-dp": "--data-parallel-size",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpr": "--data-parallel-start-rank",
}
_JUDGED_BY_VALUE = (
    "--api-server-count",
    "--data-parallel-size",
    "--distributed-executor-backend",
    "--middleware",
    "--prefix-caching-hash-algo",
    "--log-level",
)
_READ_BY_ADAPTERS = ("--enable-lora", "--lora-modules", "--max-cpu-loras", "--max-loras")
_READ_BY_DIGESTS = ("--tokenizer", "--chat-template", "--hf-config-path", "--generation-config")
_WHOLE = frozenset({"--model"})
"""Options that another one here begins with."""
_NEVER_ABBREVIATED = (*_REFUSED_OPTIONS, *_JUDGED_BY_VALUE, *_READ_BY_ADAPTERS, *_READ_BY_DIGESTS)
_REFUSED_VARIABLES = {
    "VLLM_USE_RUST_FRONTEND": "starts a front end that loads no middleware; unset it",
    "VLLM_SERVER_DEV_MODE": "opens routes that control the engine; unset it",
    "VLLM_PLUGINS": "loads code into the engine that nobody checked; leave it to the platform, which sets it to nothing",
    "VLLM_MODEL_REDIRECT_PATH": "loads another model than the one that is digested; unset it",
    "VLLM_LOGGING_CONFIG_PATH": "loads code and log settings that nobody checked; unset it",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets a request change what the engine loaded; declare adapters in the pool",
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": "writes answers to the log; unset it",
    "CUSTOM_PRE_PROCESS": "changes bodies after the guard checked them; unset it",
    "CUSTOM_POST_PROCESS": "changes answers; unset it",
    "CUSTOM_SCRIPT_FILENAME": "loads code into the engine that nobody checked; unset it",
    "PYTHONHOME": "replaces the interpreter's library; unset it",
    "PYTHONUSERBASE": "loads code into the engine that nobody checked; unset it",
}
_REFUSED_PREFIXES = {
    "CUSTOM_FASTAPI_": "puts code around the guard or changes bodies behind it; unset it",
    "SAGEMAKER_": "adds routes and sessions that the guard does not know; unset it",
}

REFUSED: Mapping[str, str] = {
    **_REFUSED_OPTIONS,
    **_REFUSED_VARIABLES,
    **{f"{prefix}*": reason for prefix, reason in _REFUSED_PREFIXES.items()},
}
"""What is refused whatever its value, by name, and why; for people. Some more are refused by their value."""


@dataclass(frozen=True)
class Option:
    """One option of a command line.

    Attributes:
        name: With dashes, without the part after a dot: `--kv-transfer-config` for `--kv_transfer_config.role`.
        value: What follows it, or `None`.
        key: The part after a dot: `role` in that example.
    """

    name: str
    value: str | None
    key: str = field(default="", compare=False)


def options(args: Sequence[str]) -> Iterator[Option]:
    """The options of a command line, as vLLM's parser reads them."""
    for index, argument in enumerate(args):
        if not argument.startswith("-") or argument in {"-", "--"}:
            continue
        written, equals, joined = argument.partition("=")
        following = args[index + 1] if index + 1 < len(args) and not args[index + 1].startswith("-") else None
        whole, _, key = written.partition(".")
        name = whole.replace("_", "-")
        yield Option(_ALIASES.get(name, name), joined if equals else following, key)


def forbidden(args: Sequence[str], env: Mapping[str, str], *, python_path: str = "") -> tuple[str, ...]:
    """Say what must not be set beside a guard.

    Args:
        args: The engine's arguments, without the program.
        env: The engine's environment.
        python_path: The one value that `PYTHONPATH` may have: the folder that holds the guard.

    Returns:
        One sentence each, with the remedy; empty when the guard is the only way in.
    """
    found = list(options(args))
    sentences = [sentence for option in found for sentence in _option_problems(option)]
    sentences += _data_parallel_problems(found)
    sentences += _log_problems(found, env)
    sentences += [sentence for name, value in sorted(env.items()) for sentence in _variable_problems(name, value, python_path)]
    return tuple(dict.fromkeys(sentences))


def _option_problems(option: Option) -> Iterator[str]:
    whole = _abbreviated(option.name)
    if whole:
        yield f"{option.name} abbreviates {whole}; write options in full"
    elif option.name in _REFUSED_OPTIONS:
        yield f"{option.name} {_REFUSED_OPTIONS[option.name]}"
    elif option.name == "--middleware" and option.value != MIDDLEWARE:
        yield f"--middleware {option.value} could answer or change requests beside the guard; only {MIDDLEWARE} may be given"
    elif option.name == "--api-server-count" and option.value != "1":
        yield f"--api-server-count {option.value} starts another number of API servers than one; remove it"
    elif option.name == "--distributed-executor-backend" and option.value not in _EXECUTORS:
        yield f"--distributed-executor-backend {option.value} loads code nobody checked; use {', '.join(sorted(_EXECUTORS))}"
    elif option.name == "--prefix-caching-hash-algo" and option.value not in _ENFORCING_HASHES:
        yield f"--prefix-caching-hash-algo {option.value} can collide across salts; use sha256 or sha256_cbor"


def _abbreviated(name: str) -> str | None:
    if name in _NEVER_ABBREVIATED or name in _WHOLE or len(name.strip("-")) == 0:
        return None
    if name.startswith("--"):
        return next((whole for whole in _NEVER_ABBREVIATED if whole.startswith(name)), None)
    return "-asc" if name in {"-a", "-as"} else None


def _data_parallel_problems(found: Sequence[Option]) -> Iterator[str]:
    one_server = any(option.name == "--api-server-count" and option.value == "1" for option in found)
    for option in found:
        if option.name == "--data-parallel-size" and option.value != "1" and not one_server:
            yield f"--data-parallel-size {option.value} starts as many API servers; add --api-server-count 1"


def _log_problems(found: Sequence[Option], env: Mapping[str, str]) -> Iterator[str]:
    """The engine logs each request of Anthropic's API whole at this level, whatever else it is told of logging."""
    said = [("--log-level", option.value or "") for option in found if option.name == "--log-level"]
    said.append((_LOG_LEVEL, env.get(_LOG_LEVEL, "")))
    for name, value in said:
        if value.upper() not in _QUIET_LEVELS:
            yield f"{name} {value} writes prompts and salts to the log; set INFO or above, or remove it"


def _variable_problems(name: str, value: str, python_path: str) -> Iterator[str]:
    if name == "PYTHONPATH":
        if value and value != python_path:
            yield "PYTHONPATH can put another module in the guard's place; leave it to CacheScope"
        return
    if value.lower() in _OFF:
        return
    if name in _REFUSED_VARIABLES:
        yield f"{name} {_REFUSED_VARIABLES[name]}"
    for prefix, reason in _REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            yield f"{name} {reason}"
