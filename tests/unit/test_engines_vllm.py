"""vLLM's facts: which versions enforce a salt, and that no route lets a cache field through."""

from __future__ import annotations

import pytest

from cachescope.engines import vllm
from cachescope.engines.routes import Capability, Route


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.31.0", Capability.ENFORCED),
        ("0.32.0", Capability.ENFORCED),
        ("0.32.0.post1", Capability.ENFORCED),
        ("v0.33.1", Capability.ENFORCED),
        ("0.33.9", Capability.ENFORCED),
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


def test_only_three_routes_are_reachable() -> None:
    assert set(vllm.ROUTES) == {
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
    }


@pytest.mark.parametrize("route", vllm.ROUTES.values(), ids=lambda route: route.path)
def test_no_field_is_in_two_lists_and_no_cache_field_is_kept(route: Route) -> None:
    keep, drop, refuse = route.body.keep, route.body.drop, frozenset(route.body.refuse)
    assert not keep & drop
    assert not keep & refuse
    assert not drop & refuse
    assert route.salt_field in drop
    cache_fields = {
        "cache_salt", "extra_key", "nvext", "kv_transfer_params", "ec_transfer_params", "request_id", "session_id", "priority",
        "prompt_cache_key", "mm_payload", "return_mm_kwargs", "media_io_kwargs", "mm_processor_kwargs",
    }  # fmt: skip
    assert cache_fields <= drop
    assert {"prompt_embeds", "vllm_xargs", "chat_template"} <= refuse
    assert all(reason for reason in route.body.refuse.values())
