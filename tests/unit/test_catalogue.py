"""The data files of the catalogue: whole, with a source for each fact, and in the distribution."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from packaging.version import Version
from pydantic import BaseModel

from cachescope.engines import catalogue, vllm
from cachescope.engines.catalogue import facts, file_name, parsed
from cachescope.engines.descriptions import Description
from cachescope.engines.evidence import Evidence
from cachescope.engines.facts import EngineType, Facts
from cachescope.engines.releases import first_enforced, release, step_at
from cachescope.engines.routes import Capability
from cachescope.engines.verdicts import verdict
from cachescope.engines.vllm_fields import salt_of
from tests.unit.make_engines import MARK, PAGE, generated

ROOT = Path(__file__).parents[2]
FOLDER = Path(catalogue.__file__).parent
every_engine = pytest.mark.parametrize("engine", EngineType, ids=lambda engine: engine.value)


def _document(engine: EngineType) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / file_name(engine)).read_text("utf-8"))
    return found


def _evidence(value: object) -> Iterator[Evidence]:
    if isinstance(value, Evidence):
        yield value
    if isinstance(value, tuple):
        for part in value:
            yield from _evidence(part)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _evidence(getattr(value, name))


def test_there_is_one_file_for_each_engine_and_no_other() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == {file_name(engine) for engine in EngineType}


@every_engine
def test_every_fact_names_its_source(engine: EngineType) -> None:
    found = list(_evidence(facts(engine)))
    assert found
    assert all(len(item.source) > 10 for item in found)


@every_engine
def test_an_engine_says_what_was_read_of_it_how_it_is_switched_off_and_what_it_leaks(engine: EngineType) -> None:
    known = facts(engine)
    assert (known.reading is None) is (engine is EngineType.CUSTOM)
    if known.salt is not None:
        assert known.leaks
        assert known.flush
        assert known.parallelism
        assert known.routes


def test_the_wheel_has_the_data() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    assert build == {"targets": {"wheel": {"packages": ["operator/cachescope"]}}}, "everything below it is packed, unless left out"
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert not [line for line in ignored if "json" in line or "catalogue" in line], "what git ignores is not packed"
    assert FOLDER.is_relative_to(ROOT / "operator" / "cachescope")


CHANGES: list[tuple[str, list[str | int], object]] = [
    ("an unknown key", ["limits"], 1),
    ("an unknown key of a step", ["floor", 0, "until"], "1.0.0"),
    ("a fact without a source", ["floor", 0, "source"], ""),
    ("a basis that there is not", ["floor", 0, "basis"], "Guessed"),
    ("what was reported enforces", ["floor", 1, "basis"], "Reported"),
    ("what was deduced enforces", ["routes", 0, "steps", 0, "basis"], "Deduced"),
    ("what was tried enforces", ["connectors", 0, "steps", 0, "basis"], "Tried"),
    ("a hash that was deduced enforces", ["hashes", "algorithms", 2, "capability"], "Enforced"),
    ("a capability that there is not", ["floor", 0, "capability"], "Fine"),
    ("a candidate as a floor", ["floor", 1, "since"], "0.31.0rc1"),
    ("a local version as a floor", ["floor", 1, "since"], "0.31.0+cpu"),
    ("text as a floor", ["floor", 1, "since"], "latest"),
    ("steps that do not rise", ["floor", 0, "since"], "0.31.0"),
    ("an engine without steps", ["floor"], []),
    ("a route without steps", ["routes", 0, "steps"], []),
    ("a path that is none", ["routes", 0, "paths", 0], "chat"),
    ("a route twice", ["routes", 1, "paths", 0], "/v1/chat/completions"),
    ("a connector twice", ["connectors", 1, "also", 0], "offloadingCONNECTOR"),
    ("a field for one request without its value", ["bypass", "field"], "cache_prompt"),
    ("no field that wins over arguments", ["bypass", "wins"], True),
    ("a refusal of nothing", ["refused"], [{"why": "x; y", "basis": "Read", "source": "somewhere"}]),
    ("a mode that there is not", ["overrides", 0, "modes", 0], "Sometimes"),
    ("what enforces and takes no salt", ["salt"], None),
    ("what enforces and was not read", ["reading"], None),
    ("what enforces and was read on a branch alone", ["reading"], {"what": "a branch", "when": "today"}),
    ("a range with one end", ["reading", "last"], None),
    ("another engine", ["engine"], "Triton"),
]


@pytest.mark.parametrize(("fault", "path", "value"), CHANGES, ids=[change[0] for change in CHANGES])
def test_a_data_file_with_a_fault_is_refused(fault: str, path: list[str | int], value: object) -> None:
    document = _document(EngineType.VLLM)
    parsed(json.dumps(document), "vllm.json")
    place: Any = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(RuntimeError, match=r"^vllm\.json is no catalogue \(.+\); correct these fields$"):
        parsed(json.dumps(document), "vllm.json")
    assert fault


def test_a_file_that_is_missing_or_speaks_of_another_engine_is_said() -> None:
    with patch.object(catalogue, "file_name", return_value="nobody.json"), pytest.raises(RuntimeError, match="nobody"):
        facts.__wrapped__(EngineType.VLLM)
    with patch.object(catalogue, "file_name", return_value="tgi.json"), pytest.raises(RuntimeError, match="speaks of TGI"):
        facts.__wrapped__(EngineType.VLLM)


def test_a_step_holds_until_the_next_one() -> None:
    floor = facts(EngineType.SGLANG).floor
    found = {
        version: step_at(floor, Version(version)) for version in ("0.0.1", "0.5.2", "0.5.3", "0.5.17", "0.5.18", "0.5.20", "9")
    }
    assert [step.since if step else None for step in found.values()] == ["0", "0", "0.5.3", "0.5.3", "0.5.18", "0.5.20", "0.5.20"]


def test_of_an_unknown_release_nothing_is_believed_but_what_no_release_does() -> None:
    assert step_at(facts(EngineType.VLLM).floor, None) is None
    known = {item.name: item for item in facts(EngineType.VLLM).connectors}
    assert step_at(known["OffloadingConnector"].steps, None) is None
    assert step_at(known["LMCacheMPConnector"].steps, None) is None
    step = step_at(known["LMCacheConnectorV1"].steps, None)
    assert step
    assert step.capability is Capability.BROKEN


@pytest.mark.parametrize("version", ["0.32.0", "v0.32", "0.32.0.post1", "2026.10.11549"])
def test_a_release_is_one(version: str) -> None:
    assert release(version) == Version(version)


@pytest.mark.parametrize(
    "version", ["0.32.0rc1", "0.32.0.dev1", "0.32.0+cpu", "1!0.32.0", "latest", "", "b11549", "sha256:ab", "0.32.x"]
)
def test_what_is_no_release_is_none(version: str) -> None:
    assert release(version) is None


def test_the_gateway_and_the_catalogue_know_the_same_routes_of_vllm() -> None:
    """The gateway's lists of fields stay where they are; since when a route takes a salt is said in the catalogue alone."""
    known = {(route.method, path): route for route in facts(EngineType.VLLM).routes for path in route.paths}
    for place, route in vllm.ROUTES.items():
        since = first_enforced(known[place].steps)
        assert (route.salt.since if route.salt else None) == since
        assert (route.salt is None) is (known[place].without_cache is not None)
    assert first_enforced(facts(EngineType.VLLM).floor) == str(vllm.FIRST_ENFORCED) == "0.31.0"
    assert vllm.FIRST_WITH_SALT == "0.9.0"


