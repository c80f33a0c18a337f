"""CustomResourceDefinitions, made from the pydantic models: the models' descriptions are the specification, also in the cluster."""

from __future__ import annotations

from typing import Any

from cachescope import __version__
from cachescope.api.cel import RULES
from cachescope.api.documents import GROUP, VERSION
from cachescope.api.kinds import KINDS, Column, Kind
from cachescope.api.structural import Schema, structural
from cachescope.core.digests import digest
from cachescope.core.labels import PART_OF_LABEL, SPEC_ANNOTATION

CATEGORY = "cachescope-dev"
"""Not `cachescope`: kubectl would take that for the category where somebody asks for one CacheScope by its singular name."""
VERSION_LABEL = "app.kubernetes.io/version"
MAX_BYTES = 262_144
"""What an annotation may hold: `kubectl apply` keeps a whole copy of the object in one."""

_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_ROOT = {
    "apiVersion": {"type": "string", "description": "Version of this schema."},
    "kind": {"type": "string", "description": "Kind of this object."},
    "metadata": {"type": "object"},
}


def definitions() -> tuple[dict[str, Any], ...]:
    """The CRD of every kind."""
    return tuple(definition(kind) for kind in KINDS)


def definition(kind: Kind) -> dict[str, Any]:
    """The CRD of one kind.

    Its annotation holds the digest of its spec, so that `doctor` can tell another version's from its own although the API server
    adds to what it stores.
    """
    spec = _spec(kind)
    metadata = {
        "name": f"{kind.model.PLURAL}.{GROUP}",
        "labels": {PART_OF_LABEL: "cachescope", VERSION_LABEL: __version__},
        "annotations": {SPEC_ANNOTATION: digest(spec)},
    }
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


def _spec(kind: Kind) -> dict[str, Any]:
    singular = kind.model.KIND.lower()
    names = {
        "kind": kind.model.KIND,
        "listKind": f"{kind.model.KIND}List",
        "plural": kind.model.PLURAL,
        "singular": singular,
        "shortNames": [kind.short_name],
        "categories": [CATEGORY],
    }
    return {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [_version(kind)]}


def _version(kind: Kind) -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.entry() for column in (*kind.columns, _AGE)],
        **_subresources(kind),
        "schema": {"openAPIV3Schema": schema(kind)},
    }


def _subresources(kind: Kind) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}} if "status" in kind.model.model_fields else {}
    if kind.scales:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {"subresources": subresources} if subresources else {}


def schema(kind: Kind) -> Schema:
    """The schema of one kind, with its rules. Nobody sets defaults in a status but the operator, which writes it whole."""
    fields = structural(kind.model, defaults=kind.declared)["properties"]
    properties = {**_ROOT, "spec": fields["spec"]}
    if "status" in fields:
        properties["status"] = structural(kind.model, defaults=False)["properties"]["status"]
    root: Schema = {"type": "object", "description": kind.model.__doc__, "required": ["spec"], "properties": properties}
    for rule in RULES.get(kind.model.KIND, ()):
        node = root
        for name in rule.path:
            node = node["properties"][name]
        node.setdefault("x-kubernetes-validations", []).append(rule.entry())
    return root
