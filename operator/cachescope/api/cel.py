"""CEL rules of the CRDs: what a schema cannot say, enforced by the API server itself.

Rules of placing them:

- a transition rule (one that names `oldSelf`) stands at the root and names required fields only. On an optional field the API
  server skips it as soon as that field, or a parent of it, is left out, and the next write starts from nothing;
- each of them passes when the spec is as before, so that labels and finalizers can still be changed: a finalizer that nobody can
  remove blocks a namespace for ever;
- each message ends with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`.

    Attributes:
        rule: The CEL expression.
        message: What went wrong and what to do.
        path: Where it stands: names of properties below the root.
        says: A CEL expression for a message with the numbers in it; `message` stands in where it cannot be evaluated.
        on_create: The rule also holds when there is no old object: `oldSelf` is an optional value then.
    """

    rule: str
    message: str
    path: tuple[str, ...] = ()
    says: str = ""
    on_create: bool = False

    def entry(self) -> dict[str, Any]:
        """As the CRD holds it."""
        entry: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.says:
            entry["messageExpression"] = self.says
        if self.on_create:
            entry["optionalOldSelf"] = True
        return entry


_SERVING_POOL = (
    Rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",
        "the name of a pool is a DNS-1035 label of at most 40 characters, because Services and pods are named after it; "
        "start it with a letter, and use only lower-case letters, digits and hyphens",
    ),
    Rule(
        "[has(self.imagePath), has(self.persistentVolumeClaim), has(self.huggingFace)].exists_one(is_set, is_set)",
        "a model has one source; set exactly one of imagePath, persistentVolumeClaim and huggingFace",
        ("spec", "model", "source"),
    ),
    Rule(
        "(has(self.from) && self.from == 'Selector') == (has(self.matchLabels) && self.matchLabels.size() > 0)",
        "matchLabels belong to `from: Selector`, and would otherwise admit every namespace or none; "
        "set them, not empty, with `from: Selector` and only then",
        ("spec", "allowedTenants", "namespaces"),
    ),
)

_TENANT = (
    Rule(
        "!has(self.jwt) || self.jwt.all(item, !has(item.claims) || item.claims.all(name, name.size() <= 128))",
        "the name of a claim has at most 128 characters; name a claim of the provider's tokens",
        ("spec", "identities"),
    ),
)

_CACHE_EPOCH = (
    Rule(
        "self.spec.target == oldSelf.spec.target",
        "the target of a CacheEpoch cannot change, because its incident was counted for that target; make another CacheEpoch",
    ),
    Rule(
        "has(self.floor) || has(self.incident)",
        "a CacheEpoch asks for something; set floor, or incident, or both",
        ("spec",),
    ),
)

_NEWER_LINEAGE = "self.spec.lineage.id != oldSelf.spec.lineage.id"

_EPOCH_LEDGER = (
    Rule(
        "self.floors.all(target, target.matches('^[0-9a-f]{64}$'))",
        "a floor belongs to a target, whose name is 64 lower-case hexadecimal digits; leave the ledger to the operator",
        ("spec",),
    ),
    Rule(
        "oldSelf.hasValue() || self.spec.sequence == 1",
        "a ledger begins with sequence 1: what is made anew from a copy would bring old epochs back; "
        "do not restore ledgers, the operator makes a new one with a new lineage",
        on_create=True,
    ),
    Rule(
        f"self.spec.lineage == oldSelf.spec.lineage || ({_NEWER_LINEAGE}"
        " && self.spec.lineage.generation > oldSelf.spec.lineage.generation)",
        "a lineage keeps its generation, and another lineage has a higher one; start it with a generation above all that were seen",
        says="'the lineage is of generation %d and %d was written; start another lineage with one above all that were seen'"
        ".format([oldSelf.spec.lineage.generation, self.spec.lineage.generation])",
    ),
    Rule(
        f"{_NEWER_LINEAGE} || self.spec == oldSelf.spec || self.spec.sequence > oldSelf.spec.sequence",
        "every change of a ledger has a higher sequence; read the ledger again and write the next one",
        says="'the ledger is at sequence %d and %d was written; read the ledger again and write the next one'"
        ".format([oldSelf.spec.sequence, self.spec.sequence])",
    ),
    Rule(
        f"{_NEWER_LINEAGE} || self.spec.base >= oldSelf.spec.base",
        "the base of a ledger never falls; read the ledger again and write at least its base",
        says="'the base is %d and %d was written; epochs never fall: read the ledger again and write at least what stands there'"
        ".format([oldSelf.spec.base, self.spec.base])",
    ),
    Rule(
        f"{_NEWER_LINEAGE} || oldSelf.spec.floors.all(target, target in self.spec.floors"
        " || self.spec.base >= oldSelf.spec.floors[target])",
        "a floor leaves the ledger only once the base is at or above it; raise the base first",
    ),
    Rule(
        f"{_NEWER_LINEAGE} || oldSelf.spec.floors.all(target, !(target in self.spec.floors)"
        " || self.spec.floors[target] >= oldSelf.spec.floors[target])",
        "a floor never falls within a lineage; read the ledger again and write at least what stands there",
    ),
    Rule(
        f"{_NEWER_LINEAGE} || oldSelf.spec.incidents.all(id, id in self.spec.incidents"
        " && self.spec.incidents[id] == oldSelf.spec.incidents[id])",
        "an incident that was counted stays as it was counted, or it would be counted again; keep every entry",
    ),
)

_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_FENCE_LEASE = (
    Rule(
        f"self.metadata.name.matches('^{_UUID}\\\\.[0-9a-f]{{32}}$')",
        "a lease is named `<UID of the pod>.<32 hexadecimal digits>`; leave leases to guards and gateways",
    ),
    Rule(
        "(self.holder == 'Guard') == (has(self.pool) && self.pool != '')",
        "a guard belongs to one pool and a gateway to none; set pool with `holder: Guard` and only then",
        ("spec",),
    ),
    Rule(
        "self.spec.holder == oldSelf.spec.holder && self.spec.pod == oldSelf.spec.pod"
        " && (has(self.spec.pool) ? self.spec.pool : '') == (has(oldSelf.spec.pool) ? oldSelf.spec.pool : '')",
        "a lease belongs to one process: holder, pod and pool cannot change; another process writes a lease of its own",
    ),
    Rule(
        "self.spec == oldSelf.spec || self.spec.tick > oldSelf.spec.tick",
        "every attempt to write a lease has a higher tick; read the clock again and write once more",
        says="'the lease is at tick %d and %d was written; read the clock again and write once more'"
        ".format([oldSelf.spec.tick, self.spec.tick])",
    ),
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "ServingPool": _SERVING_POOL,
    "Tenant": _TENANT,
    "CacheEpoch": _CACHE_EPOCH,
    "EpochLedger": _EPOCH_LEDGER,
    "FenceLease": _FENCE_LEASE,
}
"""The rules of each kind that has any."""
