"""Keys of neighbouring caches: equal exactly where the cache that they are for may be shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachescope.core.identity import CacheKeys, cache_keys
from cachescope.core.record import IdentityRecord
from cachescope.core.salts import salt
from cachescope.core.types import ScopeClass
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, RECORD, digest_of, variants

REQUEST = digest_of("7")
NONCE = b"n" * 16
VARIANTS = variants(RECORD)
OF_THE_ENGINE = {"engine.model", "engine.tokenizer", "engine.runtime", "engine.adapter"}
OF_THE_PROMPT = {"content_digest", "prompt_bundle_digest", "toolset_digest", "cache_object"}
SAME = {
    "kv_scope": {"content_digest", "sources"},
    "retrieval_scope": OF_THE_ENGINE | OF_THE_PROMPT,
    "response_scope": set[str](),
}
"""By cache, what may differ between two requests that share it."""


def keys(record: IdentityRecord = RECORD, nonce: bytes | None = None) -> CacheKeys:
    return cache_keys(KEY, record, request=REQUEST, nonce=nonce)


@pytest.mark.parametrize("cache", SAME)
@pytest.mark.parametrize("field", VARIANTS)
def test_a_cache_is_shared_exactly_over_what_it_does_not_depend_on(cache: str, field: str) -> None:
    assert (getattr(keys(VARIANTS[field]), cache) == getattr(keys(), cache)) == (field in SAME[cache])


@pytest.mark.parametrize("field", VARIANTS)
def test_prefix_blocks_and_their_neighbour_cannot_drift(field: str) -> None:
    salts_meet = salt(KEY, VARIANTS[field]) == salt(KEY, RECORD)
    assert (keys(VARIANTS[field]).kv_scope == keys().kv_scope) == salts_meet


def test_an_answer_belongs_to_one_way_of_asking() -> None:
    other = cache_keys(KEY, RECORD, request=digest_of("8"))
    assert other.response_scope != keys().response_scope
    assert (other.kv_scope, other.retrieval_scope) == (keys().kv_scope, keys().retrieval_scope)


def test_sources_are_not_confused_with_one_another() -> None:
    one, other = (replace(RECORD, sources=tuple((name, 1) for name in names)) for names in (["a", "b"], ["ab"]))
    assert keys(one).retrieval_scope != keys(other).retrieval_scope


def test_keys_of_different_caches_and_the_salt_differ() -> None:
    found = keys()
    assert len({found.kv_scope, found.retrieval_scope, found.response_scope, salt(KEY, RECORD)}) == 4


def test_another_key_or_key_id_is_another_set() -> None:
    found = {cache_keys(key, RECORD, request=REQUEST).retrieval_scope for key in (KEY, OTHER_KEY, NEWER_KEY)}
    assert len(found) == 3


def test_what_is_not_reused_gets_keys_of_its_own_in_every_cache() -> None:
    once, again, shared = vars(keys(nonce=NONCE)), vars(keys(nonce=b"m" * 16)), vars(keys())
    assert not {*once.values()} & {*again.values(), *shared.values()}


def test_request_scope_takes_a_nonce() -> None:
    with pytest.raises(ValueError, match="fresh nonce"):
        keys(replace(RECORD, scope=ScopeClass.REQUEST))
    with pytest.raises(ValueError, match="16 random bytes"):
        keys(nonce=b"n" * 15)
