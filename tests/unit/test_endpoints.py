from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.endpoints import Endpoint, choose, ranked

ENDPOINTS = [Endpoint("tiny", f"uid-{index}", f"10.0.0.{index}:8000") for index in range(8)]


@given(st.binary(min_size=1, max_size=100))
def test_a_key_prefers_the_same_endpoint_whatever_the_order(key: bytes) -> None:
    assert choose(key, ENDPOINTS, {}) == choose(key, ENDPOINTS[::-1], {}) == ranked(key, ENDPOINTS)[0]


@given(st.binary(min_size=1, max_size=64), st.integers(0, 7))
def test_an_endpoint_that_leaves_moves_only_its_own_keys(key: bytes, gone: int) -> None:
    before = choose(key, ENDPOINTS, {})
    left = [endpoint for endpoint in ENDPOINTS if endpoint != ENDPOINTS[gone]]
    assert before == ENDPOINTS[gone] or choose(key, left, {}) == before


def test_nobody_gets_more_than_a_quarter_above_the_mean() -> None:
    load: Counter[str] = Counter()
    for _ in range(800):
        endpoint = choose(b"one hot key", ENDPOINTS, load)
        assert endpoint is not None
        load[endpoint.address] += 1
    assert max(load.values()) <= 126
    assert sum(load.values()) == 800


def test_keys_spread_over_endpoints() -> None:
    found = Counter(choose(f"key-{index}".encode(), ENDPOINTS, {}) for index in range(4000))
    assert min(found.values()) > 350


def test_nobody_to_choose_is_none() -> None:
    assert choose(b"key", [], {}) is None
