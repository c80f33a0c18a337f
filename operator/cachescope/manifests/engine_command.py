"""The command line and environment of a guarded engine: pure, and refused when it would open a door past the guard.

What is an engine's own is in `engines`, one file an engine; this is what holds for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cachescope.api.pools import ServingPool
from cachescope.core.adapters import is_path
from cachescope.core.caches import Caching
from cachescope.core.errors import SpecError
from cachescope.core.labels import ENGINE_PORT
from cachescope.engines.facts import Mode
from cachescope.engines.pool_modes import caching_of, choice_of
from cachescope.manifests.engines.known import ENGINES
from cachescope.manifests.engines.launch import LOOPBACK, Engine, Serving
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
_OFFLINE = {"HF_HUB_OFFLINE": "1"}
_FIXED = {**_OFFLINE, "PYTHONPATH": GUARD_FOLDER}
# The guard's own settings, and where it finds the API server that it reads its ledger from.
_OPERATORS_PREFIXES = ("CACHESCOPE_", "KUBERNETES_")


def engine_of(pool: ServingPool) -> Engine:
    """What the operator knows of the pool's engine."""
    return ENGINES[pool.spec.engine.type]


def command(pool: ServingPool) -> list[str]:
    """The command of the engine container: user's arguments first, the platform's last.

    Raises:
        SpecError: An argument or variable would open a front door past the guard, or the engine cannot do what `isolation` asks.
    """
    problems = list(dict.fromkeys(_problems(pool)))
    if problems:
        raise SpecError(f"ServingPool {pool.name!r}: {'; '.join(problems)}")
    return [*engine_of(pool).program, *arguments(pool)]


def arguments(pool: ServingPool) -> list[str]:
    """The arguments in it, of a pool that `command` accepts, as Kubernetes takes them."""
    return [literal(argument) for argument in engine_of(pool).arguments(_serving(pool))]


def files(pool: ServingPool) -> Mapping[str, str]:
    """The files that the arguments name, by their names in the engine's folder of files."""
    return engine_of(pool).files(_serving(pool))


def is_sidecar(pool: ServingPool) -> bool:
    """Whether the guard runs beside the engine."""
    return pool.spec.guard.mode == "Sidecar"


def variables(pool: ServingPool) -> dict[str, str]:
    """The environment of the engine container, the guard's own variables aside."""
    engine = engine_of(pool)
    users = {name: literal(value) for name, value in pool.spec.engine.env.items()}
    fixed = _OFFLINE if is_sidecar(pool) else _FIXED
    return {**engine.variables, **_WRITABLE, **users, **fixed, **engine.fixed(_serving(pool))}


def _serving(pool: ServingPool) -> Serving:
    beside = is_sidecar(pool)
    return Serving(
        model=model_path(pool),
        name=pool.spec.model.name,
        host=LOOPBACK if beside else "0.0.0.0",  # noqa: S104 - the pod's address is not known yet
        port=LOCAL_PORT if beside else ENGINE_PORT,
        guarded_inside=not beside,
        reuse=caching_of(pool) is not Caching.OFF,
        gpus=pool.spec.gpus.count if pool.spec.gpus else 0,
        adapters=adapter_paths(pool),
        args=pool.spec.engine.args,
    )


def _problems(pool: ServingPool) -> Iterator[str]:
    engine = pool.spec.engine
    yield from engine_of(pool).problems(_serving(pool), {name: value for name, value in engine.env.items() if name not in _FIXED})
    yield from _environment_problems(engine.env)
    for name, path in adapter_paths(pool).items():
        if not is_path(path):
            yield f"the path of the adapter {name!r} holds a comma or an equals sign, {path!r}; rename its folder"
    if pool.spec.model.name.startswith("-"):
        yield f"model.name {pool.spec.model.name!r} would be read as an option; start it with a letter or a digit"
    if is_sidecar(pool):
        yield from _sidecar_problems(pool)
    yield from _mode_problems(pool)


def _mode_problems(pool: ServingPool) -> Iterator[str]:
    found = choice_of(pool)
    yield from found.problems
    if found.mode is Mode.PER_TENANT and pool.spec.engine.adapters:
        yield "adapters need an engine that enforces salts; merge each into a model, and give it a pool"


def _environment_problems(env: dict[str, str]) -> Iterator[str]:
    for name, value in sorted(env.items()):
        if _FIXED.get(name, value) != value:
            yield f"{name} decides which guard is loaded, or what the engine may fetch; remove it from engine.env"
        if name.startswith(_OPERATORS_PREFIXES):
            yield f"{name} is a variable that the guard reads; remove it from engine.env"


def _sidecar_problems(pool: ServingPool) -> Iterator[str]:
    if any(adapter.source.image_path for adapter in pool.spec.engine.adapters):
        yield "a sidecar cannot see adapters in the engine's image; put them on a persistentVolumeClaim, or take them from the hub"
    if pool.spec.model.source.image_path:
        yield "a sidecar cannot see the model in the engine's image; put it on a persistentVolumeClaim, or take it from the hub"
    if pool.spec.fence.cleanup != "None":
        yield f"a sidecar cannot call its engine; set fence.cleanup None instead of {pool.spec.fence.cleanup}"
