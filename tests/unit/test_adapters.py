"""LoRA adapters as an engine's arguments declare them, and which names they may have."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.core.adapters import (
    MAX_NAME,
    MOST_ADAPTERS,
    RESERVED,
    adapter_arguments,
    declared_adapters,
    is_name,
    is_path,
    served_names,
)
from cachescope.core.errors import SpecError
from cachescope.gateway import anthropic_contents, contents

MODULES = ["--lora-modules", "x=/a/x", "y=/a/y"]
KEPT = ["--max-cpu-loras", "2"]


@pytest.mark.parametrize(
    ("paths", "args", "expected"),
    [
        ({}, [], []),
        ({}, ["--max-loras", "4"], []),
        ({"x": "/x"}, [], ["--enable-lora", "--max-cpu-loras", "1", "--lora-modules", "x=/x"]),
        ({"x": "/x", "y": "/y"}, [], ["--enable-lora", "--max-cpu-loras", "2", "--lora-modules", "x=/x", "y=/y"]),
        ({"x": "/x"}, ["--max-loras", "4"], ["--enable-lora", "--max-cpu-loras", "4", "--lora-modules", "x=/x"]),
        ({"x": "/x"}, ["--max_loras=4"], ["--enable-lora", "--max-cpu-loras", "4", "--lora-modules", "x=/x"]),
        ({"x": "/x", "y": "/y"}, ["--max-loras=1"], ["--enable-lora", "--max-cpu-loras", "2", "--lora-modules", "x=/x", "y=/y"]),
        ({"x": "/x"}, ["--max-loras"], ["--enable-lora", "--max-cpu-loras", "1", "--lora-modules", "x=/x"]),
    ],
)
def test_all_adapters_are_declared_and_kept(paths: dict[str, str], args: list[str], expected: list[str]) -> None:
    assert adapter_arguments(paths, args) == expected
    assert declared_adapters([*args, *expected]) == paths


@pytest.mark.parametrize(
    ("path", "may"), [("/a b", True), ("/a", True), ("/a,b", False), ("/a=b", False), ("a", False), ("", False)]
)
def test_a_path_is_one_that_the_engine_reads_as_it_is(path: str, may: bool) -> None:
    assert is_path(path) is may


@pytest.mark.parametrize(
    "args",
    [
        [*KEPT, *MODULES],
        [*MODULES, *KEPT],
        [*MODULES, "--max-loras", "2"],
        ["--max-loras", "9", *KEPT, *MODULES],
        ["--max-cpu-loras", "0", "--max-loras", "2", *MODULES],
        ["serve", "/m", *KEPT, "--lora_modules", "x=/a/x", "y=/a/y", "--port", "1"],
    ],
    ids=" ".join,
)
def test_what_arguments_declare_is_read_as_the_engine_reads_it(args: list[str]) -> None:
    assert declared_adapters(args) == {"x": "/a/x", "y": "/a/y"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([*KEPT, *MODULES, *MODULES], "given twice"),
        ([*KEPT, "--lora-modules=x=/a/x"], "in one word"),
        ([*KEPT, "--lora-modules"], "names an adapter twice, or none"),
        ([*KEPT, "--lora-modules", "--port", "1"], "names an adapter twice, or none"),
        ([*KEPT, "--lora-modules", "x=/a", "x=/b"], "names an adapter twice"),
        ([*KEPT, "--lora-modules", '{"name": "x", "path": "/a"}'], "no `name=/path`"),
        ([*KEPT, "--lora-modules", "x"], "no `name=/path`"),
        ([*KEPT, "--lora-modules", "text=/a"], "a name that an adapter may have"),
        ([*KEPT, "--lora-modules", "X=/a"], "a name that an adapter may have"),
        ([*KEPT, "--lora-modules", "x=a/b"], "no `name=/path`"),
        ([*KEPT, "--lora-modules", "=/a"], "no `name=/path`"),
        ([*KEPT, "--lora-modules", "x=/a=b"], "no `name=/path`"),
        ([*KEPT, "--lora-modules", "x=/a,b"], "no `name=/path`"),
        (MODULES, "keeps 1 of 2 adapters"),
        ([*MODULES, "--max-cpu-loras", "1"], "set --max-cpu-loras 2"),
        ([*MODULES, "--max-cpu-loras", "2", "--max-cpu-loras=1"], "keeps 1 of 2"),
        ([*MODULES, "--max-cpu-loras", "two"], "keeps 1 of 2"),
        ([*MODULES, "--max-cpu-loras"], "keeps 1 of 2"),
    ],
)
def test_what_a_guard_could_not_follow_is_refused_with_a_remedy(args: list[str], says: str) -> None:
    with pytest.raises(SpecError, match=says) as refused:
        declared_adapters(args)
    assert "; " in str(refused.value)


@pytest.mark.parametrize("args", [[], ["serve", "/m"], ["-", "--", "--enable-lora"], ["--max-cpu-loras", "1"]])
def test_an_engine_without_adapters_declares_none(args: list[str]) -> None:
    assert declared_adapters(args) == {}


@pytest.mark.parametrize("name", ["x", "an-adapter", "sql.v2", "0", "x" * MAX_NAME, "text-2"])
def test_a_name_may_be(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "X", "-x", "x-", "a/b", "a b", "a=b", "a,b", "a_b", "ü", "x\n", "x" * (MAX_NAME + 1), *RESERVED]
)
def test_a_name_may_not_be(name: str) -> None:
    assert not is_name(name)


def test_no_part_of_a_message_that_passes_has_the_name_of_an_adapter() -> None:
    """vLLM serves a chat for the model itself by an adapter that is named like the type of one of its parts."""
    tables = [contents._CHAT_PARTS, contents._MESSAGE_PARTS, contents._REASONING_PARTS, contents._SUMMARY_PARTS]
    types = {kind for table in tables for kind in table} | anthropic_contents._BLOCKS.keys()
    assert {"text", "tool_use", "input_text"} <= types, "control: these are parts"
    assert {kind.split("_")[0] for kind in types} <= set(RESERVED)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"model": {"name": "m"}}, ["m"]),
        ({"model": {"name": "m"}, "engine": {"adapters": [{"name": "x"}, {"name": "y"}]}}, ["m", "x", "y"]),
        ({"model": {"name": "m"}, "engine": {"adapters": [{"name": "m"}, {"name": "x"}, {"name": "x"}]}}, ["m", "x"]),
        (
            {"model": {"name": "m"}, "engine": {"adapters": [{"name": "BAD"}, {"name": 7}, {}, "x", None, {"name": "y"}]}},
            ["m", "y"],
        ),
        ({"engine": {"adapters": [{"name": "x"}]}}, ["x"]),
        ({"model": {"name": 7}, "engine": {"adapters": {"name": "x"}}}, []),
        ({"model": [], "engine": []}, []),
        ([], []),
        (None, []),
    ],
)
def test_the_names_of_a_pool_are_found_whatever_else_is_wrong_with_it(spec: Any, expected: list[str]) -> None:
    assert served_names({"spec": spec}) == expected


def test_no_more_names_are_taken_than_a_pool_may_have() -> None:
    adapters = [{"name": f"x{number}"} for number in range(MOST_ADAPTERS + 1)]
    assert len(served_names({"spec": {"engine": {"adapters": adapters}}})) == MOST_ADAPTERS
