"""Salts: every field that separates changes them, the content does not, and engines accept them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.keys import Key
from cachescope.core.salts import salt
from cachescope.core.types import Digest, Namespace, ScopeClass
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, RECORD, texts, variants

NOT_SALTED = {"content_digest", "sources"}
VARIANTS = variants(RECORD)
NONCE = b"n" * 16


@pytest.mark.parametrize("field", VARIANTS)
def test_every_field_but_what_is_said_changes_the_salt(field: str) -> None:
    assert (salt(KEY, VARIANTS[field]) == salt(KEY, RECORD)) == (field in NOT_SALTED)


def test_changed_fields_do_not_meet_each_other() -> None:
    salts = [salt(KEY, variant) for field, variant in VARIANTS.items() if field not in NOT_SALTED]
    assert len(set(salts)) == len(salts)


def test_digests_that_change_places_change_the_salt() -> None:
    engine = RECORD.engine
    for left, right in itertools.combinations(("model", "tokenizer", "runtime", "adapter"), 2):
        swapped = replace(engine, **{left: getattr(engine, right), right: getattr(engine, left)})
        assert salt(KEY, replace(RECORD, engine=swapped)) != salt(KEY, RECORD)


def test_another_key_or_key_id_is_another_set_of_salts() -> None:
    assert len({salt(key, RECORD) for key in (KEY, OTHER_KEY, NEWER_KEY)}) == 3


def test_a_nonce_separates_even_the_same_record() -> None:
    salts = {salt(KEY, RECORD, nonce) for nonce in (None, NONCE, b"m" * 16, NONCE + b"n")}
    assert len(salts) == 4


def test_request_scope_takes_a_fresh_nonce() -> None:
    request = replace(RECORD, scope=ScopeClass.REQUEST)
    with pytest.raises(ValueError, match="fresh nonce"):
        salt(KEY, request)
    with pytest.raises(ValueError, match="16 random bytes"):
        salt(KEY, request, b"n" * 15)
    assert salt(KEY, request, NONCE) != salt(KEY, request, b"m" * 16)


@given(texts, texts, st.binary(min_size=32, max_size=40))
def test_salts_are_what_engines_accept(namespace: str, pool: str, secret: bytes) -> None:
    record = replace(RECORD, namespace=Namespace(namespace), pool_uid=pool)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", salt(Key("k", secret), record))


@given(texts, texts, texts, texts)
def test_neighbouring_fields_do_not_run_together(a: str, b: str, c: str, d: str) -> None:
    left = salt(KEY, replace(RECORD, namespace=Namespace(a), prompt_bundle_digest=Digest(b)))
    right = salt(KEY, replace(RECORD, namespace=Namespace(c), prompt_bundle_digest=Digest(d)))
    assert (left == right) == ((a, b) == (c, d))


@pytest.mark.parametrize("field", VARIANTS)
def test_every_field_changes_the_records_digest(field: str) -> None:
    assert VARIANTS[field].digest() != RECORD.digest()
