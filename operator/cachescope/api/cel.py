"""CEL rules of the CRDs: what a schema cannot say, enforced by the API server itself.

Rules of placing them:

- a transition rule (one that names `oldSelf`) stands at the root or at `spec`, and names required fields only. On an optional
  field the API server skips it as soon as that field, or a parent of it, is left out, and the next write starts from nothing;
- each of them passes when the spec is as before, so that labels and finalizers can still be changed: a finalizer that nobody can
  remove blocks a namespace for ever;
- each message ends with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cachescope.api.cel_ledgers import EPOCH_LEDGER
from cachescope.api.cel_rule import Rule
from cachescope.core.adapters import RESERVED
from cachescope.core.classes import WIDEST, DataClass
from cachescope.core.service_accounts import PATTERN as SERVICE_ACCOUNT
from cachescope.core.spiffe import PATTERN as SPIFFE_ID
from cachescope.core.types import ScopeClass

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
    Rule(
        "!has(self.engine.adapters) || self.engine.adapters.all(item, item.name != self.model.name)",
        "an adapter has a name of its own, because clients ask by it for the adapter or the model; rename one of the two",
        ("spec",),
    ),
    Rule(
        "!has(self.adapters) || self.adapters.all(item, self.adapters.exists_one(other, other.name == item.name))",
        "adapters have names of their own, because clients ask by them; give each another name",
        ("spec", "engine"),
    ),
    Rule(
        f"!has(self.adapters) || self.adapters.all(item, !(item.name in {list(RESERVED)}))",
        f"an adapter is not named {', '.join(RESERVED)}, which the engine takes for types of a message's parts; rename it",
        ("spec", "engine"),
    ),
    Rule(
        "!has(self.adapters) || self.adapters.all(item, [has(item.source.imagePath), has(item.source.persistentVolumeClaim),"
        " has(item.source.huggingFace)].exists_one(is_set, is_set))",
        "an adapter has one source; set exactly one of imagePath, persistentVolumeClaim and huggingFace",
        ("spec", "engine"),
    ),
    Rule(
        "has(self.dedicatedTo) == has(oldSelf.dedicatedTo) && (!has(self.dedicatedTo) || self.dedicatedTo == oldSelf.dedicatedTo)",
        "engines of one tenant never become another's; delete the pool instead, and the operator makes the one that is needed",
        ("spec",),
    ),
)

_WHOLE = "({0}.kind == 'jwt') == (has({0}.issuer) && {0}.issuer != '')"
_ISSUER = "tokens have an issuer and API keys have none; set issuer with `kind: jwt` and only then"

_WORKLOAD = (
    "a workload is named by its whole SPIFFE id, and another name would be nobody's; write it as its certificate has it, "
    "spiffe://<trust domain>/<path>"
)
_ACCOUNT = "another name would be nobody's; write system:serviceaccount:<namespace>:<name>"


def _escaped(pattern: str) -> str:
    """A regular expression inside a string of CEL, inside a text that is formatted."""
    return pattern.replace("\\", "\\\\").replace("{", "{{").replace("}", "}}")


_OF_A_PRINCIPAL = (
    (f"{{0}}.kind != 'mtls' || {{0}}.subject.matches('^{_escaped(SPIFFE_ID)}$')", _WORKLOAD),
    (f"{{0}}.kind != 'service-account' || {{0}}.subject.matches('^{_escaped(SERVICE_ACCOUNT)}$')", _ACCOUNT),
    (_WHOLE, _ISSUER),
)
"""Rules on one principal, where few stand together: what each says, and why not."""


def _members(rule: str) -> str:
    """A rule on whom compartments are open to: cheap ones alone, since there may be 65,536. Patterns of the schema say the rest."""
    return f"!has(self.members) || self.members.all(member, member.principals.all(item, {rule}))"


_TENANT = (
    Rule(
        "!has(self.jwt) || self.jwt.all(item, !has(item.claims) || item.claims.all(name, name.size() <= 128))",
        "the name of a claim has at most 128 characters; name a claim of the provider's tokens",
        ("spec", "identities"),
    ),
    Rule(_members(_WHOLE.format("item")), _ISSUER, ("spec", "compartments")),
    Rule(_members("item.kind != 'mtls' || item.subject.startsWith('spiffe://')"), _WORKLOAD, ("spec", "compartments")),
    Rule(
        _members("item.kind != 'service-account' || item.subject.startsWith('system:serviceaccount:')"),
        _ACCOUNT,
        ("spec", "compartments"),
    ),
)


def _at_most(data: DataClass) -> Rule:
    """What a CacheScope says of a data class is no wider than what is allowed of it."""
    name, widest = data.value, WIDEST[data].value
    allowed = [scope.value for scope in ScopeClass if scope.width >= WIDEST[data].width]
    advice = f"wider than {widest}, the widest class of {name} data; set {name} to {widest} or narrower"
    return Rule(
        f"!has(self.{name}) || self.{name} in {allowed}",
        f"classification.{name} is {advice}",
        ("spec", "classification"),
        says=f"self.{name} + ' is {advice}'",
    )


_CACHE_SCOPE = (
    *(_at_most(data) for data in DataClass if data is not DataClass.PUBLIC),
    *(
        Rule(f"!has(self.applications) || self.applications.all(item, {rule.format('item')})", message, ("spec",))
        for rule, message in _OF_A_PRINCIPAL
    ),
)

_PUBLIC_SOURCE = (
    Rule(
        "self.digest == oldSelf.digest",
        "the digest cannot change, because the approval is of that text; make another PublicSource",
        ("spec",),
    ),
    Rule(
        "self.expires > self.at",
        "an approval ends after it begins; set expires to a time after at",
        ("spec", "approval"),
    ),
)

_OF_PEOPLE = "self.target.kind in ['Tenant', 'Principal', 'Compartment']"

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
    Rule(
        "(self.kind == 'Namespace') == (!has(self.name) || self.name == '')",
        "a target is named, except the namespace itself; set name, except with `kind: Namespace`",
        ("spec", "target"),
    ),
    Rule(
        "(self.kind == 'Principal') == has(self.principal)",
        "a principal is somebody of a Tenant; set principal with `kind: Principal` and only then",
        ("spec", "target"),
    ),
    Rule(
        "(self.kind == 'Compartment') == (has(self.compartment) && self.compartment != '')",
        "a compartment is one of a Tenant; set compartment with `kind: Compartment` and only then",
        ("spec", "target"),
    ),
    *(Rule(rule.format("self"), message, ("spec", "target", "principal")) for rule, message in _OF_A_PRINCIPAL),
    Rule(
        "(self.mode == 'Drain') == (has(self.drainSeconds) && self.drainSeconds > 0)",
        "set drainSeconds with `mode: Drain` and only then",
        ("spec", "incident", "inFlight"),
    ),
    Rule(
        "(self.target.kind == 'Namespace') == has(self.restored)",
        "set restored with a target of `kind: Namespace` and only then",
        ("spec",),
    ),
    Rule(
        "self.target.kind != 'Namespace' || (has(self.incident) && !has(self.floor))",
        "a restore is an incident without a floor; set incident, and remove floor",
        ("spec",),
    ),
    Rule(
        f"({_OF_PEOPLE} && has(self.incident)) || !(self.deny || self.readmit || has(self.credentialsIssuedBefore))",
        "deny, readmit and credentialsIssuedBefore belong to an incident of a Tenant, Principal or Compartment; set both",
        ("spec",),
    ),
    Rule("!(self.deny && self.readmit)", "deny and readmit contradict each other; set one", ("spec",)),
    Rule(
        "self.target.kind == 'ServingPool' || !has(self.incident)"
        " || !(self.incident.stopPublicSharing || self.incident.bypassReuse)",
        "stopPublicSharing and bypassReuse belong to a pool; set `kind: ServingPool`",
        ("spec",),
    ),
    Rule(
        "self.target.kind == 'ServingPool' || !has(self.incident) || !has(self.incident.inFlight)"
        " || self.incident.inFlight.mode == 'Abort'",
        "only what a pool holds can drain; set `mode: Abort`",
        ("spec",),
    ),
)

_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# A fence is a write of every guard: what cannot change is looked at once, and transitions from `spec` on, where names cost less.
_FENCE_LEASE = (
    Rule(
        f"oldSelf.hasValue() || self.metadata.name.matches('^{_UUID}\\\\.[0-9a-f]{{32}}$')",
        "a lease is named `<UID of the pod>.<32 hexadecimal digits>`; leave leases to guards and gateways",
        on_create=True,
    ),
    Rule(
        "oldSelf.hasValue() || (self.holder == 'Guard') == (has(self.pool) && self.pool != '')",
        "a guard belongs to one pool and a gateway to none; set pool with `holder: Guard` and only then",
        ("spec",),
        on_create=True,
    ),
    Rule(
        "self.holder == oldSelf.holder && self.pod == oldSelf.pod"
        " && (has(self.pool) ? self.pool : '') == (has(oldSelf.pool) ? oldSelf.pool : '')",
        "a lease belongs to one process: holder, pod and pool cannot change; another process writes a lease of its own",
        ("spec",),
    ),
    Rule(
        "self.tick > oldSelf.tick || self == oldSelf",
        "every attempt to write a lease has a higher tick; read the clock again and write once more",
        ("spec",),
        says="'the lease is at tick %d and %d was written; read the clock again and write once more'"
        ".format([oldSelf.tick, self.tick])",
    ),
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "ServingPool": _SERVING_POOL,
    "Tenant": _TENANT,
    "CacheScope": _CACHE_SCOPE,
    "PublicSource": _PUBLIC_SOURCE,
    "CacheEpoch": _CACHE_EPOCH,
    "EpochLedger": EPOCH_LEDGER,
    "FenceLease": _FENCE_LEASE,
}
"""The rules of each kind that has any."""
