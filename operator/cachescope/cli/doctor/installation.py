"""Is the installation whole: API server, kinds, operator, gateways, root keys."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache

from cachescope.api.crds import definitions
from cachescope.api.kinds import KINDS
from cachescope.cli.doctor.findings import Document, Finding, Unseen, failed, noted, passed, unseen
from cachescope.cli.doctor.observed import OPERATOR_LEASE, ROOT_KEYS, Observed, label
from cachescope.cli.operator_lease import age, silent
from cachescope.core.labels import COMPONENT_LABEL, GATEWAY, OPERATOR, ROOT_KEYS_SECRET, SPEC_ANNOTATION

_CRDS = "helm upgrade --install cachescope-crds, with the chart of this version"
_KEY = re.compile(r"[0-9a-f]{64}\Z")


def check(observed: Observed) -> Iterator[Finding]:
    """Every check of this file."""
    yield passed("api", "the API server answers")
    yield _kinds(observed)
    yield _versions(observed)
    yield _deployment(observed, OPERATOR)
    yield _lease(observed)
    yield _deployment(observed, GATEWAY)
    yield _root_keys(observed)
    yield noted(
        "network policies",
        "whether they are enforced cannot be seen in the API",
        "make sure that the cluster's network plugin enforces NetworkPolicy: without it the guards alone protect engines",
    )


def missing_kinds(served: frozenset[str]) -> list[str]:
    """Kinds of this version that the API server does not serve."""
    return sorted(kind.model.PLURAL for kind in KINDS if kind.model.PLURAL not in served)


def _kinds(observed: Observed) -> Finding:
    name = "kinds"
    if isinstance(observed.kinds, Unseen):
        return unseen(name, observed.kinds)
    if missing := missing_kinds(observed.kinds):
        return failed(name, f"the API server does not serve {', '.join(missing)}", _CRDS)
    return passed(name, f"all {len(KINDS)} kinds are served")


def _versions(observed: Observed) -> Finding:
    name = "kinds' version"
    crds = observed.of("customresourcedefinitions")
    if isinstance(crds, Unseen):
        return unseen(name, crds)
    found = {item["metadata"]["name"]: _digest(item) for item in crds}
    if other := sorted(crd for crd, digest in _own_crds().items() if found.get(crd) != digest):
        return failed(name, f"of another version than this command: {', '.join(other)}", f"{_CRDS}; or use the command of theirs")
    return passed(name, "the CRDs are those of this version")


@cache
def _own_crds() -> dict[str, str]:
    return {item["metadata"]["name"]: _digest(item) for item in definitions()}


def _digest(crd: Document) -> str:
    return str((crd["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, ""))


def _deployment(observed: Observed, component: str) -> Finding:
    deployments = observed.of("deployments")
    if isinstance(deployments, Unseen):
        return unseen(component, deployments)
    found = [item for item in deployments if label(item, COMPONENT_LABEL) == component]
    if not found:
        return failed(
            component, f"there is no {component} in {observed.namespace}", "helm install cachescope, or name its namespace: -n"
        )
    wanted, ready = found[0]["spec"].get("replicas", 1), (found[0].get("status") or {}).get("readyReplicas", 0)
    if ready < max(wanted, 1):
        look = f"kubectl describe pods -n {observed.namespace} -l {COMPONENT_LABEL}={component}"
        return failed(component, f"{ready} of {wanted} pods are ready", f"see why: {look}")
    return passed(component, f"{ready} of {wanted} pods are ready")


def _lease(observed: Observed) -> Finding:
    name, lease = OPERATOR_LEASE, observed.of(OPERATOR_LEASE)
    if isinstance(lease, Unseen):
        return unseen(name, lease)
    look = f"see the operator's log: kubectl logs -n {observed.namespace} -l {COMPONENT_LABEL}={OPERATOR}"
    renewed = age(lease[0], observed.now) if lease else None
    if renewed is None:
        return failed(name, "no operator has ever held it", look)
    if silent(lease[0], observed.now):
        return failed(name, f"it was renewed {int(renewed.total_seconds())} s ago: no operator works, or clocks differ", look)
    holder = lease[0]["spec"].get("holderIdentity")
    return passed(name, f"held by {holder}") if holder else failed(name, "given back, and held by nobody: no operator works", look)


def _root_keys(observed: Observed) -> Finding:
    name, found = ROOT_KEYS, observed.of(ROOT_KEYS)
    if isinstance(found, Unseen):
        return unseen(name, found)
    restore = f"restore the Secret {ROOT_KEYS_SECRET} from your copy; the operator makes a new one only where there is none"
    if not found:
        return failed(name, f"there is no Secret {ROOT_KEYS_SECRET} in {observed.namespace}", "start the operator, which makes it")
    data = found[0].get("data") or {}
    bad = sorted(key for key, value in data.items() if not _is_key(value))
    if bad:
        return failed(name, f"no key, but something else: {', '.join(bad)}", restore)
    if "targets" not in data or len(data) < 2:
        return failed(name, "a root key or the key `targets` is missing", restore)
    return passed(name, f"{len(data) - 1} root keys, and the key of targets")


def _is_key(value: str) -> bool:
    try:
        return _KEY.match(base64.b64decode(value, validate=True).decode().strip()) is not None
    except (binascii.Error, ValueError):
        return False
