"""The guard beside an engine instead of inside it: a container that alone is reached from outside, and forwards on loopback.

Rules:

- the engine listens on 127.0.0.1 and nowhere else; it has no token and no key, and none of the guard's variables;
- the guard is told what it cannot see, the engine's image and arguments, and mounts the same files of the model, read-only;
- it starts before the engine and ends after it, so that what the engine still answers gets out;
- whether the pod is ready, the guard says, by the engine's own health; whether the engine lives, a command in its own container, or
  the guard where that has no Python.
"""

from __future__ import annotations

import json

from cachescope.api.pools import ServingPool
from cachescope.core.labels import ENGINE_PORT
from cachescope.core.types import TargetName
from cachescope.manifests.engine_command import LOCAL_PORT, arguments, engine_of
from cachescope.manifests.engines.launch import LOOPBACK
from cachescope.manifests.guard import OWN_FIELDS, guard_ports, guard_variables, key_and_state_mounts
from cachescope.manifests.model_files import model_mounts
from cachescope.manifests.parts import Manifest, container_security, environment, http_probe
from cachescope.manifests.platform import Platform

COMMAND = ("/opt/guard/bin/python", "-m", "cachescope.guard.sidecar")
_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
_HEALTH = "import urllib.request; urllib.request.urlopen('http://{host}:{port}{path}', timeout=4)"


def sidecar_container(platform: Platform, pool: ServingPool, pool_target: TargetName) -> Manifest:
    """The guard's container, an init container that goes on beside the others.

    Args:
        platform: The installation.
        pool: The pool.
        pool_target: Name of the pool's epoch target.
    """
    values = {
        **guard_variables(platform, pool, pool_target),
        "CACHESCOPE_UPSTREAM": f"http://{LOOPBACK}:{LOCAL_PORT}",
        "CACHESCOPE_ENGINE": f"{pool.spec.engine.type} {pool.spec.engine.version} {pool.spec.engine.image}",
        "CACHESCOPE_ENGINE_ARGS": json.dumps(arguments(pool)),
        "CACHESCOPE_PORT": str(ENGINE_PORT),
        **_metrics_elsewhere(engine_of(pool).metrics),
    }
    return {
        "name": "guard",
        "image": platform.guard_image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": list(COMMAND),
        "env": environment(dict(sorted(values.items())), **OWN_FIELDS),
        "ports": guard_ports(),
        "resources": pool.spec.guard.resources or _RESOURCES,
        "securityContext": container_security(),
        "readinessProbe": http_probe("/health", "http"),
        "volumeMounts": [*key_and_state_mounts(), *model_mounts(pool)],
    }


def _metrics_elsewhere(path: str) -> dict[str, str]:
    """The variable for an engine whose metrics are not where the guard looks for them."""
    return {} if path in {"", "/metrics"} else {"CACHESCOPE_UPSTREAM_METRICS": path}


def engine_probe(pool: ServingPool, *, period: int, failures: int) -> Manifest:
    """A probe of an engine that only its own pod reaches; seconds and failures as in a pod.

    An image without a Python is not asked for a command: the guard passes the question on, on the port that is the pod's.
    """
    engine = engine_of(pool)
    if not engine.asks_itself:
        return {**http_probe(engine.health, ENGINE_PORT, period=period, failures=failures), "timeoutSeconds": 10}
    asking = _HEALTH.format(host=LOOPBACK, port=LOCAL_PORT, path=engine.health)
    return {
        "exec": {"command": ["python3", "-c", asking]},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 10,
    }
