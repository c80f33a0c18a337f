"""Approval tables: which token prefixes may be shared in which class, as an engine can tell without knowing a text.

Rules:

- a digest stands for a whole prefix: it covers every token from the first on, up to the end of a unit of `unit` tokens. So a table
  approves exact token sequences, whatever text they came from, and however tokens merge behind the approved text;
- digests are keyed BLAKE2b (RFC 7693) of 16 bytes: whoever reads a table learns no text and can guess none;
- a table is signed with the pool's permit key, and is of one pool, one tokenizer and one state of the ledger: another's is refused;
- a table never takes the place of one that is newer: `follow`;
- what ends, ends by the clock of whoever asks, and not only by the next table.

How many tokens an engine's blocks hold is no matter of the table: a block is shared if it ends within the approved tokens.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachescope.core.encodings import decode, encode
from cachescope.core.errors import SpecError, WireFormatError
from cachescope.core.keys import Key, KeyRing, derive
from cachescope.core.ledger_documents import parse_mark
from cachescope.core.ledgers import Mark, write_mark
from cachescope.core.signed import key_id_of, read_signed, sign
from cachescope.core.types import Digest, ScopeClass

PURPOSE = "approvals"
DIGEST_BYTES = 16
MAX_CHARACTERS = 900_000
"""Of a table; a ConfigMap holds a mebibyte."""
MOST_UNIT = 65_536
TOKEN_BYTES = 4

_PERSON = b"cachescope/apr/1"
_CLASSES = {str(scope.width): scope for scope in ScopeClass if scope is not ScopeClass.REQUEST}


@dataclass(frozen=True, slots=True)
class ApprovedPrefix:
    """One approved text, as the pool's tokenizer reads it.

    Attributes:
        digests: One for each whole unit, of all tokens up to its end.
        until: Seconds since 1970 from when on it is no longer approved; `None` when it does not end by itself.
    """

    digests: tuple[bytes, ...]
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table says.

    Attributes:
        pool_uid: Its pool.
        version: The state of the pool's ledger that it was made for.
        tokenizer: Digest of the tokenizer and chat template that made the tokens.
        unit: Tokens for each digest.
        prefixes: Approved prefixes by name.
        sets: For each set of approvals (`segments.approval_set`), the names of the prefixes of each class.
    """

    pool_uid: str
    version: Mark
    tokenizer: Digest
    unit: int
    prefixes: Mapping[str, ApprovedPrefix] = field(default_factory=dict)
    sets: Mapping[str, Mapping[ScopeClass, Sequence[str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expected:
    """Whose table is expected.

    Attributes:
        pool_uid: The pool.
        tokenizer: Digest of what this engine loaded as tokenizer and chat template.
    """

    pool_uid: str
    tokenizer: Digest


Ends = Mapping[ScopeClass, int | None]
"""Until when a prefix is approved, by class."""


@dataclass(frozen=True, slots=True)
class ApprovalSet:
    """The approvals of one set.

    Attributes:
        digests: What each digest approves.
        lengths: Where its texts end, or something else is approved of them than before, in units; and 1. They rise.
    """

    digests: Mapping[bytes, Ends]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A table that was verified, ready to be asked.

    Attributes:
        version: What it was made for.
        unit: Tokens for each digest.
        longest: Tokens of the longest prefix; whatever follows them in a prompt decides nothing.
    """

    version: Mark
    unit: int
    longest: int
    _digests: PrefixDigests = field(repr=False)
    _sets: Mapping[str, ApprovalSet] = field(repr=False)

    def approved(self, approvals: str, tokens: memoryview, now: float) -> dict[ScopeClass, int]:
        """How many tokens from the first on are approved, by class; a class without any is left out.

        Args:
            approvals: Name of the set.
            tokens: The prompt (`token_bytes`).
            now: Seconds since 1970.
        """
        found: dict[ScopeClass, int] = {}
        if approvals in self._sets:
            for units, ends in self._matched(self._sets[approvals], tokens):
                found |= {scope: units * self.unit for scope, until in ends.items() if until is None or now < until}
        return found

    def _matched(self, known: ApprovalSet, tokens: memoryview) -> Iterator[tuple[int, Ends]]:
        """What approves the prompt, from the shortest prefix on, with its units.

        A prefix that no text begins with is the beginning of no longer one either. So it looks where texts end or part, and behind
        the last of those places that the prompt goes through unit by unit.
        """
        last = 0
        for units, digest in self._digests.of(tokens, known.lengths):
            if digest not in known.digests:
                break
            last = units
            yield units, known.digests[digest]
        behind = next((length for length in known.lengths if length > last), last)
        for units, digest in self._digests.of(tokens, range(last + 1, behind)):
            if digest not in known.digests:
                break
            yield units, known.digests[digest]


class PrefixDigests:
    """Digests of prefixes under the key of one table.

    Args:
        key: The permit key that signs the table.
        tokenizer: Digest of the tokenizer.
        unit: Tokens for each digest.

    Raises:
        SpecError: There is no such unit.
    """

    def __init__(self, key: Key, tokenizer: Digest, unit: int) -> None:
        if not 0 < unit <= MOST_UNIT:
            raise SpecError(f"{unit} tokens are no unit of an approval table; use a number from 1 to {MOST_UNIT}")
        secret = derive(key, "approval-digest", tokenizer, str(unit)).secret
        self._begin = hashlib.blake2b(key=secret, digest_size=DIGEST_BYTES, person=_PERSON)
        self._step = unit * TOKEN_BYTES

    def prefix(self, tokens: Sequence[int], until: int | None = None) -> ApprovedPrefix:
        """What a table says of an approved text.

        Args:
            tokens: The text, as the pool's tokenizer reads it behind its chat template's head.
            until: Seconds since 1970 from when on it is no longer approved.
        """
        content = token_bytes(tokens)
        return ApprovedPrefix(tuple(digest for _, digest in self.of(content, range(1, len(content) // self._step + 1))), until)

    def of(self, tokens: memoryview, lengths: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Digests of prefixes, with their units; none of what is longer than the tokens.

        Args:
            tokens: The sequence (`token_bytes`).
            lengths: Of which prefixes, in units and rising.
        """
        hashed, done = self._begin.copy(), 0
        for units in lengths:
            end = units * self._step
            if end > len(tokens):
                return
            hashed.update(tokens[done:end])
            done = end
            yield units, hashed.copy().digest()


def token_bytes(tokens: Sequence[int]) -> memoryview:
    """Tokens as digests take them: four bytes each, the least significant first.

    Raises:
        ValueError: One is no number of a token.
    """
    try:
        numbers = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise ValueError("a token is a number from 0 to 2**32 - 1") from error
    if numbers.itemsize != TOKEN_BYTES:
        raise ValueError(f"this machine's numbers have {numbers.itemsize} bytes; approval tables need {TOKEN_BYTES}")
    if sys.byteorder == "big":
        numbers.byteswap()
    return memoryview(numbers.tobytes())


def write_table(key: Key, contents: Contents) -> str:
    """Sign a table.

    Raises:
        SpecError: It approves something that nobody may share, names a prefix that it does not hold, or is too long.
    """
    _index(contents)
    text = sign(key, PURPOSE, _document(contents))
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"the approval table has {len(text)} characters, and at most {MAX_CHARACTERS} fit; approve fewer sources")
    return text


def read_table(keys: KeyRing, text: str, expected: Expected) -> Table:
    """Verify and read a table.

    Args:
        keys: The pool's permit keys.
        text: The table.
        expected: Whose it must be.

    Raises:
        WireFormatError: Nobody of this pool signed it, it is another pool's or tokenizer's, or it cannot be read.
    """
    payload = read_signed(keys, PURPOSE, text, most=MAX_CHARACTERS)
    try:
        contents = _parse(payload)
        found = Expected(contents.pool_uid, contents.tokenizer)
        digests = PrefixDigests(keys.others[key_id_of(text, most=MAX_CHARACTERS)], contents.tokenizer, contents.unit)
        sets = _index(contents)
    except (KeyError, TypeError, AttributeError, ValueError, SpecError) as error:
        raise WireFormatError("the approval table's fields cannot be read; update the older of operator and guard") from error
    if found != expected:
        raise WireFormatError("the approval table is of another pool or tokenizer; mount this pool's own")
    longest = max((len(prefix.digests) for prefix in contents.prefixes.values()), default=0) * contents.unit
    return Table(contents.version, contents.unit, longest, digests, sets)


def follow(current: Mark | None, later: Table) -> Table:
    """The later table, if it may follow the one that is in force.

    Raises:
        WireFormatError: It is older: approvals that were taken back would come back.
    """
    if current is not None and not current.followed_by(later.version):
        raise WireFormatError(
            f"the approval table of sequence {later.version.sequence} is older than {current.sequence}; mount the newest"
        )
    return later


def _index(contents: Contents) -> dict[str, ApprovalSet]:
    return {name: _approvals(contents.prefixes, classes) for name, classes in contents.sets.items()}


def _approvals(prefixes: Mapping[str, ApprovedPrefix], classes: Mapping[ScopeClass, Sequence[str]]) -> ApprovalSet:
    found: dict[bytes, dict[ScopeClass, int | None]] = {}
    for scope, names in classes.items():
        if scope is ScopeClass.REQUEST:
            raise SpecError("nothing is shared in class Request; approve the text for a wider class")
        for prefix in _named(prefixes, names):
            for digest in prefix.digests:
                ends = found.setdefault(digest, {})
                ends[scope] = _later(ends[scope], prefix.until) if scope in ends else prefix.until
    named = (prefix for names in classes.values() for prefix in _named(prefixes, names))
    changes = {units for prefix in named for units in _changes(found, prefix.digests)}
    return ApprovalSet(found, tuple(sorted(changes | {1})))


def _changes(found: Mapping[bytes, Ends], digests: Sequence[bytes]) -> Iterator[int]:
    """After how many units of a text something else is approved, its end included."""
    for units, digest in enumerate(digests, start=1):
        if units == len(digests) or found[digest] != found[digests[units]]:
            yield units


def _named(prefixes: Mapping[str, ApprovedPrefix], names: Iterable[str]) -> Iterator[ApprovedPrefix]:
    for name in names:
        if name not in prefixes:
            raise SpecError(f"the set names {name!r}, which the table does not hold; add its digests")
        yield prefixes[name]


def _later(left: int | None, right: int | None) -> int | None:
    """The later of two ends; one prefix can be the beginning of several texts."""
    return None if left is None or right is None else max(left, right)


def _document(contents: Contents) -> dict[str, Any]:
    prefixes = {
        name: {"digests": encode(b"".join(prefix.digests)), "until": prefix.until} for name, prefix in contents.prefixes.items()
    }
    sets = {name: {str(scope.width): list(names) for scope, names in classes.items()} for name, classes in contents.sets.items()}
    return {
        "pool_uid": contents.pool_uid,
        "version": write_mark(contents.version),
        "tokenizer": contents.tokenizer,
        "unit": contents.unit,
        "prefixes": prefixes,
        "sets": sets,
    }


def _parse(payload: Mapping[str, Any]) -> Contents:
    return Contents(
        pool_uid=_of(str, payload["pool_uid"]),
        version=parse_mark(payload["version"]),
        tokenizer=Digest(_of(str, payload["tokenizer"])),
        unit=_of(int, payload["unit"]),
        prefixes={name: _prefix(item) for name, item in payload["prefixes"].items()},
        sets={
            name: {_CLASSES[width]: tuple(_of(str, item) for item in names) for width, names in classes.items()}
            for name, classes in payload["sets"].items()
        },
    )


def _prefix(item: Mapping[str, Any]) -> ApprovedPrefix:
    joined = decode(item["digests"])
    if len(joined) % DIGEST_BYTES:
        raise ValueError("a digest is cut")
    digests = tuple(joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES))
    return ApprovedPrefix(digests, None if item["until"] is None else _of(int, item["until"]))


def _of(kind: type, value: object) -> Any:  # noqa: ANN401 - it becomes the field of a dataclass
    if type(value) is not kind:
        raise TypeError("a field is of another type")
    return value
