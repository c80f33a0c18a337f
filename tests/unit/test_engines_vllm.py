"""vLLM's facts: which versions enforce a salt, and that no route lets a cache field through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from cachescope.engines import vllm
from cachescope.engines.routes import Capability, Route
from tests.unit.bodies import every_route


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.31.0", Capability.ENFORCED),
        ("0.32.0", Capability.ENFORCED),
        ("0.32.0.post1", Capability.ENFORCED),
        ("v0.33.0", Capability.ENFORCED),
        ("0.33.0", Capability.ENFORCED),
        ("0.33.0.post1", Capability.UNKNOWN),
        ("0.33.1", Capability.UNKNOWN),
        ("0.34.0", Capability.UNKNOWN),
        ("1.0.0", Capability.UNKNOWN),
        ("0.30.9", Capability.BROKEN),
        ("0.10.2", Capability.BROKEN),
        ("0.9.0", Capability.BROKEN),
        ("0.8.5", Capability.UNSUPPORTED),
        ("0.31.0rc1", Capability.UNKNOWN),
        ("0.31.0.dev12", Capability.UNKNOWN),
        ("0.32.0+cpu", Capability.UNKNOWN),
        ("0.32.1.dev3+g1234567", Capability.UNKNOWN),
        ("1!0.32.0", Capability.UNKNOWN),
        ("latest", Capability.UNKNOWN),
        ("nightly", Capability.UNKNOWN),
        ("", Capability.UNKNOWN),
        ("0.32.0; rm -rf", Capability.UNKNOWN),
    ],
)
def test_only_releases_since_0_31_enforce_a_salt(version: str, expected: Capability) -> None:
    assert vllm.capability(version) is expected


SALTED = {
    "/v1/chat/completions": "0.9.0",
    "/v1/chat/completions/batch": "0.25.0",
    "/v1/completions": "0.10.0",
    "/v1/responses": "0.10.0",
    "/v1/messages": "0.27.0",
    "/v1/embeddings": "0.16.0",
    "/pooling": "0.16.0",
    "/classify": "0.16.0",
    **dict.fromkeys(("/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"), "0.25.0"),
}
WITHOUT_CACHE = {"/v1/messages/count_tokens", "/tokenize", "/detokenize"}


def test_these_routes_and_no_others_are_reachable() -> None:
    assert {path for _, path in vllm.ROUTES} == SALTED.keys() | WITHOUT_CACHE
    assert {method for method, _ in vllm.ROUTES} == {"POST"}
    assert all(key == (route.method, route.path) for key, route in vllm.ROUTES.items())


def test_each_route_says_since_when_its_salt_reaches_the_cache() -> None:
    assert {route.path: route.salt.since for route in vllm.ROUTES.values() if route.salt} == SALTED


def test_a_salt_is_enforced_by_no_version_before_its_route_or_before_the_floor_of_all() -> None:
    assert vllm.capability("0.26.0", since="0.27.0") is Capability.UNSUPPORTED
    assert vllm.capability("0.28.0", since="0.27.0") is Capability.BROKEN
    assert vllm.capability("0.31.0", since="0.27.0") is Capability.ENFORCED
    assert vllm.capability("0.32.0", since="0.33.0") is Capability.UNSUPPORTED


def test_a_pool_that_is_served_at_all_serves_every_route() -> None:
    """The gateway does not ask for an engine's version: a route whose floor is higher needs that first."""
    assert all(Version(since) <= vllm.FIRST_ENFORCED for since in SALTED.values())


@every_route
def test_no_field_is_in_two_lists_and_no_cache_field_is_kept(route: Route) -> None:
    keep, drop, refuse = set(route.body.keep), route.body.drop, set(route.body.refuse)
    assert not keep & drop
    assert not keep & refuse
    assert not drop & refuse
    assert route.not_content <= keep
    assert frozenset().union(*route.asks) <= keep
    cache_fields = {
        "cache_salt", "extra_key", "nvext", "kv_transfer_params", "ec_transfer_params", "request_id", "session_id", "priority",
        "prompt_cache_key", "mm_payload", "return_mm_kwargs", "media_io_kwargs", "mm_processor_kwargs",
    }  # fmt: skip
    assert cache_fields <= drop
    assert {"prompt_embeds", "vllm_xargs", "chat_template"} <= refuse
    assert all(reason for reason in route.body.refuse.values())


# Unknown here, and so refused: what vLLM ignores or what only its own tools send.
LEFT_OUT = {"return_token_offsets", "early_stopping", "guided_decoding_backend"}
DECLARED: dict[str, list[str]] = json.loads(Path(__file__).with_name("vllm_fields.json").read_text("utf-8"))


@pytest.mark.parametrize("path", DECLARED)
def test_the_catalogue_knows_every_field_that_vllm_declares_and_keeps_no_other(path: str) -> None:
    """A kept field that the engine does not know would be ignored in silence."""
    body, declared = vllm.ROUTES["POST", path].body, set(DECLARED[path])
    assert body.keep.keys() <= declared
    assert declared - body.keep.keys() - body.drop - body.refuse.keys() <= LEFT_OUT


def test_every_dialect_was_compared() -> None:
    assert {vllm.ROUTES["POST", path].dialect for path in DECLARED} == {route.dialect for route in vllm.ROUTES.values()}
