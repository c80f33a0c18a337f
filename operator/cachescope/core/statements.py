"""Statements: what a guard says of itself when a gateway challenges it.

The gateway sends a request without a permit and with a fresh nonce; the guard refuses it with 401 and its signed statement. That
one answer proves that this process is guarded, that the guard holds the pool's key, and which boot id, tick and digests it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.record import EngineDigests, Loaded
from cachescope.core.signed import key_id_of, read_signed, sign, without_empty
from cachescope.core.types import NO_CACHE, CacheIdentity, Digest

CHALLENGE_HEADER = "x-cachescope-challenge"
STATEMENT_HEADER = "x-cachescope-statement"
_PURPOSE = "statement"
_INTEGERS = frozenset({"tick", "sequence", "authorization_sequence", "right_ms"})


@dataclass(frozen=True)
class Statement:
    """A guard process, as it describes itself.

    Attributes:
        nonce: The nonce of the challenge that it answers.
        pool_uid: Its pool.
        pod_uid: Its pod.
        boot_id: Random id of the process.
        tick: Milliseconds since the process started, on the boot clock.
        engine: Digests of what the engine loaded.
        lineage: Lineage of the pool's ledger that it applied.
        sequence: Its sequence.
        authorization_lineage: Lineage of the authorization head that it applied.
        authorization_sequence: Its sequence.
        right_ms: Milliseconds that its right still lasts; with 0 it takes `Fresh` permits alone.
        version: Version of the guard.
        adapters: Digest of each LoRA adapter that the engine serves, by name; a statement without any is written as before there
            were any.
        engine_type: Which engine it guards, as in `spec.engine.type`; empty, and not written, for vLLM.
        caching: What keeps requests apart in it (`caches.Caching`); empty, and not written, for `Salted`.
        cache: Identity that its cache belongs to, where the engine knows no salts; empty, and not written, while it is nobody's.
    """

    nonce: str
    pool_uid: str
    pod_uid: str
    boot_id: str
    tick: int
    engine: EngineDigests
    lineage: str
    sequence: int
    authorization_lineage: str
    authorization_sequence: int
    right_ms: int
    version: str
    adapters: Mapping[str, Digest] = field(default_factory=dict, kw_only=True)
    engine_type: str = field(default="", kw_only=True)
    caching: str = field(default="", kw_only=True)
    cache: CacheIdentity = field(default=NO_CACHE, kw_only=True)

    @property
    def loaded(self) -> Loaded:
        """What the engine loaded."""
        return Loaded(self.engine, self.adapters)


@dataclass(frozen=True)
class SignedStatement(Statement):
    """A statement that was read and verified.

    Attributes:
        key_id: Id of the key that signed it: one that the guard holds. It is no part of what is signed.
    """

    key_id: str


def write_statement(key: Key, statement: Statement) -> str:
    """Sign a statement; the result is the value of the header `x-cachescope-statement`."""
    return sign(key, _PURPOSE, without_empty(asdict(statement), "adapters", "engine_type", "caching", "cache"))


def read_statement(keys: KeyRing, text: str, *, nonce: str) -> SignedStatement:
    """Verify and read the answer to a challenge.

    Raises:
        WireFormatError: It is no statement of a guard of this pool, or it answers another nonce.
    """
    payload = read_signed(keys, _PURPOSE, text)
    try:
        statement = _parse(payload, key_id_of(text))
    except (KeyError, TypeError, AttributeError) as error:
        raise WireFormatError(f"the statement's fields cannot be read ({error}); update the older of gateway and guard") from error
    if statement.nonce != nonce:
        raise WireFormatError("the statement answers another challenge; it may be a replay: send a new challenge")
    return statement


def _parse(payload: dict[str, Any], key_id: str) -> SignedStatement:
    engine, adapters = payload.pop("engine"), payload.pop("adapters", {})
    for name, value in payload.items():
        if type(value) is not (int if name in _INTEGERS else str):
            raise TypeError(f"{name} is of another type")
    if not all(type(value) is str for value in (*engine.values(), *adapters.values())):
        raise TypeError("a digest is of another type")
    return SignedStatement(**payload, engine=EngineDigests(**engine), key_id=key_id, adapters=adapters)
