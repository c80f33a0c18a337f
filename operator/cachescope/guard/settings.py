"""Settings of the guard, from its environment.

| variable | what | default |
| --- | --- | --- |
| `CACHESCOPE_NAMESPACE` | namespace of the pod, its lease and the pool's ledger | required |
| `CACHESCOPE_POOL` | name of the pool, and of its `EpochLedger` | required |
| `CACHESCOPE_POOL_UID` | UID of the pool | required |
| `CACHESCOPE_POOL_TARGET` | name of the pool's epoch target, 64 hexadecimal digits | required |
| `CACHESCOPE_POD_NAME` | name of this pod | required |
| `CACHESCOPE_POD_UID` | UID of this pod | required |
| `CACHESCOPE_PERMIT_KEYS_DIR` | folder of permit keys: a file each, named by key id, with 64 hexadecimal digits | required |
| `CACHESCOPE_MODEL_PATH` | file or folder that the engine serves | required |
| `CACHESCOPE_API_DIR` | folder with the ServiceAccount's `token` and `ca.crt` | `/var/run/secrets/kubernetes.io/serviceaccount` |
| `CACHESCOPE_LEASE_SECONDS` | length of a right from the send of a lease, and how old a permit may be | 60 |
| `CACHESCOPE_ON_LOSS` | `Fresh`: without a right, requests without any reuse are served; `Deny`: none are | `Fresh` |
| `CACHESCOPE_FRESH_SECONDS` | longest answer that is served without a right, with `Fresh` | 120 |
| `CACHESCOPE_CLEANUP` | `Reset`: the engine's prefix cache is reset after a fence of the whole pool; `None`: it is not | `None` |
| `CACHESCOPE_ENGINE_TYPE` | which engine it guards, as in a pool's `engine.type` | `vLLM` |
| `CACHESCOPE_CACHING` | what keeps requests apart in it: `Salted`, `OneCache` or `Off` (`core.caches`) | `Salted` |
| `CACHESCOPE_STATE_DIR` | folder as old as the pod: witnesses of ledgers, whose cache it is | empty; required with `OneCache` |
| `CACHESCOPE_METRICS_PORT` | port of `/metrics`; 0 is off | 9400 |
| `CACHESCOPE_MAX_BODY_BYTES` | largest request body | 16777216 |
| `CACHESCOPE_USED_PERMITS` | how many used permits are remembered; beyond it requests are refused | 200000 |

The address of the API server comes from `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`, which every container has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cachescope.core.caches import Caching
from cachescope.core.errors import SpecError
from cachescope.core.leases import MOST_GUARD_MS
from cachescope.core.types import TargetName
from cachescope.leases.service_account import FOLDER, in_cluster_url

VLLM: Final = "vLLM"
_TARGET = re.compile(r"[0-9a-f]{64}\Z")
_ENGINE_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}\Z")


@dataclass(frozen=True)
class Settings:
    """What a guard is told.

    Attributes:
        namespace: Namespace of its pod, its lease and the ledger.
        pool: Name of its pool, and of the ledger.
        pool_uid: Its pool.
        pool_target: Name of the pool's epoch target.
        pod_name: Name of its pod.
        pod_uid: Its pod.
        keys_folder: Where the permit keys are.
        model_path: What the engine serves.
        api_url: Address of the API server.
        api_folder: Where its ServiceAccount's token and the certificate authority are.
        lease_ms: Length of a right, and the greatest age of a permit, in milliseconds.
        fresh_ms: Longest answer that is served without a right, in milliseconds; 0 when nothing is served then.
        resets_cache: Whether the engine's prefix cache is reset after a fence of the whole pool.
        engine_type: Which engine it guards, as in a pool's `engine.type`.
        caching: What keeps requests apart in it.
        state_folder: Where what outlives the process and not the pod is kept, or `None`.
        metrics_port: Port of the metrics, or 0.
        max_body_bytes: Largest request body.
        used_permits: How many used permits are remembered.
    """

    namespace: str
    pool: str
    pool_uid: str
    pool_target: TargetName
    pod_name: str
    pod_uid: str
    keys_folder: Path
    model_path: Path
    api_url: str
    api_folder: Path = FOLDER
    lease_ms: int = 60_000
    fresh_ms: int = 120_000
    resets_cache: bool = False
    engine_type: str = VLLM
    caching: Caching = Caching.SALTED
    state_folder: Path | None = None
    metrics_port: int = 9400
    max_body_bytes: int = 16 * 2**20
    used_permits: int = 200_000


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        SpecError: A variable is missing or cannot be read; the message names it.
    """
    caching = Caching(_choice(environ, "CACHESCOPE_CACHING", tuple(item.value for item in Caching)))
    if caching is Caching.ONE_CACHE and not environ.get("CACHESCOPE_STATE_DIR"):
        raise SpecError(
            "CACHESCOPE_STATE_DIR is not set; with CACHESCOPE_CACHING OneCache mount a folder that lives as long as the pod"
        )
    return Settings(
        namespace=_text(environ, "CACHESCOPE_NAMESPACE"),
        pool=_text(environ, "CACHESCOPE_POOL"),
        pool_uid=_text(environ, "CACHESCOPE_POOL_UID"),
        pool_target=_target(environ, "CACHESCOPE_POOL_TARGET"),
        pod_name=_text(environ, "CACHESCOPE_POD_NAME"),
        pod_uid=_text(environ, "CACHESCOPE_POD_UID"),
        keys_folder=Path(_text(environ, "CACHESCOPE_PERMIT_KEYS_DIR")),
        model_path=Path(_text(environ, "CACHESCOPE_MODEL_PATH")),
        api_url=in_cluster_url(environ),
        api_folder=Path(environ.get("CACHESCOPE_API_DIR") or FOLDER),
        lease_ms=1000 * _number(environ, "CACHESCOPE_LEASE_SECONDS", default=60, least=1, most=MOST_GUARD_MS // 1000),
        fresh_ms=_fresh_ms(environ),
        resets_cache=_choice(environ, "CACHESCOPE_CLEANUP", ("None", "Reset")) == "Reset",
        engine_type=_engine_type(environ, "CACHESCOPE_ENGINE_TYPE"),
        caching=caching,
        state_folder=Path(folder) if (folder := environ.get("CACHESCOPE_STATE_DIR")) else None,
        metrics_port=_number(environ, "CACHESCOPE_METRICS_PORT", default=9400, least=0, most=65_535),
        max_body_bytes=_number(environ, "CACHESCOPE_MAX_BODY_BYTES", default=16 * 2**20, least=1, most=2**31),
        used_permits=_number(environ, "CACHESCOPE_USED_PERMITS", default=200_000, least=1, most=10_000_000),
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SpecError(f"{name} is not set; render the pod with CacheScope's own manifests")
    return value


def _target(environ: Mapping[str, str], name: str) -> TargetName:
    value = _text(environ, name)
    if not _TARGET.match(value):
        raise SpecError(f"{name} is not a target name; it has 64 lower-case hexadecimal digits")
    return TargetName(value)


def _engine_type(environ: Mapping[str, str], name: str) -> str:
    """The catalogue of engines is no part of a guard: an engine that only the operator and gateways know is passed on."""
    value = environ.get(name) or VLLM
    if not _ENGINE_TYPE.match(value):
        raise SpecError(f"{name} is {value!r}; set a pool's `engine.type`: letters, digits, dots and dashes, at most 63")
    return value


def _fresh_ms(environ: Mapping[str, str]) -> int:
    on_loss = _choice(environ, "CACHESCOPE_ON_LOSS", ("Fresh", "Deny"))
    seconds = _number(environ, "CACHESCOPE_FRESH_SECONDS", default=120, least=1, most=MOST_GUARD_MS // 1000)
    return 1000 * seconds if on_loss == "Fresh" else 0


def _choice(environ: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """One of the values; the first is the default."""
    value = environ.get(name) or values[0]
    if value not in values:
        raise SpecError(f"{name} is {value!r}; set {' or '.join(values)}")
    return value


def _number(environ: Mapping[str, str], name: str, *, default: int, least: int, most: int) -> int:
    value = environ.get(name) or str(default)
    if not (value.isascii() and value.isdigit()) or not least <= int(value) <= most:
        raise SpecError(f"{name} is {value!r}; set a whole number from {least} to {most}")
    return int(value)
