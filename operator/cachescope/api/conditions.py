"""Condition types and their reasons: one list, so that dashboards and people can rely on every name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

State = Literal["True", "False", "Unknown"]
"""Whether a condition holds."""


class ConditionType(StrEnum):
    """Types of conditions, as in the Kubernetes API conventions: named for the state, `True` says it holds."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    GUARD_OUTDATED = "GuardOutdated"
    ACCEPTED = "Accepted"
    HELD = "Held"
    FENCED = "Fenced"
    USABLE = "Usable"
    ISOLATION_VERIFIED = "IsolationVerified"


class Reason(StrEnum):
    """Reasons. The value is what `kubectl describe` shows; `SAID` lists which condition has which."""

    ROUTABLE = "Routable"
    SCALED_TO_ZERO = "ScaledToZero"
    NO_READY_POD = "NoReadyPod"
    NO_GATEWAY = "NoGateway"
    GUARD_WITHOUT_LEASE = "GuardWithoutLease"
    GUARD_TOO_OLD = "GuardTooOld"
    GUARD_NOT_PROVEN = "GuardNotProven"
    INVALID_SPEC = "InvalidSpec"
    NO_TENANTS = "NoTenants"
    TENANTS_NOT_READY = "TenantsNotReady"

    ROLLING_OUT = "RollingOut"
    ROLLED_OUT = "RolledOut"

    HEALTHY = "Healthy"
    NO_SPARE_GPU = "NoSpareGPU"
    UNSCHEDULABLE = "Unschedulable"
    POD_FAILING = "PodFailing"
    FEWER_THAN_ASKED = "FewerThanAsked"
    MODEL_NAME_TAKEN = "ModelNameTaken"
    NAME_TAKEN = "NameTaken"
    LEDGER_UNUSABLE = "LedgerUnusable"
    ROOT_KEYS_MISSING = "RootKeysMissing"
    CLUSTER_ERROR = "ClusterError"
    TOO_MANY_TENANTS = "TooManyTenants"
    OTHER_NAMESPACES = "OtherNamespaces"

    GUARDS_CURRENT = "GuardsCurrent"
    NEWER_GUARD_AVAILABLE = "NewerGuardAvailable"
    OLD_GUARD_RUNNING = "OldGuardRunning"

    ACCEPTED = "Accepted"
    IDENTITY_TAKEN = "IdentityTaken"
    UNKNOWN_PROVIDER = "UnknownProvider"
    FOREIGN_SERVICE_ACCOUNT = "ForeignServiceAccount"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason
    SECRET_NOT_LABELLED = "SecretNotLabelled"  # noqa: S105 - a reason
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    AWAITING_FENCE = "AwaitingFence"
    SUSPENDED = "Suspended"

    APPROVED = "Approved"
    NOT_APPROVED = "NotApproved"
    WITHDRAWN = "Withdrawn"
    NOTHING_PUBLIC = "NothingPublic"

    SPEC_BEHIND_LEDGER = "SpecBehindLedger"
    JUMP_TOO_LARGE = "JumpTooLarge"
    MOMENT_TOO_LATE = "MomentTooLate"
    POSTPONED = "Postponed"
    NOT_HELD = "NotHeld"

    ACKNOWLEDGED = "Acknowledged"
    EXPIRED = "Expired"
    WAITING_FOR_PROCESSES = "WaitingForProcesses"
    SETTLING = "Settling"
    RESTORE_UNCONFIRMED = "RestoreUnconfirmed"
    NOT_WRITTEN = "NotWritten"

    VERIFIED = "Verified"
    ONE_CACHE_PER_POD = "OneCachePerPod"
    REUSE_OFF = "ReuseOff"
    NOT_VERIFIED_YET = "NotVerifiedYet"
    PARTLY_VERIFIED = "PartlyVerified"
    NO_EVIDENCE = "NoEvidence"
    PROBE_FAILED = "ProbeFailed"
    LEAK = "Leak"
    OTHER_VERSION = "OtherVersion"


