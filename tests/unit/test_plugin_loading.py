"""The plugin refuses rather than guesses: where anything is not as expected the engine stays as it is, and the reason is said."""

from __future__ import annotations

import configparser
import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.types import ScopeClass
from cachescope.guard.engine_plugin import entry, internals
from cachescope.guard.engine_plugin.engine import OWNER
from cachescope.guard.engine_plugin.entry import register
from tests.unit.approval_tables import contents, mark
from tests.unit.core_strategies import OTHER_KEY, digest_of
from tests.unit.plugin_places import Place, place_of
from tests.unit.test_plugin_chains import BEGIN, BLUE, RED
from tests.unit.vllm_fakes import Core, Scheduler, config, get_request_block_hasher, hash_block_tokens, sha256

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    made = place_of(monkeypatch, tmp_path)
    made.approve(contents({ScopeClass.PUBLIC: [BEGIN[:8]]}))
    return made


def safe(core: Core) -> bool:
    """Whether a segmented salt separates from the first block, and still finds its own."""
    return [core.serve(BEGIN, salt) for salt in (RED, BLUE, RED)] == [0, 0, 36]


def test_where_all_is_as_expected_it_loads_and_shares(place: Place) -> None:
    register()
    core = Core(place.modules)
    assert not safe(core)
    (report,) = place.reports
    assert (report().problem, report().version, report().block_size) == ("", mark(1), 4)


def test_registering_again_changes_nothing(place: Place) -> None:
    register()
    wrapped = place.modules.utils.get_request_block_hasher
    register()
    assert place.modules.utils.get_request_block_hasher is wrapped is place.modules.core.get_request_block_hasher


def test_the_known_block_is_what_is_published() -> None:
    """The constant comes from vLLM 0.32; this hash does not."""
    assert hash_block_tokens(sha256, bytes(32), range(16), internals._KEYS).hex() == internals.KNOWN["sha256"]


def another_version(_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "engine_version", lambda: "vllm 0.33.0")