def test_a_route_that_the_catalogue_has_no_salt_for_cannot_be_offered() -> None:
    assert salt_of("/v1/completions").since == "0.10.0"
    for path in ("/v2/chat", "/v1/nobodys"):
        with pytest.raises(RuntimeError, match=f"no salt for {path}; add the route"):
            salt_of(path)


def test_limits_of_a_salt_hold_for_the_salts_that_are_made() -> None:
    salt = facts(EngineType.VLLM).salt
    assert salt
    assert (salt.fields, salt.max_characters, set(salt.refused_characters)) == (("cache_salt",), 128, set("@/\\\0"))
    sglang = facts(EngineType.SGLANG).salt
    assert sglang
    assert (sglang.fields, sglang.max_characters) == (("cache_salt", "extra_key"), None)


# What shows a hit, and the argument without which it is not there.
PROOFS = {
    EngineType.VLLM: {
        "usage.prompt_tokens_details.cached_tokens": "--enable-prompt-tokens-details",
        "usage.input_tokens_details.cached_tokens": None,
        "vllm:prefix_cache_hits_total": None,
        "vllm:prefix_cache_queries_total": None,
    },
    EngineType.SGLANG: {
        "usage.prompt_tokens_details.cached_tokens": "--enable-cache-report",
        "meta_info.cached_tokens": None,
        "sglang:cached_tokens_total": "--enable-metrics",
    },
    EngineType.LLAMA_CPP: {"usage.prompt_tokens_details.cached_tokens": None, "llamacpp:prompt_tokens_total": "--metrics"},
    EngineType.LMDEPLOY: {"usage.prompt_tokens_details.cached_tokens": None},
}