_BY_STATE: Final[Mapping[ConditionType, Mapping[State, tuple[Reason, ...]]]] = {
    # Of a ServingPool.
    ConditionType.READY: {
        "True": (Reason.ROUTABLE,),
        "False": (
            Reason.SCALED_TO_ZERO,
            Reason.NO_READY_POD,
            Reason.NO_GATEWAY,
            Reason.GUARD_WITHOUT_LEASE,
            Reason.GUARD_TOO_OLD,
            Reason.GUARD_NOT_PROVEN,
            Reason.INVALID_SPEC,
            Reason.MODEL_NAME_TAKEN,
            Reason.NAME_TAKEN,
            Reason.LEDGER_UNUSABLE,
            Reason.CLUSTER_ERROR,
            # Of one that has a pool for each tenant.
            Reason.NO_TENANTS,
            Reason.TENANTS_NOT_READY,
        ),
        "Unknown": (Reason.ROOT_KEYS_MISSING,),
    },
    ConditionType.PROGRESSING: {"True": (Reason.ROLLING_OUT,), "False": (Reason.ROLLED_OUT,)},
    ConditionType.DEGRADED: {
        "False": (Reason.HEALTHY,),
        "True": (
            Reason.NO_SPARE_GPU,
            Reason.UNSCHEDULABLE,
            Reason.POD_FAILING,
            Reason.FEWER_THAN_ASKED,
            Reason.MODEL_NAME_TAKEN,
            Reason.NAME_TAKEN,
            Reason.LEDGER_UNUSABLE,
            Reason.ROOT_KEYS_MISSING,
            Reason.CLUSTER_ERROR,
            Reason.TOO_MANY_TENANTS,
            Reason.OTHER_NAMESPACES,
            Reason.LEAK,
            Reason.OTHER_VERSION,
        ),
    },
    # `False`: nothing is reused by the processes that are not verified. `Unknown`: there is no process.
    ConditionType.ISOLATION_VERIFIED: {
        "True": (Reason.VERIFIED, Reason.ONE_CACHE_PER_POD, Reason.REUSE_OFF),
        "False": (
            Reason.NOT_VERIFIED_YET,
            Reason.PARTLY_VERIFIED,
            Reason.NO_EVIDENCE,
            Reason.PROBE_FAILED,
            Reason.OTHER_VERSION,
            Reason.LEAK,
        ),
        "Unknown": (Reason.NO_READY_POD,),
    },
    ConditionType.GUARD_OUTDATED: {
        "False": (Reason.GUARDS_CURRENT,),
        "True": (Reason.NEWER_GUARD_AVAILABLE, Reason.OLD_GUARD_RUNNING),
    },
    # Of a Tenant, CacheScope or CacheEpoch.
    ConditionType.ACCEPTED: {
        "True": (Reason.ACCEPTED, Reason.SUSPENDED, Reason.NOTHING_PUBLIC),
        "False": (
            Reason.INVALID_SPEC,
            Reason.IDENTITY_TAKEN,
            Reason.UNKNOWN_PROVIDER,
            Reason.FOREIGN_SERVICE_ACCOUNT,
            Reason.SECRET_NOT_FOUND,
            Reason.SECRET_NOT_LABELLED,
            Reason.REFERENCE_NOT_FOUND,
            Reason.AWAITING_FENCE,
            Reason.LEDGER_UNUSABLE,
        ),
    },
    # Of a PublicSource.
    ConditionType.USABLE: {
        "True": (Reason.APPROVED,),
        "False": (Reason.NOT_APPROVED, Reason.EXPIRED, Reason.WITHDRAWN, Reason.INVALID_SPEC),
    },
    # Of a CacheEpoch; `Fenced` also of a ServingPool.
    # `Acknowledged`: by every process. `Expired`: the others were not heard of for longer than their rights last.
    ConditionType.FENCED: {
        "True": (Reason.ACKNOWLEDGED, Reason.EXPIRED),
        "False": (Reason.WAITING_FOR_PROCESSES, Reason.SETTLING, Reason.NOT_WRITTEN, Reason.RESTORE_UNCONFIRMED),
    },
    ConditionType.HELD: {
        "False": (Reason.NOT_HELD,),
        "True": (Reason.SPEC_BEHIND_LEDGER, Reason.JUMP_TOO_LARGE, Reason.MOMENT_TOO_LATE, Reason.POSTPONED),
    },
}
SAID: Final[frozenset[tuple[ConditionType, State, Reason]]] = frozenset(
    (kind, state, reason) for kind, states in _BY_STATE.items() for state, reasons in states.items() for reason in reasons
)
"""All that the operator ever says. A verdict that is not in it is a fault of the code; the reference lists the same."""
