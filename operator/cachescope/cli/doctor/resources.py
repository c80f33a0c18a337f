"""Do pools serve, and were tenants, scopes and epochs accepted; are API key Secrets found by their label, and can they be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.statuses import Condition, ConditionedStatus
from cachescope.cli.doctor.findings import Document, Finding, Unseen, failed, noted, passed, unseen
from cachescope.cli.doctor.observed import Observed, label, title
from cachescope.core.labels import API_KEYS_LABEL

DECLARED: Final = ("tenants", "cachescopes", "cacheepochs")
LABEL_KEYS: Final = f"kubectl label secret {API_KEYS_LABEL}=true, for the Secret that the message names"
REMEDIES: Final[Mapping[str, str]] = {
    Reason.NO_READY_POD: "see the pods and their Events: kubectl describe pods -l cachescope.dev/pool=NAME",
    Reason.NO_GATEWAY: "see the gateways' pods and their logs, in the installation's namespace",
    Reason.GUARD_WITHOUT_LEASE: "see the log of the engine: can it reach the API server?",
    Reason.GUARD_TOO_OLD: "set rollout.guardUpdates: Now, or lower the chart's settings.minimumGuardVersion",
    Reason.GUARD_NOT_PROVEN: "see the guard's log in the engine pods, and /readyz of a gateway pod",
    Reason.INVALID_SPEC: "correct the field that the message names",
    Reason.NO_SPARE_GPU: "free a GPU, or set rollout.strategy: InPlace",
    Reason.UNSCHEDULABLE: "make room, or ask for less in resources, gpus and podTemplate",
    Reason.POD_FAILING: "kubectl describe pod, for a container that does not start; kubectl logs --previous, for one that ends",
    Reason.FEWER_THAN_ASKED: "see the pods that are missing",
    Reason.MODEL_NAME_TAKEN: "give one of the two pools another model.name, or its adapter another name",
    Reason.NAME_TAKEN: "delete or rename the object that the message names, or give the pool another name",
    Reason.LEDGER_UNUSABLE: "restore the EpochLedger, or delete it for a new lineage; the message says if CacheEpochs must go",
    Reason.ROOT_KEYS_MISSING: "restore the Secret cachescope-root-keys from its backup",
    Reason.CLUSTER_ERROR: "see the operator's log and its Role",
    Reason.NO_TENANTS: "create a Tenant in the pool's namespace that isolation.tenants selects",
    Reason.TENANTS_NOT_READY: "see the pools that the message names: kubectl get spools -l cachescope.dev/pool=NAME",
    Reason.TOO_MANY_TENANTS: "raise isolation.maxIsolatedPools, or select fewer tenants by isolation.tenants",
    Reason.OTHER_NAMESPACES: "take allowedTenants away, and give each of the other namespaces a pool",
    Reason.IDENTITY_TAKEN: "remove the identity here, or from the Tenant that holds it",
    Reason.UNKNOWN_PROVIDER: "add the provider, the trust domain or serviceAccounts to the chart's settings, or correct the name",
    Reason.FOREIGN_SERVICE_ACCOUNT: "claim a ServiceAccount of this namespace, or make the Tenant in the installation's",
    Reason.SECRET_NOT_FOUND: "make it: cachescope keys create",
    Reason.SECRET_NOT_LABELLED: LABEL_KEYS,
    Reason.NOT_APPROVED: "have it approved, and set spec.approval; or remove it",
    Reason.EXPIRED: "have it approved anew, and set spec.approval; or remove it",
    Reason.WITHDRAWN: "nothing, if that is meant; else make another PublicSource",
    Reason.NOTHING_PUBLIC: "approve a source, or set the pool's sharing.stage",
    Reason.REFERENCE_NOT_FOUND: "create what is named, or correct the name",
    Reason.AWAITING_FENCE: "wait, and see the CacheEpochs that the message names",
    Reason.WAITING_FOR_PROCESSES: "wait; where it does not end, see the pods of the FenceLeases: kubectl get fenceleases -A",
    Reason.SETTLING: "wait: what may have been missed while no operator watched has to run out",
    Reason.NOT_WRITTEN: "see the operator's log, and the pool",
    Reason.RESTORE_UNCONFIRMED: "make revocations since the backup anew, then: kubectl cachescope restored --confirm",
    Reason.JUMP_TOO_LARGE: "ask for a floor at most 1,000 above the epoch that stands",
    Reason.MOMENT_TOO_LATE: "set credentialsIssuedBefore to a moment at most a day ahead",
    Reason.NOT_VERIFIED_YET: "wait: the probe asks each engine process before it reuses anything",
    Reason.PARTLY_VERIFIED: "wait: the probe asks each engine process before it reuses anything",
    Reason.NO_EVIDENCE: "let the engine report cached tokens, or count them; until then nothing is reused",
    Reason.PROBE_FAILED: "see the message; can the operator reach the Service cachescope-gateway-probes?",
    Reason.OTHER_VERSION: "correct engine.version of the pool, or the image",
    Reason.LEAK: "replace the engine, then set sharing.resumeAfter of the pool to status.isolation.incident; docs/incidents.md",
    Reason.POSTPONED: "see the message: a ledger has no room for it, or not yet",
}
Judge = Callable[[str, Document], Iterator[Finding]]
"""What is wrong with one object of a kind."""

_OTHER: Final = "read the message; kubectl describe shows its Events"


def check(observed: Observed) -> Iterator[Finding]:
    """Every check of this file."""
    yield from _all(observed, "servingpools", _pool)
    for plural in DECLARED:
        yield from _all(observed, plural, _declared)
    yield from _all(observed, "publicsources", _source)
    yield from _key_secrets(observed)


def _all(observed: Observed, plural: str, judge: Judge) -> Iterator[Finding]:
    documents = observed.of(plural)
    if isinstance(documents, Unseen):
        yield unseen(plural, documents)
        return
    findings = [finding for document in documents for finding in judge(plural, document)]
    yield from findings
    if not findings:
        yield passed(plural, f"{len(documents)} of {len(documents)} are well")


def _pool(plural: str, document: Document) -> Iterator[Finding]:
    conditions = _conditions(document)
    ready = conditions.get(ConditionType.READY)
    if ready is None or ready.observed_generation < document["metadata"].get("generation", 1):
        yield _not_looked_at(plural, document)
        return
    for condition, bad in ((ready, "False"), (conditions.get(ConditionType.DEGRADED), "True")):
        if condition and condition.status in (bad, "Unknown") and condition.reason != Reason.SCALED_TO_ZERO:
            yield failed(plural, _said(document, condition), _remedy(condition))
    shown = conditions.get(ConditionType.ISOLATION_VERIFIED)
    if shown and shown.status == "False" and shown.reason != Reason.LEAK:  # which `Degraded` says
        yield failed(plural, _said(document, shown), _remedy(shown))
    outdated = conditions.get(ConditionType.GUARD_OUTDATED)
    if outdated and outdated.status == "True":
        yield noted(plural, _said(document, outdated), "set rollout.guardUpdates: Now, or wait for the next change of the pool")


def _declared(plural: str, document: Document) -> Iterator[Finding]:
    conditions = _conditions(document)
    accepted, held = conditions.get(ConditionType.ACCEPTED), conditions.get(ConditionType.HELD)
    if accepted is None:
        yield _not_looked_at(plural, document)
    elif accepted.reason == Reason.NOTHING_PUBLIC:
        yield noted(plural, _said(document, accepted), _remedy(accepted))
    elif accepted.reason == Reason.SUSPENDED:
        yield noted(plural, _said(document, accepted), "nothing, if that is meant; else set suspended: false")
    elif accepted.status != "True":
        yield failed(plural, _said(document, accepted), _remedy(accepted))
    if held and held.status == "True":
        # A lower epoch is held on purpose, for instance after a revert in Git: nothing is at fault.
        yield noted(plural, _said(document, held), _remedy(held, "nothing: epochs never fall"))


def _source(plural: str, document: Document) -> Iterator[Finding]:
    usable = _conditions(document).get(ConditionType.USABLE)
    if usable is None:
        yield _not_looked_at(plural, document)
    elif usable.reason == Reason.INVALID_SPEC:
        yield failed(plural, _said(document, usable), _remedy(usable))
    elif usable.status != "True":
        yield noted(plural, _said(document, usable), _remedy(usable))


def _key_secrets(observed: Observed) -> Iterator[Finding]:
    name = "API key Secrets"
    findings = []
    for (namespace, secret), found in observed.key_secrets.items():
        if isinstance(found, Unseen):
            findings.append(unseen(name, found))
        elif not found:
            findings.append(
                failed(name, f"{namespace}/{secret} is named by a Tenant and is not there", REMEDIES[Reason.SECRET_NOT_FOUND])
            )
        elif label(found[0], API_KEYS_LABEL) != "true":
            remedy = f"kubectl label secret -n {namespace} {secret} {API_KEYS_LABEL}=true"
            findings.append(failed(name, f"{namespace}/{secret} lacks the label by which gateways find it", remedy))
        elif fault := _fault_of_keys(found[0]):
            findings.append(failed(name, f"{namespace}/{secret}: {fault}", "make the key anew, or remove its entry"))
    yield from findings
    if not findings and not isinstance(observed.of("tenants"), Unseen):
        yield passed(name, f"all {len(observed.key_secrets)} that Tenants name are there, labelled and readable")


def _fault_of_keys(secret: Document) -> str:
    """What a gateway finds wrong with keys; its log names the Secret by a digest alone."""
    from cachescope.gateway.readings import read_secret, whatever  # noqa: PLC0415 - the gateway's libraries take long to load

    return whatever(read_secret)(dict(secret)).fault


def _conditions(document: Document) -> dict[str, Condition]:
    status = ConditionedStatus.model_validate(document.get("status") or {})
    return {condition.type: condition for condition in status.conditions}


def _not_looked_at(plural: str, document: Document) -> Finding:
    return failed(plural, f"{title(document)}: the operator has not looked at it yet", "see whether the operator works, above")


def _said(document: Document, condition: Condition) -> str:
    return f"{title(document)}: {condition.type}={condition.status} ({condition.reason}) {condition.message}".rstrip()


def _remedy(condition: Condition, other: str = _OTHER) -> str:
    return REMEDIES.get(condition.reason, other)
