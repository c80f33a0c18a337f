"""Canonical JSON: one form for one value, the one of RFC 8785, and a refusal where the standard library differs from it."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.digests import canonical, digest, sha256
from tests.unit.core_strategies import ascii_texts, texts

plain = st.recursive(
    st.one_of(texts, st.integers(-(2**53) + 1, 2**53 - 1), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ascii_texts, inner, max_size=4)),
    max_leaves=12,
)


@given(plain)
def test_the_form_is_that_of_the_rfc(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def test_the_order_of_names_does_not_count() -> None:
    assert digest({"b": 1, "a": [2, {"d": 3, "c": 4}]}) == digest({"a": [2, {"c": 4, "d": 3}], "b": 1})


@pytest.mark.parametrize("value", [1.0, float("nan"), 2**53, -(2**53), {"é": 1}, [{"a": [0.5]}]])
def test_what_has_no_canonical_form_here_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="; "):
        canonical(value)


def test_a_digest_names_its_algorithm() -> None:
    assert sha256(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
