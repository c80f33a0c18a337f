"""The command line and environment of a guarded vLLM: pure, and refused when it would open a door past the guard."""

from __future__ import annotations

from cachescope.api.resources import ServingPool
from cachescope.core.errors import SpecError
from cachescope.core.front_doors import MIDDLEWARE, forbidden
from cachescope.core.labels import ENGINE_PORT
from cachescope.engines.routes import Capability
from cachescope.engines.vllm import capability

GUARD_FOLDER = "/cachescope"
HOME = "/home/engine"

_WRITABLE = {
    "HOME": HOME,
    "USER": "engine",
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "TMPDIR": "/tmp",  # noqa: S108 - an emptyDir of this pod
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Without the variable vLLM loads every plugin that is installed; with nothing in it, none.
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_PLUGINS": ""}


def command(pool: ServingPool) -> list[str]:
    """The command of the engine container: user's arguments first, the platform's last.

    Raises:
        SpecError: An argument or variable would open a front door past the guard, or the version does not enforce salts.
    """
    _check(pool)
    model = pool.spec.model
    return [
        *("python3", "-m", "vllm.entrypoints.openai.api_server"),
        *pool.spec.engine.args,
        *("--model", model.path, "--served-model-name", model.name, "--host", "0.0.0.0", "--port", str(ENGINE_PORT)),  # noqa: S104
        *("--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256", "--enable-prompt-tokens-details"),
        *("--middleware", MIDDLEWARE),
    ]


def variables(pool: ServingPool) -> dict[str, str]:
    """The environment of the engine container, the guard's own variables aside."""
    return {**_QUIET, **_WRITABLE, **pool.spec.engine.env, "PYTHONPATH": GUARD_FOLDER}


def _check(pool: ServingPool) -> None:
    engine = pool.spec.engine
    found = list(forbidden(engine.args, engine.env))
    if "PYTHONPATH" in engine.env:
        found.append("PYTHONPATH decides which guard is loaded; remove it from engine.env")
    verdict = capability(engine.version)
    if verdict is not Capability.ENFORCED:
        found.append(f"vLLM {engine.version} is {verdict.value} for per-request salts; use a release of 0.31, 0.32 or 0.33")
    if found:
        raise SpecError(f"ServingPool {pool.name!r}: {'; '.join(found)}")
