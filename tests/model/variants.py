"""The variants of the models: what has to hold, and each rule removed or turned around."""

from __future__ import annotations

from tests.model.checker import CYCLE, Search, Variant

ADMITTED = "nothing below N is admitted"
HANDED_OVER = "no message below N is handed over"
ACCEPTED = "no revoked authorization is accepted"
USED = "no revoked authorization is used"
FALLS = "no field falls"
WITNESS = "no field is below a witness that was seen"

HOLD = (
    Variant("lease"),
    Variant("lease", ("ATTEMPTS=2", "BUMPS=2")),
    Variant("authorization"),
    Variant("authorization", ("ON_LOSS_DENY",)),
    Variant("authorization", ("RESTARTS=1", "ROUNDS=2")),
    Variant("ledger"),
    Variant("restore"),
    Variant("shards"),
    Variant("policy"),
    Variant("progress", search=Search.CYCLES),
    Variant("progress", ("ENGINE_STUCK",), search=Search.CYCLES),
    Variant("joined", search=Search.EVERY_HASH),
)
"""Every state is searched, and every property holds."""

ALONE = ("FAILOVERS=0", "DELETES=0", "STRANGERS=0", "LOWERINGS=0")
"""A guard and an operator to whom nothing else happens."""
LOWERED = ("FAILOVERS=0", "DELETES=0", "STRANGERS=0")


def _broken(model: str, mutation: str, breaks: str, *bounds: str) -> Variant:
    return Variant(model, (mutation, *bounds), breaks, Search.SHORTEST)


BREAK = (
    _broken("lease", "READ_BEFORE_WRITE", ADMITTED, *ALONE),
    _broken("lease", "RIGHT_FROM_READ", ADMITTED, *ALONE),
    _broken("lease", "RIGHT_FROM_ANSWER", ADMITTED, *ALONE),
    _broken("lease", "IDENTICAL_RETRY", ADMITTED, *ALONE),
    _broken("lease", "NO_MARGIN", ADMITTED, *ALONE),
    _broken("lease", "ACK_BEFORE_CLOSING", HANDED_OVER, *ALONE),
    _broken("lease", "SPLIT_CHECK", HANDED_OVER, *ALONE),
    _broken("lease", "DRAIN_ACROSS_GAP", HANDED_OVER, *ALONE),
    _broken("lease", "SPEC_LEASE", ADMITTED, *LOWERED),
    _broken("lease", "LATEST_LEASE", ADMITTED, *LOWERED),
    _broken("lease", "SETTLES_SPEC_LEASE", ADMITTED, "DELETES=0", "STRANGERS=0"),
    _broken("lease", "BLIND_DELETE", ADMITTED, "FAILOVERS=0", "STRANGERS=0", "LOWERINGS=0"),
    _broken("lease", "VANISHED_IS_FENCED", ADMITTED, "FAILOVERS=0", "DELETES=0", "LOWERINGS=0"),
    _broken("lease", "FAILOVER_KEEPS_CLOCK", ADMITTED, "DELETES=0", "STRANGERS=0", "LOWERINGS=0"),
    _broken("lease", "NO_SETTLING", ADMITTED, "DELETES=0", "LOWERINGS=0"),
    _broken("authorization", "STALE_GATEWAY_IGNORED", USED, "ROUNDS=2"),
    _broken("authorization", "NO_AGE_WAIT", USED, "ROUNDS=2"),
    _broken("authorization", "NO_FRESH_WAIT", USED, "ROUNDS=2"),
    _broken("authorization", "LEASELESS_GUARD_IGNORED", ACCEPTED, "ROUNDS=2"),
    _broken("authorization", "SHORT_SETTLING", USED, "ROUNDS=2", "RESTARTS=1"),
    _broken("ledger", "DROP_BEFORE_HEAD", FALLS),
    _broken("ledger", "DROP_BEFORE_FENCE", ACCEPTED),
    _broken("ledger", "ID_DONE_IN_SHARD", USED),
    _broken("ledger", "STALE_SHARD_ACK", ACCEPTED),
    _broken("ledger", "TRIM_BEFORE_FENCE", USED),
    _broken("restore", "UNORDERED_LINEAGE", ADMITTED),
    _broken("restore", "SEQUENCE_WITHOUT_DIGEST", WITNESS),
    _broken("restore", "NO_MERGE", ADMITTED),
    _broken("restore", "NO_DENY", ADMITTED),
    _broken("shards", "SHARD_TAKEN_WHOLE", FALLS),
    _broken("policy", "POLICY_FROM_CACHE", ACCEPTED),
    _broken("policy", "ISSUES_UNLOADED", ACCEPTED),
    Variant("progress", ("EXACT_HEAD_ONLY",), CYCLE, Search.CYCLES),
    Variant("progress", ("ENGINE_STUCK", "ROUNDS_GO_ON"), CYCLE, Search.CYCLES),
    _broken("joined", "NO_FORK_CHECK", ADMITTED),
    _broken("joined", "LINEAGE_TAKEN_WHOLE", ADMITTED),
)
"""Each has a counterexample."""

DEEPER = Variant("joined", ("ROUNDS=8",), search=Search.A_MINUTE)
"""Too large for every state."""