def a_changed_source(_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {**internals.SOURCES["0.32.0"], "vllm.v1.core.block_pool:BlockPool": "0" * 64}
    monkeypatch.setattr(internals, "SOURCES", {"0.32.0": sources})


def a_part_that_is_gone(_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {**internals.SOURCES["0.32.0"], "vllm.v1.core.block_pool:Gone": "0" * 64}
    monkeypatch.setattr(internals, "SOURCES", {"0.32.0": sources})


def a_changed_signature(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def hash_block_tokens(function: Any, parent: Any, tokens: Any, keys: Any, more: Any = None) -> bytes:
        return bytes(function((parent, tokens, keys, more)))

    monkeypatch.setattr(place.modules.utils, "hash_block_tokens", hash_block_tokens)


def another_hash_of_a_block(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "KNOWN", {"sha256": "0" * 64})
    assert place.modules


def another_chain(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def reversed_chain(size: int, function: Any) -> Callable[[Any], list[bytes]]:
        own = get_request_block_hasher(size, function)
        return lambda request: own(request)[::-1]

    monkeypatch.setattr(place.modules.utils, "get_request_block_hasher", reversed_chain)


def no_table(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "approvals").unlink()


def a_corrupt_table(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.folder / "approvals"
    path.write_text(path.read_text()[:-3])


def no_text(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "approvals").write_bytes(b"\xff\0")


def a_table_of_another_key(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    place.approve(contents({}, key=OTHER_KEY), OTHER_KEY)


def a_table_of_another_tokenizer(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    place.approve(replace(contents({}), tokenizer=digest_of("3")))


def a_table_of_another_pool(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    place.approve(replace(contents({}), pool_uid="another"))


def no_key(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (place.folder / "keys").iterdir():
        path.unlink()


def a_key_that_is_none(place: Place, _monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (place.folder / "keys").iterdir():
        path.write_text("x")


def no_setting(_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHESCOPE_APPROVALS_FILE")


def no_tokenizer(_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_model: Path, _args: object) -> None:
        raise FileNotFoundError("no tokenizer")

    monkeypatch.setattr(entry, "tokenizer_digest", missing)


REFUSED = {
    another_version: "vLLM 0.33.0 was not tried with segments; 0.32.0 was",
    a_changed_source: "BlockPool is not as in vLLM 0.32.0",
    a_part_that_is_gone: "Gone is not as in vLLM",
    a_changed_signature: "hash_block_tokens is not as in vLLM",
    another_hash_of_a_block: "a known block has another hash under sha256",
    another_chain: "are not those of the engine",
    no_table: "No such file",
    a_corrupt_table: "does not match",
    no_text: "four parts",
    a_table_of_another_key: "does not match",
    a_table_of_another_tokenizer: "another pool or tokenizer",
    a_table_of_another_pool: "another pool or tokenizer",
    no_key: "no permit key",
    a_key_that_is_none: "hexadecimal digits",
    no_setting: "CACHESCOPE_APPROVALS_FILE is not set",
    no_tokenizer: "no tokenizer",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_whatever_is_not_as_expected_shares_nothing_and_is_said(
    monkeypatch: pytest.MonkeyPatch, place: Place, change: Callable[[Place, pytest.MonkeyPatch], None]
) -> None:
    change(place, monkeypatch)
    register()
    assert safe(Core(place.modules)) or change is another_chain  # its own engine finds nothing
    assert REFUSED[change] in place.problem


UNTRIED: dict[str, Callable[[Any], None]] = {
    "prefix caching is off": lambda made: setattr(made.cache_config, "enable_prefix_caching", False),
    "not SHA-256": lambda made: setattr(made.cache_config, "prefix_caching_hash_algo", "xxhash"),
    "speculative decoding": lambda made: setattr(made, "speculative_config", object()),
    "a connector": lambda made: setattr(made, "kv_transfer_config", object()),
    "moves cached blocks": lambda made: setattr(made, "ec_transfer_config", object()),
    "cache events": lambda made: setattr(made, "kv_events_config", SimpleNamespace(enable_kv_cache_events=True)),
    "token by token": lambda made: setattr(made.model_config, "runner_type", "pooling"),
    "from one prompt": lambda made: setattr(made.model_config, "is_encoder_decoder", True),
    "does not generate": lambda made: setattr(made.model_config, "is_diffusion", True),
    "context is parallel": lambda made: setattr(made.parallel_config, "decode_context_parallel_size", 2),
    "is parallel": lambda made: setattr(made.parallel_config, "prefill_context_parallel_size", 2),
}


@pytest.mark.parametrize("problem", UNTRIED)
def test_an_engine_with_what_was_not_tried_takes_whole_salts(place: Place, problem: str) -> None:
    register()
    made = config()
    UNTRIED[problem](made)
    core = Core(place.modules, vllm_config=made)
    assert safe(core)
    assert problem in place.problem
    assert not hasattr(core.manager, OWNER)


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([], "one group"),
        (["FullAttentionSpec"] * 2, "one group"),
        (["MambaSpec"], "full attention"),
        (["SlidingWindowSpec"], "full attention"),
        (["FullAttentionSpec"], "in parts"),
    ],
)
def test_an_engine_with_another_cache_takes_whole_salts(
    monkeypatch: pytest.MonkeyPatch, place: Place, groups: list[str], problem: str
) -> None:
    original = Scheduler.__init__

    def made(self: Scheduler, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        specs = [type(name, (), {"block_size": 8})() for name in groups]
        self.kv_cache_config.kv_cache_groups = [SimpleNamespace(kv_cache_spec=spec) for spec in specs]

    monkeypatch.setattr(Scheduler, "__init__", made)
    register()
    assert safe(Core(place.modules))
    assert problem in place.problem


def test_a_hasher_without_a_scheduler_is_the_engines_own(place: Place) -> None:
    register()
    assert type(place.modules.core.get_request_block_hasher(4, sha256)) is type(get_request_block_hasher(4, sha256))


def test_an_engine_that_never_hashes_says_why_it_shares_nothing(place: Place) -> None:
    register()
    made = config()
    made.cache_config.enable_prefix_caching = False
    Scheduler(made, block_size=4)
    assert place.problem == "prefix caching is off"


def test_nothing_that_fails_ends_the_engine(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    made = config()
    del made.model_config
    assert safe(Core(place.modules, vllm_config=made))
    assert place.problem == "AttributeError"

    def failing(*_args: object) -> None:
        raise ValueError("quotes a prompt")

    place.reports.clear()
    monkeypatch.setattr(entry, "surprises", failing)
    assert safe(Core(place.modules))
    assert place.problem == "ValueError"


@pytest.mark.parametrize(("error", "problem"), [(SpecError("no vLLM"), "no vLLM"), (RuntimeError("prompt"), "RuntimeError")])
def test_registering_never_fails(place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str) -> None:
    def failing() -> str:
        raise error

    monkeypatch.setattr(entry, "engine_version", failing)
    register()
    assert place.problem == problem
    assert safe(Core(place.modules))


def test_a_core_module_that_is_imported_later_gets_it_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.modules.core, "get_request_block_hasher", "as it was imported")
    register()
    assert hasattr(place.modules.core.get_request_block_hasher, OWNER)


def test_an_injected_folder_is_found_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """`importlib.metadata` reads a `.dist-info` wherever it is on the path, as vLLM does."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "images" / "guard" / "plugin"), *sys.path])
    (found,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="cachescope")
    assert found.load() is register


def test_the_entry_point_is_the_only_one() -> None:
    (file,) = (ROOT / "images" / "guard" / "plugin").glob("*.dist-info/entry_points.txt")
    parsed = configparser.ConfigParser()
    parsed.read(file)
    assert {section: dict(parsed[section]) for section in parsed.sections()} == {
        "vllm.general_plugins": {"cachescope": "cachescope.guard.engine_plugin.entry:register"}
    }
