"""Ledgers as documents: the spec of an `EpochLedger`, or the witness in a lease, read to a `Ledger`, and written from one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cachescope.core.errors import SpecError
from cachescope.core.ledgers import Flags, Floor, Ledger, Lineage, Mark, Role, content
from cachescope.core.rights import read_rights, write_rights
from cachescope.core.types import Digest, Epoch, TargetName

_TARGET = re.compile(r"[0-9a-f]{64}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_SHORT_DIGEST = re.compile(r"[0-9a-f]{32}\Z")


def write_ledger(ledger: Ledger) -> dict[str, Any]:
    """The spec of an `EpochLedger`, as `parse_ledger` reads it, without its MAC (`ledger_seals.seal`)."""
    lists = {"history": list(ledger.history), "ancestors": list(ledger.ancestors or ())}
    return {**content(ledger), "digest": ledger.digest, **lists, "longestRight": write_rights(ledger.longest)}


def parse_ledger(spec: Any) -> Ledger:  # noqa: ANN401 - the parser is where untyped JSON ends
    """Read the spec of an `EpochLedger`, as `write_ledger` wrote it; the MAC is left to `ledger_seals`.

    Raises:
        SpecError: A field is missing or of another type, or the digest is not that of the content.
    """
    try:
        ledger = _parsed(spec)
        written, found = str(spec["digest"]), ledger.digest  # of a text without bytes there is none
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(
            f"the ledger cannot be read ({error!r}); leave ledgers to the operator; managedFields says who wrote it"
        ) from error
    if written != found:
        raise SpecError("the digest of the ledger is not that of its content; somebody edited it: the operator deals with it")
    return ledger


def parse_mark(document: Any) -> Mark:  # noqa: ANN401 - the same
    """Read a mark, as ledgers and leases hold it.

    Raises:
        SpecError: A field is missing or of another type.
    """
    try:
        return _mark(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"the mark cannot be read ({error!r}); update the older side") from error


def _parsed(spec: Mapping[str, Any]) -> Ledger:
    flags = spec["flags"]
    return Ledger(
        role=Role(spec["role"]),
        lineage=_lineage(spec["lineage"]),
        sequence=_integer(spec["sequence"]),
        base=_epoch(spec["base"]),
        floors=_floors(spec),
        flags=Flags(_epoch(flags["publicStopped"]), _epoch(flags["bypassed"]), _epoch(flags["resumed"])),
        reach=_integer(spec["reach"]),
        changed={_target(name): _integer(value) for name, value in spec["changed"].items()},
        shards={_text(name): _mark(value) for name, value in spec["shards"].items()},
        policy={_text(name): Digest(_text(value)) for name, value in spec["policy"].items()},
        restored=_integer(spec["restored"]),
        confirmed=_integer(spec["confirmed"]),
        previous=_text(spec["previousDigest"]),
        history=tuple(map(_short_digest, spec.get("history", ()))),
        incidents={_text(name): _epoch(value) for name, value in spec["incidents"].items()},
        ancestors=tuple(map(_short_digest, spec["ancestors"])) if "ancestors" in spec else None,
        longest=read_rights(spec),
    )


def _floors(spec: Mapping[str, Any]) -> dict[TargetName, Floor]:
    names = ("abortBelow", "drainSeconds", "denied", "readmitted", "issuedBefore")
    others = {name: {_target(target): _integer(value) for target, value in spec[name].items()} for name in names}
    if any(others[name].keys() - spec["floors"].keys() for name in names):
        raise ValueError("a target without a floor cannot be denied or closed")
    return {
        _target(target): Floor(
            _epoch(value),
            Epoch(others["abortBelow"].get(target, 0)),
            others["drainSeconds"].get(target, 0),
            Epoch(others["denied"].get(target, 0)),
            Epoch(others["readmitted"].get(target, 0)),
            others["issuedBefore"].get(target, 0),
        )
        for target, value in spec["floors"].items()
    }


def _mark(document: Mapping[str, Any]) -> Mark:
    if not _DIGEST.match(_text(document["digest"])):
        raise ValueError("the digest of a mark is none: a ledger that names it could not be read again")
    return Mark(_lineage(document["lineage"]), _integer(document["sequence"]), Digest(document["digest"]))


def _lineage(document: Mapping[str, Any]) -> Lineage:
    lineage = Lineage(_integer(document["generation"]), _text(document["id"]))
    if not lineage.id or lineage.generation < 1:
        raise ValueError("a lineage has an id that is not empty, and a generation from 1")
    return lineage


def _target(name: object) -> TargetName:
    if not _TARGET.match(_text(name)):
        raise ValueError(f"{name!r} names no target: its floor would hold for nobody")
    return TargetName(str(name))


def _short_digest(value: object) -> str:
    if not _SHORT_DIGEST.match(_text(value)):
        raise ValueError("the history holds what is no digest")
    return str(value)


def _epoch(value: object) -> Epoch:
    return Epoch(_integer(value))


def _integer(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise TypeError(f"{value!r} is no integer from 0 to 2**53 - 1")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value
