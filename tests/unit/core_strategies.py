"""Hypothesis strategies and examples for the values of the core."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from cachescope.core.epochs import EpochVector
from cachescope.core.keys import Key
from cachescope.core.record import EngineDigests, IdentityRecord
from cachescope.core.types import Digest, Epoch, Namespace, ScopeClass, TargetName

KEY = Key("2026-11-30", bytes(range(32)))
OTHER_KEY = Key("2026-11-30", bytes(range(1, 33)))
NEWER_KEY = Key("2027-01-01", bytes(range(32)))

texts = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.one_of(texts, st.binary(max_size=8), st.integers(), st.none())
ascii_texts = st.text(st.characters(max_codepoint=127), max_size=6)
frame_fields = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
targets = st.sampled_from([TargetName(digit * 64) for digit in "abcdef"])
epochs = st.integers(0, 4).map(Epoch)
floors_by_target = st.dictionaries(targets, epochs, max_size=6)


def digest_of(digit: str) -> Digest:
    return Digest("sha256:" + digit * 64)


RECORD = IdentityRecord(
    cache_object="kv",
    pool_uid="pool-uid",
    scope=ScopeClass.TENANT,
    namespace=Namespace("c" * 64),
    content_digest=digest_of("0"),
    engine=EngineDigests(digest_of("1"), digest_of("2"), digest_of("3"), digest_of("4")),
    prompt_bundle_digest=digest_of("5"),
    toolset_digest=digest_of("6"),
    policy_revision=7,
    lineages=("lineage", "authorization-lineage"),
    epochs=EpochVector.of({TargetName("a" * 64): Epoch(1), TargetName("b" * 64): Epoch(2)}),
    sources=(("memory", 3),),
)


def variants(value: Any) -> dict[str, Any]:
    """One changed copy of a dataclass for each of its fields, nested ones included."""
    found: dict[str, Any] = {}
    for field in fields(value):
        current = getattr(value, field.name)
        if is_dataclass(current) and not isinstance(current, EpochVector):
            found |= {f"{field.name}.{name}": replace(value, **{field.name: inner}) for name, inner in variants(current).items()}
        else:
            found[field.name] = replace(value, **{field.name: another(current)})
    return found


def another(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, Enum):
        return next(item for item in type(value) if item is not value)
    if isinstance(value, EpochVector):
        (target, epoch), *rest = value.entries
        return EpochVector(((target, Epoch(epoch + 1)), *rest))
    if isinstance(value, int):
        return value + 1
    if isinstance(value, tuple):
        return (*value[:-1], another(value[-1]))
    if isinstance(value, str) and value.startswith("sha256:"):
        return digest_of("f")
    return value[:-1] + ("0" if value[-1:] != "0" else "1")
