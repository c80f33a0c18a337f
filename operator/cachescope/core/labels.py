"""Labels and names that several components must agree on."""

from __future__ import annotations

POOL_LABEL = "cachescope.dev/pool"
COMPONENT_LABEL = "app.kubernetes.io/component"
NAME_LABEL = "app.kubernetes.io/name"
PART_OF_LABEL = "app.kubernetes.io/part-of"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
ENGINE = "engine"
GATEWAY = "gateway"
ENGINE_PORT = 8000
GUARD_METRICS_PORT = 9400
