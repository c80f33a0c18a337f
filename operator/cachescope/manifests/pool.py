"""Every object of a pool but its ledger, in the order in which to apply them: what pods need is there before they are."""

from __future__ import annotations

from cachescope.api.pools import ServingPool
from cachescope.core.keys import KeyRing
from cachescope.core.labels import ENGINE_PORT, SPEC_ANNOTATION
from cachescope.manifests.access import access, permit_key_secret
from cachescope.manifests.children import child, engine_selector
from cachescope.manifests.engine import STARTUP_SECONDS
from cachescope.manifests.network import engine_policy
from cachescope.manifests.parts import Manifest
from cachescope.manifests.platform import Platform
from cachescope.manifests.revisions import Revision, revision_object

ACCOUNT_ANNOTATION = "cachescope.dev/service-account"
"""On engine pods: UID of the ServiceAccount that they were made for."""
_PULL_SECONDS = 600
_FETCH_SECONDS = 3600
_ROLLING_UPDATES = {
    # A new engine serves before an old one goes, which needs room for one more: without a spare GPU the new pod waits.
    "SpareFirst": {"maxSurge": 1, "maxUnavailable": 0},
    "InPlace": {"maxSurge": 0, "maxUnavailable": 1},
}


def pool_objects(
    platform: Platform, pool: ServingPool, *, keys: KeyRing, revision: Revision, omit_replicas: bool = False
) -> list[Manifest]:
    """Build the children of a pool.

    Args:
        platform: The installation.
        pool: The pool.
        keys: The installation's root keys.
        revision: The pod template to apply, as `revisions.chosen` gave it.
        omit_replicas: Leave the number of pods to somebody else.

    Returns:
        Manifests in the order in which to apply them, the Deployment last.
    """
    return [
        *access(pool),
        permit_key_secret(pool, keys),
        engine_policy(platform, pool),
        service(pool),
        disruption_budget(pool),
        revision_object(pool, revision),
        deployment(pool, revision, omit_replicas=omit_replicas),
    ]


def deployment(pool: ServingPool, revision: Revision, *, omit_replicas: bool = False) -> Manifest:
    """The engines of a pool, guarded, from a frozen template."""
    spec: Manifest = {
        "selector": {"matchLabels": engine_selector(pool)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _ROLLING_UPDATES[pool.spec.rollout.strategy]},
        "progressDeadlineSeconds": _progress_seconds(pool),
        "revisionHistoryLimit": 2,
        "template": revision.template,
    }
    if not omit_replicas:
        spec["replicas"] = pool.spec.replicas
    return child(pool, "Deployment", name=pool.name, annotations={SPEC_ANNOTATION: revision.inputs}, spec=spec)


def bound_to(manifest: Manifest, account_uid: str) -> Manifest:
    """The Deployment with pods of this very ServiceAccount, so that they are made anew when the account is.

    A token dies with the account that it was made for, and a node renews it only near the end of its life. The UID stays out of
    the frozen template: it is no decision of people, and no version of the operator changes it.

    Args:
        manifest: The Deployment.
        account_uid: UID of the ServiceAccount; empty when it is not known.
    """
    if not account_uid:
        return manifest
    spec = manifest["spec"]
    template = spec["template"]
    annotations = {**template["metadata"].get("annotations", {}), ACCOUNT_ANNOTATION: account_uid}
    template = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    return {**manifest, "spec": {**spec, "template": template}}


def service(pool: ServingPool) -> Manifest:
    """A headless Service: its EndpointSlices tell the gateway which pods are ready."""
    spec = {
        "clusterIP": "None",
        "selector": engine_selector(pool),
        "ports": [{"name": "http", "port": ENGINE_PORT, "targetPort": "http", "protocol": "TCP"}],
    }
    return child(pool, "Service", name=pool.name, spec=spec)


def disruption_budget(pool: ServingPool) -> Manifest:
    """Drains take one engine at a time, and any number of those that do not serve: a broken pool blocks no node."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": engine_selector(pool)},
    }
    return child(pool, "PodDisruptionBudget", name=pool.name, spec=spec)


def _progress_seconds(pool: ServingPool) -> int:
    """Longer than an engine may take to start, or a rollout would be called failed while its model loads."""
    return _PULL_SECONDS + pool.spec.fetches * _FETCH_SECONDS + STARTUP_SECONDS
