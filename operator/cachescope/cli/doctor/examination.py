"""All checks, in the order in which one would look."""

from __future__ import annotations

from collections.abc import Collection

from cachescope.cli.doctor import fences, installation, key_namespace, leases, resources, root_keys
from cachescope.cli.doctor.findings import Finding, failed
from cachescope.cli.doctor.observed import Observed


def examine(observed: Observed, trusted: Collection[str] = ()) -> list[Finding]:
    """Every finding.

    Args:
        observed: What was gathered.
        trusted: The platform's own, who may reach the keys.
    """
    if observed.fault:
        return [failed("api", observed.fault, "correct KUBECONFIG, or see why the API server is not reached")]
    return [
        *installation.check(observed),
        *key_namespace.check(observed, trusted),
        *resources.check(observed),
        *leases.check(observed),
        *fences.check(observed),
        *root_keys.check(observed),
    ]
