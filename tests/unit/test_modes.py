"""The mode of a pool, by what it wishes and what its engine can do."""

from __future__ import annotations

import pytest

from cachescope.engines.facts import Mode
from cachescope.engines.modes import Choice, Isolation, choose
from tests.unit.judged_pools import CHAT, judged

SHARED, PER_TENANT, DISABLED = Mode.SHARED, Mode.PER_TENANT, Mode.DISABLED

# Engine, version, mode of a pool that wishes Auto, Shared, PerTenant, Disabled; `None` where the wish is refused.
MODES = [
    ("vLLM", "0.33.0", SHARED, SHARED, PER_TENANT, DISABLED),
    ("vLLM", "0.31.0", SHARED, SHARED, PER_TENANT, DISABLED),
    ("vLLM", "0.30.0", PER_TENANT, None, PER_TENANT, DISABLED),
    ("vLLM", "0.8.5", PER_TENANT, None, PER_TENANT, DISABLED),
    ("vLLM", "0.34.0", PER_TENANT, None, PER_TENANT, DISABLED),
    ("vLLM", "latest", PER_TENANT, None, PER_TENANT, DISABLED),
    ("SGLang", "0.5.20", SHARED, SHARED, PER_TENANT, DISABLED),
    ("SGLang", "0.5.19", PER_TENANT, None, PER_TENANT, DISABLED),
    ("TensorRT-LLM", "1.2.1", PER_TENANT, None, PER_TENANT, DISABLED),
    ("llama.cpp", "2026.10.11549", PER_TENANT, None, PER_TENANT, DISABLED),
    ("TGI", "3.3.6", PER_TENANT, None, PER_TENANT, DISABLED),
    ("LMDeploy", "0.18.0", PER_TENANT, None, PER_TENANT, DISABLED),
    ("custom", "1.0.0", PER_TENANT, None, PER_TENANT, None),
]
WISHES = (Isolation.AUTO, Isolation.SHARED, Isolation.PER_TENANT, Isolation.DISABLED)


@pytest.mark.parametrize(("engine", "version", "modes"), [(engine, version, modes) for engine, version, *modes in MODES])
def test_the_mode_of_a_pool(engine: str, version: str, modes: list[Mode | None]) -> None:
    choices = [choose(judged(engine, version), wish) for wish in WISHES]
    assert [choice.mode for choice in choices] == modes
    for choice in choices:
        _is_whole(choice)


def _is_whole(choice: Choice) -> None:
    assert choice.why
    assert bool(choice.problems) is (choice.mode is None)
    assert (choice.routes is not None) is (choice.mode is SHARED)
    assert all("; " in problem for problem in choice.problems)


def test_a_pool_is_shared_with_the_routes_that_keep_salts_apart_alone() -> None:
    choice = choose(judged("SGLang", "0.5.20"))
    assert choice.routes == (CHAT, "/v1/completions", "/v1/responses", "/generate")
    assert "/v1/embeddings" not in choice.why


def test_a_pool_that_must_serve_a_route_that_does_not_is_not_shared() -> None:
    asked = (CHAT, "/v1/embeddings")
    assert choose(judged("SGLang", "0.5.20", routes=(CHAT,))).mode is SHARED
    choice = choose(judged("SGLang", "0.5.20", routes=asked))
    assert choice.mode is PER_TENANT
    assert "/v1/embeddings" in choice.why
    refused = choose(judged("SGLang", "0.5.20", routes=asked), Isolation.SHARED)
    assert refused.mode is None
    assert refused.why.startswith("isolation Shared is refused: /v1/embeddings")
    assert refused.problems == (refused.why,)


def test_routes_that_reach_no_cache_do_not_stand_in_the_way() -> None:
    choice = choose(judged("vLLM", "0.31.0", routes=(CHAT, "/tokenize")))
    assert (choice.mode, choice.routes) == (SHARED, (CHAT, "/tokenize"))


def test_an_engine_that_says_it_is_another_version_shares_nothing() -> None:
    assert choose(judged("vLLM", "0.32.0", reported="0.32.0")).mode is SHARED
    found = judged("vLLM", "0.32.0", reported="0.33.0")
    choice = choose(found)
    assert choice.mode is PER_TENANT
    assert found.mismatch
    assert found.mismatch in choice.why
    assert choose(found, Isolation.SHARED).mode is None


@pytest.mark.parametrize("wish", WISHES)
def test_a_refused_setting_leaves_no_mode(wish: Isolation) -> None:
    choice = choose(judged("SGLang", "0.5.20", "--config", "x.yaml"), wish)
    assert choice.mode is None
    assert any(problem.startswith("--config reads arguments") for problem in choice.problems)
    assert choice.overrides == ()


def test_a_setting_that_is_refused_in_one_mode_is_no_problem_of_another() -> None:
    stored = judged("llama.cpp", "2026.10.11549", "--cache-ram", "4096")
    assert choose(stored).mode is PER_TENANT
    assert choose(stored, Isolation.DISABLED).mode is None


def test_reuse_that_somebody_switches_is_refused_in_every_mode() -> None:
    for engine, version, option in (
        ("SGLang", "0.5.20", "--disable-radix-cache"),
        ("LMDeploy", "0.18.0", "--enable-prefix-caching"),
    ):
        found = judged(engine, version, option)
        assert [choose(found, wish).mode for wish in (Isolation.AUTO, Isolation.DISABLED)] == [None, None]
        assert choose(judged(engine, version)).mode is not None, "the control"


# A connector, mode of a pool that wishes Auto, PerTenant, Disabled.
CONNECTORS = [
    ("OffloadingConnector", SHARED, PER_TENANT, None),
    ("MooncakeStoreConnector", SHARED, None, None),
    ("LMCacheMPConnector@0.5.6", SHARED, None, None),
    ("LMCacheConnectorV1", None, None, None),
    ("NixlConnector", None, None, None),
    ("Nobodys", None, None, None),
]


@pytest.mark.parametrize(("name", "auto", "alone", "off"), CONNECTORS)
def test_a_pool_without_salts_keeps_nothing_outside_its_processes(
    name: str, auto: Mode | None, alone: Mode | None, off: Mode | None
) -> None:
    found = judged("vLLM", "0.32.0", connectors=(name,))
    assert choose(found).mode is auto
    assert choose(found, Isolation.PER_TENANT).mode is alone
    assert choose(found, Isolation.DISABLED).mode is off
    if auto is None:
        assert choose(found).problems[0].startswith("tenants cannot share the engine: ")


def test_a_mode_has_the_settings_of_the_platform_that_belong_to_it() -> None:
    shared, off = (choose(judged("vLLM", "0.32.0"), wish) for wish in (Isolation.SHARED, Isolation.DISABLED))
    assert "--enable-prefix-caching" in {item.setting for item in shared.overrides}
    assert "--enable-prefix-caching" not in {item.setting for item in off.overrides}
    assert "--no-enable-prefix-caching" in {item.setting for item in off.overrides}
