"""The gateway: Deployment (Envoy and the processor, one image), Service, and what it may read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cachescope.core.labels import GATEWAY, PART_OF_LABEL
from cachescope.manifests.network import GATEWAY_METRICS_PORT, GATEWAY_PORT
from cachescope.manifests.parts import (
    Manifest,
    Site,
    container_security,
    empty_dirs,
    environment,
    http_probe,
    liveness_probe,
    metadata,
    pod_security,
    selector,
)

NAME = "cachescope-gateway"
CONFIG_FOLDER = "/etc/cachescope"
SOCKET = "/run/cachescope/processor.sock"
CONFIG_MAP = "cachescope-config"
HEAD_MAP = "cachescope-head"
ROOT_KEYS_SECRET = "cachescope-root-keys"  # noqa: S105 - a name

DRAIN_SECONDS = 120
"""How long the requests under way may take when a gateway goes; `cachescope.gateway.drain` tells the order."""
OUTLIVE_SECONDS = DRAIN_SECONDS + 15
"""How long the processor waits for Envoy to go: longer than Envoy's hook takes, its first five seconds included."""
GRACE_SECONDS = OUTLIVE_SECONDS + 45
"""What is left then is for the processor, which ends its streams within 30 s."""


def deployment(site: Site, key_secrets: Iterable[str], *, tls_secret: str | None = None, replicas: int = 1) -> Manifest:
    """Gateways; `key_secrets` are the Secrets with the tenants' hashed API keys and the providers' key sets."""
    labels = {**selector(NAME, GATEWAY), PART_OF_LABEL: "cachescope"}
    secrets = sorted(set(key_secrets))
    pod = {
        "serviceAccountName": NAME,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [_processor(site, secrets), _envoy(site, tls_secret)],
        "volumes": _volumes(secrets, tls_secret),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(site, NAME, GATEWAY),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def service(site: Site) -> Manifest:
    """What clients reach."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(site, NAME, GATEWAY),
        "spec": {"selector": selector(NAME, GATEWAY), "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }


def access(site: Site) -> list[Manifest]:
    """The ServiceAccount and the one thing it may read: EndpointSlices of its own namespace."""
    meta = metadata(site, NAME, GATEWAY)
    rules = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": site.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [subject],
            "roleRef": role,
        },
    ]


def _processor(site: Site, secrets: Sequence[str]) -> Manifest:
    return {
        "name": "processor",
        "image": site.gateway_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["gateway", "--config", CONFIG_FOLDER, "--socket", SOCKET, "--port", str(GATEWAY_METRICS_PORT)],
        "env": environment({"HOME": "/tmp"}, CACHESCOPE_NAMESPACE="metadata.namespace"),  # noqa: S108 - an emptyDir
        "ports": [{"name": "metrics", "containerPort": GATEWAY_METRICS_PORT}],
        "securityContext": container_security(),
        "readinessProbe": http_probe("/readyz", "metrics", period=2),
        "livenessProbe": liveness_probe("/healthz", "metrics"),
        "lifecycle": _before_stop("outlive-envoy", OUTLIVE_SECONDS),
        "volumeMounts": [
            *_writable("tmp"),
            {"name": "config", "mountPath": f"{CONFIG_FOLDER}/config", "readOnly": True},
            {"name": "root-keys", "mountPath": f"{CONFIG_FOLDER}/root-keys", "readOnly": True},
            *({"name": f"secret-{name}", "mountPath": f"{CONFIG_FOLDER}/secrets/{name}", "readOnly": True} for name in secrets),
        ],
    }


def _envoy(site: Site, tls_secret: str | None) -> Manifest:
    scheme = "HTTPS" if tls_secret else "HTTP"
    return {
        "name": "envoy",
        "image": site.gateway_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["envoy", "--config", CONFIG_FOLDER, "--socket", SOCKET, "--port", str(GATEWAY_PORT)],
        "ports": [{"name": "http", "containerPort": GATEWAY_PORT}],
        "securityContext": container_security(),
        "readinessProbe": http_probe("/healthz", "http", period=2, scheme=scheme),
        "livenessProbe": liveness_probe("/healthz", "http", scheme=scheme),
        "lifecycle": _before_stop("drain-envoy", DRAIN_SECONDS),
        "volumeMounts": [
            *_writable("tmp-envoy"),
            {"name": "settings", "mountPath": f"{CONFIG_FOLDER}/config", "readOnly": True},
            *([{"name": "tls", "mountPath": f"{CONFIG_FOLDER}/tls", "readOnly": True}] if tls_secret else []),
        ],
    }


def _before_stop(command: str, limit: int) -> Manifest:
    return {"preStop": {"exec": {"command": ["cachescope", command, "--limit", str(limit)]}}}


def _writable(tmp: str) -> list[Manifest]:
    return [{"name": "run", "mountPath": "/run/cachescope"}, {"name": tmp, "mountPath": "/tmp"}]  # noqa: S108 - an emptyDir


def _volumes(secrets: Sequence[str], tls_secret: str | None) -> list[Manifest]:
    """Everything that the processor reads, in one projected folder; Envoy gets the settings alone and no key."""
    settings = {"configMap": {"name": CONFIG_MAP, "items": [{"key": "settings.yaml", "path": "settings.yaml"}]}}
    resources = {"configMap": {"name": CONFIG_MAP, "items": [{"key": "resources.yaml", "path": "resources.yaml"}]}}
    head = {"configMap": {"name": HEAD_MAP, "items": [{"key": "head.json", "path": "head.json"}]}}
    return [
        *empty_dirs(("run", "tmp", "tmp-envoy")),
        {"name": "settings", "projected": {"sources": [settings]}},
        {"name": "config", "projected": {"sources": [settings, resources, head]}},
        {"name": "root-keys", "secret": {"secretName": ROOT_KEYS_SECRET}},
        *({"name": f"secret-{name}", "secret": {"secretName": name}} for name in secrets),
        *([{"name": "tls", "secret": {"secretName": tls_secret}}] if tls_secret else []),
    ]
