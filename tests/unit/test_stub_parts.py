"""The parts of the stub engine that need no running engine: its cache, faults, command line and fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.manifests.engine_command import command
from e2e.stack.stub_pool import document
from e2e.stub_engine import server
from e2e.stub_engine.core import EngineCore
from e2e.stub_engine.faults import Faults, from_environment
from e2e.stub_engine.fingerprint import Fingerprint, read
from e2e.stub_engine.prefix_cache import BLOCK_TOKENS, PrefixCache

FULL_BLOCKS = 2 * BLOCK_TOKENS
PROMPT = " ".join(f"p{index}" for index in range(40))


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    cache, tokens = PrefixCache(), PROMPT.split()[:FULL_BLOCKS]
    cache.fill("a", tokens)
    assert cache.look_up("a", tokens) == BLOCK_TOKENS
    assert cache.look_up("a", [*tokens, "more"]) == FULL_BLOCKS
    assert (cache.queries, cache.hits) == (2 * FULL_BLOCKS + 1, BLOCK_TOKENS + FULL_BLOCKS)


def test_a_full_cache_drops_what_was_used_least() -> None:
    cache = PrefixCache(capacity=2)
    for salt in ("a", "b", "c"):
        cache.fill(salt, ["t"] * BLOCK_TOKENS)
    assert [cache.look_up(salt, ["t"] * (BLOCK_TOKENS + 1)) for salt in ("a", "b", "c")] == [0, BLOCK_TOKENS, BLOCK_TOKENS]


def test_a_block_is_found_behind_the_blocks_before_it_alone() -> None:
    cache, first, second = PrefixCache(), ["first"] * BLOCK_TOKENS, ["second"] * BLOCK_TOKENS
    cache.fill("", [*first, *second])
    assert cache.look_up("", [*first, *second, "more"]) == FULL_BLOCKS
    cache.fill("", second)
    assert cache.look_up("", [*second, *first, "more"]) == BLOCK_TOKENS
    assert cache.look_up("", [*second, *second, "more"]) == BLOCK_TOKENS


def test_a_fault_names_its_seconds(tmp_path: Path) -> None:
    (tmp_path / "slow-start=1.5").touch()
    assert Faults(tmp_path).seconds("slow-start") == 1.5
    assert Faults(tmp_path).seconds("slow-prefill") == 0


def test_faults_without_a_folder_are_off(tmp_path: Path) -> None:
    assert not Faults().active("never-confirm")
    assert from_environment({"STUB_FAULTS": str(tmp_path / "absent")}).seconds("slow-start") == 0


def no_class() -> None:
    """No class."""


def test_middleware_that_is_no_class_is_refused() -> None:
    options = server.arguments(["--model", "tiny", "--middleware", f"{__name__}.{no_class.__name__}"])
    with pytest.raises(ValueError, match="takes classes only"):
        server.application(options, EngineCore(), {})


def test_the_command_line_of_a_pool_is_understood() -> None:
    made = document("alpha", image="stub", args=("--token-seconds", "0.1", "--max-num-seqs", "2", "--enforce-eager"))
    made["metadata"].update(namespace="default", uid="00000001", generation=1)
    python, *line = command(parse(ServingPool, made, "this test"))
    assert (python, *line[:2]) == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    options = server.arguments([*line[2:], "--shutdown-timeout", "100"])
    assert (options.model, options.served_model_name, options.token_seconds, options.max_num_seqs) == (
        "/models/tiny",
        ["alpha"],
        0.1,
        2,
    )
    assert options.middleware == ["cachescope.guard.asgi.Guard"]
    assert options.shutdown_timeout == 100


def test_a_fingerprint_is_read_as_it_was_written() -> None:
    made = Fingerprint(made_ms=3, arrived_ms=1, scheduled_ms=2, cached_tokens=16)
    assert read(str(made)) == made
    for foreign in (None, "", "fp_44709d6fcb", "made_ms=3"):
        with pytest.raises(ValueError, match="no fingerprint"):
            read(foreign)
