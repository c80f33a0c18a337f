"""The command line and environment of a guarded vLLM: pure, and refused when it would open a door past the guard."""

from __future__ import annotations

from collections.abc import Iterator

from cachescope.api.pools import ServingPool
from cachescope.core.adapters import OWN_OPTIONS, adapter_arguments, is_path
from cachescope.core.errors import SpecError
from cachescope.core.front_doors import MIDDLEWARE, forbidden, options
from cachescope.core.labels import ENGINE_PORT
from cachescope.engines.routes import Capability
from cachescope.engines.vllm import SERVED, capability
from cachescope.manifests.model_files import adapter_paths, model_path
from cachescope.manifests.parts import literal

GUARD_FOLDER = "/cachescope"
LOCAL_PORT = 8001
"""Where an engine listens on loopback, behind a sidecar."""
HOME = "/home/engine"

_WRITABLE = {
    "HOME": HOME,
    "USER": "engine",
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "TMPDIR": "/tmp",  # noqa: S108 - an emptyDir of this pod
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Without the variable vLLM loads every plugin that is installed; with nothing in it, none.
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": ""}
_OFFLINE = {"HF_HUB_OFFLINE": "1"}
_FIXED = {**_OFFLINE, "PYTHONPATH": GUARD_FOLDER}
# The guard's own settings, and where it finds the API server that it reads its ledger from.
_OPERATORS_PREFIXES = ("CACHESCOPE_", "KUBERNETES_")


def command(pool: ServingPool) -> list[str]:
    """The command of the engine container: user's arguments first, the platform's last.

    Raises:
        SpecError: An argument or variable would open a front door past the guard, or the version does not enforce salts.
    """
    problems = list(_problems(pool))
    if problems:
        raise SpecError(f"ServingPool {pool.name!r}: {'; '.join(problems)}")
    return ["python3", "-m", "vllm.entrypoints.openai.api_server", *arguments(pool)]


def arguments(pool: ServingPool) -> list[str]:
    """The arguments in it, of a pool that `command` accepts, as Kubernetes takes them."""
    beside = is_sidecar(pool)
    host, port = ("127.0.0.1", LOCAL_PORT) if beside else ("0.0.0.0", ENGINE_PORT)  # noqa: S104 - the pod's address is not known yet
    return [
        *map(literal, pool.spec.engine.args),
        *("--model", literal(model_path(pool)), "--served-model-name", literal(pool.spec.model.name)),
        *("--host", host, "--port", str(port)),
        *map(literal, adapter_arguments(adapter_paths(pool), pool.spec.engine.args)),
        *("--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256", "--enable-prompt-tokens-details"),
        *(() if beside else ("--middleware", MIDDLEWARE)),
    ]


def is_sidecar(pool: ServingPool) -> bool:
    """Whether the guard runs beside the engine."""
    return pool.spec.guard.mode == "Sidecar"


def variables(pool: ServingPool) -> dict[str, str]:
    """The environment of the engine container, the guard's own variables aside."""
    fixed = _OFFLINE if is_sidecar(pool) else _FIXED
    return {**_QUIET, **_WRITABLE, **{name: literal(value) for name, value in pool.spec.engine.env.items()}, **fixed}


def _problems(pool: ServingPool) -> Iterator[str]:
    engine = pool.spec.engine
    yield from forbidden(engine.args, {name: value for name, value in engine.env.items() if name not in _FIXED})
    for name, value in sorted(engine.env.items()):
        if _FIXED.get(name, value) != value:
            yield f"{name} decides which guard is loaded, or what the engine may fetch; remove it from engine.env"
        if name.startswith(_OPERATORS_PREFIXES):
            yield f"{name} is a variable that the guard reads; remove it from engine.env"
    for name in sorted({option.name for option in options(engine.args)} & OWN_OPTIONS):
        yield f"{name} is set by the platform; declare adapters in engine.adapters, and remove it from engine.args"
    for name, path in adapter_paths(pool).items():
        if not is_path(path):
            yield f"the path of the adapter {name!r} holds a comma or an equals sign, {path!r}; rename its folder"
    if pool.spec.model.name.startswith("-"):
        yield f"model.name {pool.spec.model.name!r} would be read as an option; start it with a letter or a digit"
    if is_sidecar(pool):
        yield from _sidecar_problems(pool)
    verdict = capability(engine.version)
    if verdict is not Capability.ENFORCED:
        yield f"vLLM {engine.version} is {verdict.value} for per-request salts; use {SERVED}"


def _sidecar_problems(pool: ServingPool) -> Iterator[str]:
    if any(adapter.source.image_path for adapter in pool.spec.engine.adapters):
        yield "a sidecar cannot see adapters in the engine's image; put them on a persistentVolumeClaim, or take them from the hub"
    if pool.spec.model.source.image_path:
        yield "a sidecar cannot see the model in the engine's image; put it on a persistentVolumeClaim, or take it from the hub"
    if pool.spec.fence.cleanup != "None":
        yield f"a sidecar cannot call its engine; set fence.cleanup None instead of {pool.spec.fence.cleanup}"
