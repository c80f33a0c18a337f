"""Condition types and their reasons: one list, so that dashboards and people can rely on every name."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of conditions, as in the Kubernetes API conventions: named for the state, `True` says it holds."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    GUARD_OUTDATED = "GuardOutdated"
    ACCEPTED = "Accepted"
    HELD = "Held"


class Reason(StrEnum):
    """Reasons. The value is what `kubectl describe` shows."""

    # Of Ready of a ServingPool.
    ROUTABLE = "Routable"
    SCALED_TO_ZERO = "ScaledToZero"
    NO_READY_POD = "NoReadyPod"
    GUARD_NOT_PROVEN = "GuardNotProven"
    INVALID_SPEC = "InvalidSpec"
    # Of Progressing of a ServingPool.
    ROLLING_OUT = "RollingOut"
    ROLLED_OUT = "RolledOut"
    # Of Degraded of a ServingPool.
    HEALTHY = "Healthy"
    NO_SPARE_GPU = "NoSpareGPU"
    UNSCHEDULABLE = "Unschedulable"
    POD_FAILING = "PodFailing"
    FEWER_THAN_ASKED = "FewerThanAsked"
    MODEL_NAME_TAKEN = "ModelNameTaken"
    CLUSTER_ERROR = "ClusterError"
    # Of GuardOutdated of a ServingPool.
    GUARDS_CURRENT = "GuardsCurrent"
    NEWER_GUARD_AVAILABLE = "NewerGuardAvailable"
    # Of Accepted of a Tenant or CacheScope or CacheEpoch.
    ACCEPTED = "Accepted"
    IDENTITY_TAKEN = "IdentityTaken"
    UNKNOWN_PROVIDER = "UnknownProvider"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason
    SECRET_NOT_LABELLED = "SecretNotLabelled"  # noqa: S105 - a reason
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    SUSPENDED = "Suspended"
    # Of Held of a CacheEpoch.
    SPEC_BEHIND_LEDGER = "SpecBehindLedger"
    JUMP_TOO_LARGE = "JumpTooLarge"
    NOT_HELD = "NotHeld"
