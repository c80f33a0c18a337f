"""Pools of every engine for the tests of manifests."""

from __future__ import annotations

from typing import Any

from cachescope.api.pools import ServingPool
from cachescope.manifests.engine import pod_template
from cachescope.manifests.engines.known import ENGINES
from cachescope.manifests.engines.launch import LOOPBACK, Serving
from cachescope.manifests.pool import pool_objects
from cachescope.manifests.revisions import Revision
from tests.unit.pools import PLATFORM, ROOT, TARGET, Document, pool

CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "tiny"}}
BESIDE: Document = {"guard": {"mode": "Sidecar"}, "model.source": CLAIM}
ON_CLAIM: list[Document] = [{"name": "sql", "source": {"persistentVolumeClaim": {"claimName": "adapters", "path": "sql"}}}]
OTHERS = sorted(set(ENGINES) - {"vLLM"})
USERS: dict[str, tuple[str, ...]] = {
    "LMDeploy": ("--session-len", "8192"),
    "SGLang": ("--context-length", "8192"),
    "TGI": ("--max-total-tokens", "8192"),
    "TensorRT-LLM": ("--max_seq_len", "8192"),
    "custom": ("--model={model}", "--name", "{name}", "--listen", "{host}:{port}"),
    "llama.cpp": ("--ctx-size", "8192", "--parallel", "2"),
    "vLLM": ("--max-model-len", "8192"),
}
"""What people would add, which no engine's rules mind."""


def serving(engine: str, **changes: Any) -> Serving:
    """What a pool of that engine asks for, with a guard beside it."""
    asked: dict[str, Any] = {"model": "/models/claim/tiny", "name": "tiny", "host": LOOPBACK, "port": 8001, "args": USERS[engine]}
    return Serving(**(asked | ({"name": "tgi"} if engine == "TGI" else {}) | changes))


def arguments(engine: str, **changes: Any) -> list[str]:
    """The arguments that it is given."""
    return ENGINES[engine].arguments(serving(engine, **changes))


def engine_pool(engine: str, changes: Document | None = None, **metadata: str) -> ServingPool:
    """The plain pool with another engine."""
    plain = {"engine.type": engine, "engine.args": list(USERS[engine]), "engine.env": {}, "gpus": {"count": 2}}
    asked: Document = {**BESIDE, **plain, **(changes or {})}
    if engine == "TGI":
        asked["model.name"] = "tgi"
    return pool(asked, **metadata)


def children(engine: str, **metadata: str) -> list[Document]:
    """Every object of such a pool."""
    made = engine_pool(engine, None, **metadata)
    pods = pod_template(PLATFORM, made, TARGET)
    revision = Revision(f"sha256:{'0' * 64}", pods, PLATFORM.guard_image, PLATFORM.guard_version)
    return pool_objects(PLATFORM, made, keys=ROOT, revision=revision)


def template(engine: str, changes: Document | None = None) -> Document:
    """The template of its pods."""
    made: Document = pod_template(PLATFORM, engine_pool(engine, changes), TARGET)
    return made
