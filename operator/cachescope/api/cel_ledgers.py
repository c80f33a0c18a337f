"""CEL rules of `EpochLedger`: within a lineage nothing falls, and each state follows from the one before.

They are the second line of defence: `core.ledgers.followed` is the first, and holds on a cluster whose rules were taken off. Where
`core.ledgers.fell` is wider (an authorization head may forget what is older than `reach`) they say when it may.
"""

from __future__ import annotations

from typing import Final

from cachescope.api.cel_rule import Rule

_NEWER = "self.spec.lineage.id != oldSelf.spec.lineage.id"
_DENIES = (
    "target in oldSelf.spec.denied"
    " && !(target in oldSelf.spec.readmitted && oldSelf.spec.readmitted[target] >= oldSelf.spec.denied[target])"
)
_OF_TARGETS = ("abortBelow", "drainSeconds", "denied", "readmitted", "issuedBefore", "changed")
_AGAIN = "read the ledger again and write at least what stands there"


def _number(path: str, name: str) -> Rule:
    """A number that only rises."""
    new, old = f"self.spec.{path}", f"oldSelf.spec.{path}"
    return Rule(
        f"{_NEWER} || {new} >= {old}",
        f"{name} of a ledger never falls; {_AGAIN}",
        says=f"'{name} is %d and %d was written; it never falls: {_AGAIN}'.format([{old}, {new}])",
    )


def _map(field: str, name: str) -> Rule:
    """Numbers by target that only rise, and leave with their floor alone."""
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return Rule(
        f"{_NEWER} || {old}.all(target, target in {new} ? {new}[target] >= {old}[target] : !(target in self.spec.floors))",
        f"{name} never falls within a lineage, and leaves the ledger with its floor; {_AGAIN}",
    )


_FORM = (
    Rule(
        "self.floors.all(target, target.matches('^[0-9a-f]{64}$'))",
        "a floor belongs to a target, whose name is 64 lower-case hexadecimal digits; leave the ledger to the operator",
        ("spec",),
    ),
    *(
        Rule(
            f"self.{field}.all(target, target in self.floors)",
            f"{field} holds for targets with a floor, or nobody would obey it; leave the ledger to the operator",
            ("spec",),
        )
        for field in _OF_TARGETS
    ),
    Rule(
        "self.digest.startsWith('sha256:' + self.history[self.history.size() - 1])",
        "the history of a ledger ends with its own digest; leave the ledger to the operator",
        ("spec",),
    ),
    Rule("self.confirmed <= self.restored", "only a restore that was said can be confirmed; set restored first", ("spec",)),
)

_BIRTH = (
    Rule(
        "oldSelf.hasValue() || (self.spec.sequence == 1 && self.spec.previousDigest == '')",
        "a ledger begins with sequence 1: what is made anew from a copy would bring old epochs back; "
        "do not restore ledgers, the operator makes a new one with a new lineage",
        on_create=True,
    ),
    Rule("self.spec.role == oldSelf.spec.role", "the role of a ledger cannot change; leave ledgers to the operator"),
    Rule(
        f"self.spec.lineage == oldSelf.spec.lineage || ({_NEWER}"
        " && self.spec.lineage.generation > oldSelf.spec.lineage.generation)",
        "a lineage keeps its generation, and another lineage has a higher one; start it with a generation above all that were seen",
        says="'the lineage is of generation %d and %d was written; start another lineage with one above all that were seen'"
        ".format([oldSelf.spec.lineage.generation, self.spec.lineage.generation])",
    ),
    Rule(
        f"!({_NEWER}) || (self.spec.sequence == 1 && self.spec.previousDigest == '')",
        "a lineage begins with sequence 1 and follows from nothing; number its states from 1",
    ),
)

_CHAIN = (
    Rule(
        f"{_NEWER} || self.spec == oldSelf.spec || self.spec.sequence == oldSelf.spec.sequence + 1",
        "every change of a ledger is the next sequence; read the ledger again and write the next one",
        says="'the ledger is at sequence %d and %d was written; read the ledger again and write the next one'"
        ".format([oldSelf.spec.sequence, self.spec.sequence])",
    ),
    Rule(
        f"{_NEWER} || self.spec.sequence == oldSelf.spec.sequence || self.spec.previousDigest == oldSelf.spec.digest",
        "a state of a ledger names the digest of the one before it; read the ledger again and write the next one",
    ),
    Rule(
        f"{_NEWER} || self.spec.sequence == oldSelf.spec.sequence || (self.spec.history.size() > 1 && "
        "self.spec.history[self.spec.history.size() - 2] == oldSelf.spec.history[oldSelf.spec.history.size() - 1])",
        "the history of a ledger goes on from the one before it; read the ledger again and add one entry",
    ),
)

_NOTHING_FALLS = (
    _number("base", "the base"),
    _number("reach", "the reach"),
    _number("restored", "the number of restores"),
    _number("confirmed", "the number of confirmed restores"),
    _number("flags.publicStopped", "the epoch that stopped public sharing"),
    _number("flags.bypassed", "the epoch that switched reuse off"),
    _number("flags.resumed", "the epoch that resumed"),
    Rule(
        f"{_NEWER} || oldSelf.spec.floors.all(target, !(target in self.spec.floors)"
        " || self.spec.floors[target] >= oldSelf.spec.floors[target])",
        f"a floor never falls within a lineage; {_AGAIN}",
    ),
    _map("abortBelow", "the epoch below which requests are cut"),
    _map("denied", "the epoch of a denial"),
    _map("readmitted", "the epoch of a readmission"),
    _map("issuedBefore", "the second before which credentials are refused"),
    _map("changed", "the sequence of a change"),
    Rule(
        f"{_NEWER} || oldSelf.spec.shards.all(name, name in self.spec.shards && "
        "(self.spec.shards[name].lineage.generation > oldSelf.spec.shards[name].lineage.generation"
        " || (self.spec.shards[name].lineage == oldSelf.spec.shards[name].lineage"
        " && self.spec.shards[name].sequence >= oldSelf.spec.shards[name].sequence)))",
        "the state of a shard that was announced stays announced, or a later one does; read the shards again",
    ),
    Rule(
        f"{_NEWER} || oldSelf.spec.incidents.all(id, id in self.spec.incidents"
        " && self.spec.incidents[id] == oldSelf.spec.incidents[id])",
        "an incident that was counted stays as it was counted, or it would be counted again; keep every entry",
    ),
)

_LEAVING = (
    Rule(
        f"{_NEWER} || self.spec.role == 'Authorization' || oldSelf.spec.floors.all(target, target in self.spec.floors"
        " || self.spec.base >= oldSelf.spec.floors[target])",
        "a floor leaves the ledger only once the base is at or above it; raise the base first",
    ),
    Rule(
        f"{_NEWER} || self.spec.role == 'Authorization' || oldSelf.spec.floors.all(target, target in self.spec.floors"
        f" || !(target in oldSelf.spec.issuedBefore || ({_DENIES})))",
        "what refuses credentials never leaves the ledger; keep its entry",
    ),
    Rule(
        f"{_NEWER} || self.spec.role != 'Authorization' || oldSelf.spec.floors.all(target, target in self.spec.floors"
        " || (target in oldSelf.spec.changed && self.spec.reach >= oldSelf.spec.changed[target]))",
        "a change leaves the list only once reach is at or above its sequence; raise reach too",
    ),
)

EPOCH_LEDGER: Final = (*_FORM, *_BIRTH, *_CHAIN, *_NOTHING_FALLS, *_LEAVING)
"""All rules of `EpochLedger`."""