@every_engine
def test_what_shows_a_hit_is_set_by_the_platform_where_it_must_be_asked_for(engine: EngineType) -> None:
    known = facts(engine)
    assert {proof.name: proof.needs for proof in known.proofs} == PROOFS.get(engine, {})
    assert {proof.needs for proof in known.proofs} - {None} <= {item.setting for item in known.overrides}


def test_one_request_without_reuse_can_be_asked_for_of_llama_cpp_alone() -> None:
    found = {engine: known.bypass.field for engine in EngineType if (known := facts(engine)).bypass}
    assert {engine for engine, name in found.items() if name} == {EngineType.LLAMA_CPP}


def test_a_request_of_llama_cpp_could_switch_reuse_on_again_unless_the_gateway_forces_it_off() -> None:
    known = facts(EngineType.LLAMA_CPP)
    assert known.bypass
    assert (known.bypass.field, known.bypass.value, known.bypass.wins) == ("cache_prompt", False, True)
    assert [item.field for item in known.stripped] == ["id_slot"]
    assert [engine for engine in EngineType if (other := facts(engine).bypass) and other.wins] == [EngineType.LLAMA_CPP]


def test_the_default_hash_of_vllm_is_cryptographic_since_0_10_2() -> None:
    hashes = facts(EngineType.VLLM).hashes
    assert hashes
    assert [(item.since, item.name) for item in hashes.defaults] == [("0.9.0", "builtin"), ("0.10.2", "sha256")]


def _tensorrt_llm(last: str) -> Facts:
    """TensorRT-LLM, had a release of it been read in which the salt does on chat what the main branch says."""
    document = _document(EngineType.TENSORRT_LLM)
    document["reading"] |= {"first": last, "last": last}
    for steps in (document["floor"], document["routes"][0]["steps"]):
        steps.append({**steps[0], "since": last, "capability": "Enforced"})
    return parsed(json.dumps(document), "tensorrt-llm.json")


def test_a_release_of_tensorrt_llm_that_is_read_is_shared_on_chat_alone() -> None:
    found = verdict(_tensorrt_llm("1.4.0"), Description("1.4.0"))
    assert found.routable == ("/v1/chat/completions",)
    assert verdict(facts(EngineType.TENSORRT_LLM), Description("1.4.0")).routable == ()


def test_the_page_of_engines_says_what_the_catalogue_says() -> None:
    assert MARK + PAGE.read_text("utf-8").split(MARK)[1] == generated(), "run `python -m tests.unit.make_engines`"
