"""The parts of the stub engine that need no running engine: its cache, faults, command line and fingerprint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.manifests.engine_command import command
from e2e.stack.stub_pool import document
from e2e.stub_engine import server
from e2e.stub_engine.asking import Asked
from e2e.stub_engine.core import EngineCore
from e2e.stub_engine.faults import Faults, begun_before, from_environment
from e2e.stub_engine.fingerprint import Fingerprint, read
from e2e.stub_engine.leaks import Leak, Leaks
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


def test_an_engine_knows_that_it_was_restarted_by_its_folder(tmp_path: Path) -> None:
    environ = {"STUB_FAULTS": str(tmp_path)}
    assert [begun_before(environ), begun_before(environ), begun_before({})] == [False, True, False]
    assert begun_before({"STUB_FAULTS": str(tmp_path / "absent")}) is False


def test_an_engine_is_restarted_only_where_that_matters(tmp_path: Path) -> None:
    environ = {"STUB_FAULTS": str(tmp_path)}
    for options, marks in (([], []), (["--leak", "header"], []), (["--leak", "after-restart"], [tmp_path / "begun"])):
        server.application(server.arguments(["--model", "tiny", *options]), EngineCore(), environ)
        assert list(tmp_path.iterdir()) == marks


ASKED = Asked(chat=True, model="tiny", prompt=("t",), salt="0123456789-A", max_tokens=1, stream=False, include_usage=False)
BENT = [
    (Leak.ONE_ROUTE, replace(ASKED, chat=False), ASKED, ""),
    (Leak.FIRST_CHARACTERS, ASKED, replace(ASKED, salt="0123456"), "01234567"),
    (Leak.LETTER_CASE, ASKED, replace(ASKED, salt="0123456"), "0123456789-a"),
    (Leak.STREAMED, replace(ASKED, stream=True), ASKED, ""),
    (Leak.EXTRA_KEY, replace(ASKED, extra_key="other"), ASKED, "other"),
    (Leak.SEVERAL_ANSWERS, replace(ASKED, answers=2), ASKED, ""),
]


@pytest.mark.parametrize(("leak", "bent", "straight", "salt"), BENT, ids=[leak for leak, *_ in BENT])
def test_a_leak_is_where_it_says_and_nowhere_else(leak: Leak, bent: Asked, straight: Asked, salt: str) -> None:
    leaks = Leaks(frozenset({leak}))
    assert leaks.applied(bent, []).salt == salt
    assert leaks.applied(straight, []) == straight
    assert Leaks().applied(bent, []) == bent


def test_a_leak_by_a_header_is_there_with_the_header_alone() -> None:
    leaks = Leaks(frozenset({Leak.HEADER}))
    assert leaks.applied(ASKED, [(b"x-cache-salt", b"other")]).salt == "other"
    assert leaks.applied(ASKED, [(b"x-other", b"other")]) == ASKED


def test_an_engine_that_forgets_salts_does_so_after_a_restart() -> None:
    names = frozenset({Leak.AFTER_RESTART})
    assert [Leaks(names, restarted=restarted).applied(ASKED, []).salt for restarted in (False, True)] == [ASKED.salt, ""]


def test_an_engine_that_leaks_untold_says_nothing_of_what_it_found() -> None:
    applied = Leaks(frozenset({Leak.UNTOLD})).applied(ASKED, [])
    assert (applied.salt, applied.tells_cached) == ("", False)


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
