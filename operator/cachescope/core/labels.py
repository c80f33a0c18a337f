"""Labels and names that several components must agree on."""

from __future__ import annotations

POOL_LABEL = "cachescope.dev/pool"
COMPONENT_LABEL = "app.kubernetes.io/component"
NAME_LABEL = "app.kubernetes.io/name"
PART_OF_LABEL = "app.kubernetes.io/part-of"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
ENGINE = "engine"
GATEWAY = "gateway"
OPERATOR = "operator"
API_KEYS_LABEL = "cachescope.dev/api-keys"
"""On the Secrets that hold hashes of API keys; gateways and operator read no others. Its value is `true`."""

FIELD_MANAGER = "cachescope-operator"
"""Under which the operator applies."""

ROOT_KEYS_SECRET = "cachescope-root-keys"  # noqa: S105 - a name
"""The Secret with the root keys, beside operator and gateways; it stays when everything else is uninstalled."""

SPEC_ANNOTATION = "cachescope.dev/spec"
"""Digest of what an object was made from."""

ENGINE_PORT = 8000
GUARD_METRICS_PORT = 9400

PROBES_SERVICE = "cachescope-gateway-probes"
"""The Service by which the operator's probe finds gateways, in the namespace of the installation."""
PROBES_PORT = 8082

LEDGER_LABEL = "cachescope.dev/ledger"
"""On every EpochLedger: `head` on what guards and gateways read in each round, `shard` on the others."""
HEAD = "head"
SHARD = "shard"
