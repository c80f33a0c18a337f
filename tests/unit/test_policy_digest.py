"""Digests of policy: order is nothing, every change is something, and operator and gateway compute the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.policy_digest import BITS, POLICY_KINDS, PolicyDigest, element, policy_digest, policy_items

Document = dict[str, Any]
METADATA = {"uid": "uid-1", "namespace": "models", "name": "a", "generation": 3, "resourceVersion": "9", "labels": {"team": "a"}}
DOCUMENTS: dict[str, Document] = {
    "Tenant": {"metadata": METADATA, "spec": {"suspended": False}, "status": {"accepted": [{"claim": "c", "since": 1}]}},
    "CacheScope": {"metadata": METADATA, "spec": {"class": "Tenant"}},
    "PublicSource": {"metadata": METADATA, "spec": {"withdrawn": False}, "status": {"conditions": []}},
    "ServingPool": {
        "metadata": METADATA,
        "spec": {
            "allowedTenants": {"namespaces": {}},
            "model": {"name": "tiny"},
            "sharing": {"stage": "Tenant"},
            "replicas": 1,
            "engine": {"image": "i", "adapters": [{"name": "x", "source": {"imagePath": "/x"}}]},
        },
    },
    "Secret": {"metadata": METADATA, "data": {"k": "dg=="}},
    "Namespace": {"metadata": METADATA},
}


def changed(kind: str, *path: str, value: Any = "another") -> Document:
    document = copy.deepcopy(DOCUMENTS[kind])
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return document


COUNTS = [
    *((kind, ("metadata", name)) for kind in POLICY_KINDS for name in ("uid", "namespace", "name")),
    ("Tenant", ("spec", "suspended")),
    ("Tenant", ("spec", "unknown")),
    ("Tenant", ("status", "accepted")),
    ("Tenant", ("metadata", "generation")),
    ("CacheScope", ("spec", "class")),
    ("PublicSource", ("spec", "withdrawn")),
    ("PublicSource", ("metadata", "generation")),
    ("CacheScope", ("metadata", "generation")),
    ("ServingPool", ("spec", "allowedTenants")),
    ("ServingPool", ("spec", "model", "name")),
    ("ServingPool", ("spec", "sharing")),
    ("ServingPool", ("spec", "engine", "adapters")),
    ("ServingPool", ("spec", "engine", "type")),
    ("ServingPool", ("spec", "isolation")),
    ("ServingPool", ("spec", "dedicatedTo")),
    ("Secret", ("data", "k")),
    ("Secret", ("metadata", "resourceVersion")),
    ("Namespace", ("metadata", "labels")),
]
COUNTS_NOT = [
    ("Tenant", ("metadata", "resourceVersion")),
    ("Tenant", ("metadata", "annotations")),
    ("Tenant", ("status", "conditions")),
    ("PublicSource", ("status", "conditions")),
    ("ServingPool", ("spec", "replicas")),
    ("ServingPool", ("spec", "engine", "image")),
    ("ServingPool", ("metadata", "generation")),
    ("ServingPool", ("metadata", "resourceVersion")),
    ("Secret", ("metadata", "labels")),
    ("Namespace", ("metadata", "annotations")),
]


@pytest.mark.parametrize(("kind", "path"), COUNTS)
def test_what_gateways_compile_counts(kind: str, path: tuple[str, ...]) -> None:
    assert policy_items(kind, changed(kind, *path)) != policy_items(kind, DOCUMENTS[kind])


@pytest.mark.parametrize(("kind", "path"), COUNTS_NOT)
def test_what_they_do_not_compile_counts_not(kind: str, path: tuple[str, ...]) -> None:
    assert policy_items(kind, changed(kind, *path)) == policy_items(kind, DOCUMENTS[kind])


@pytest.mark.parametrize("field", ["version", "args", "env"])
def test_what_decides_on_which_routes_an_engine_may_be_shared_counts_where_it_can(field: str) -> None:
    """Of another engine than vLLM, whose routes are all alike in that."""

    def items(engine: Document) -> bytes:
        return policy_items("ServingPool", changed("ServingPool", "spec", "engine", value=engine))

    assert items({"type": "SGLang", field: ["a"]}) != items({"type": "SGLang", field: ["b"]})
    assert items({"type": "vLLM", field: ["a"]}) == items({field: ["b"]})


def test_a_pool_without_adapters_counts_as_for_gateways_that_know_of_none() -> None:
    before = policy_items("ServingPool", changed("ServingPool", "spec", "engine", value={"image": "i"}))
    assert before == policy_items("ServingPool", changed("ServingPool", "spec", "engine", value={"adapters": []}))
    assert b"adapters" not in before


def test_a_kind_that_is_not_known_is_no_policy() -> None:
    with pytest.raises(KeyError):
        policy_items("FenceLease", DOCUMENTS["Tenant"])


@pytest.mark.parametrize("spec", [{"a": 0.1}, {"a": None}, {"ü": "\ud800"}, {"a": 2**70}, None, [], "x"])
@pytest.mark.parametrize("kind", ["Tenant", "ServingPool"])
def test_whatever_an_object_holds_it_counts_and_tells_times_apart(kind: str, spec: object) -> None:
    odd = {**DOCUMENTS[kind], "spec": spec}
    assert policy_items(kind, odd) == policy_items(kind, copy.deepcopy(odd))
    later = {**odd, "metadata": {**METADATA, "resourceVersion": "10", "generation": 4}}
    assert kind == "ServingPool" or policy_items(kind, odd) != policy_items(kind, later)


def test_what_is_too_deep_to_be_written_counts_by_its_version() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    document = {**DOCUMENTS["Tenant"], "spec": {"a": deep}}
    later = {**document, "metadata": {**METADATA, "resourceVersion": "10"}}
    assert policy_items("Tenant", document) != policy_items("Tenant", later)


@pytest.mark.parametrize("change", [lambda it: it[1:], lambda it: [*it, it[0]], lambda it: it[:0]])
def test_the_digest_is_of_a_set_with_its_counts_and_of_no_order(change: Callable[[list[Document]], list[Document]]) -> None:
    documents = [changed("Tenant", "metadata", "uid", value=f"uid-{number}") for number in range(20)]
    whole = policy_digest("Tenant", documents)
    for order in (documents[::-1], documents[7:] + documents[:7], sorted(documents, key=str)):
        assert policy_digest("Tenant", order) == whole
    assert policy_digest("Tenant", change(documents)) != whole


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=4)), max_size=30))
def test_following_each_change_is_the_same_as_starting_anew(steps: list[tuple[bool, bytes]]) -> None:
    followed, there = PolicyDigest(), list[bytes]()
    for add, item in steps:
        if add:
            there.append(item)
            followed.add(element(item))
        elif item in there:
            there.remove(item)
            followed.remove(element(item))
    anew = PolicyDigest()
    for item in reversed(there):
        anew.add(element(item))
    assert followed.digest() == anew.digest()


def test_an_element_is_as_wide_as_the_modulus() -> None:
    sizes = [element(bytes([number])).bit_length() for number in range(64)]
    assert BITS - 16 < max(sizes) <= BITS
