"""The llama.cpp image: its model is a GGUF file that a reader takes, and its launcher takes the command lines of pools."""

from __future__ import annotations

import importlib.util
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cachescope.manifests.engines.known import ENGINES
from e2e.stack import llama_pool, tiny_gguf
from tests.unit.engine_pools import arguments
from tests.unit.pools import pool

SCRIPT = Path(__file__).parents[2] / "images" / "llama-cpp" / "llama_server.py"
REQUIREMENTS = SCRIPT.parents[2] / "requirements" / "llama-cpp.in"
_SIZES = {4: "<I", 5: "<i", 6: "<f"}
_STRING, _ARRAY = 8, 9


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, loaded where its package is not."""
    monkeypatch.setitem(sys.modules, "xllamacpp", ModuleType("xllamacpp"))
    spec = importlib.util.spec_from_file_location("llama_server", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(launcher: ModuleType, *args: str) -> dict[str, Any]:
    return dict(vars(launcher.parser().parse_args(["--model", "/m.gguf", *args])))


def test_the_launcher_takes_the_command_line_of_every_pool(launcher: ModuleType) -> None:
    reusing = vars(launcher.parser().parse_args(arguments("llama.cpp")))
    fresh = vars(launcher.parser().parse_args(arguments("llama.cpp", reuse=False)))
    assert reusing == {
        "model.path": "/models/claim/tiny",
        "model_alias": {"tiny"},
        "hostnames": ["127.0.0.1"],
        "port": 8001,
        "n_ctx": 8192,
        "n_parallel": 2,
        "endpoint_metrics": True,
        "endpoint_slots": False,
        "offline": True,
        "cache_prompt": True,
    }
    assert fresh == reusing | {
        "cache_prompt": False,
        "cache_ram_mib": 0,
        "cache_idle_slots": False,
        "slot_prompt_similarity": 0.0,
        "n_cache_reuse": 0,
    }


def test_the_pool_of_the_tests_is_one_of_that_engine_and_image(tmp_path: Path, launcher: ModuleType) -> None:
    spec = llama_pool.document("tiny", image="registry.example/llama", claim="models", slots=2)["spec"]
    accepted = pool({name: value if name != "engine" else {**value, "type": "vLLM"} for name, value in spec.items()})
    assert accepted.spec.guard.mode == "Sidecar"
    assert ENGINES[spec["engine"]["type"]].type == "llama.cpp"
    assert f"xllamacpp=={llama_pool.VERSION}\n" in REQUIREMENTS.read_text()
    assert _read(launcher, *spec["engine"]["args"]) == {"model.path": "/m.gguf", "n_ctx": 2 * 8192, "n_parallel": 2}
    llama_pool.write_model(tmp_path / "models")
    assert (tmp_path / "models" / spec["model"]["source"]["persistentVolumeClaim"]["path"]).is_file()


def test_what_is_not_given_is_the_servers_own_default(launcher: ModuleType) -> None:
    assert _read(launcher) == {"model.path": "/m.gguf"}


def test_of_what_is_given_twice_the_last_counts(launcher: ModuleType) -> None:
    assert _read(launcher, "--cache-ram", "8192", "--cache-ram", "0")["cache_ram_mib"] == 0
    assert _read(launcher, "--cache-prompt", "--no-cache-prompt")["cache_prompt"] is False


@pytest.mark.parametrize("args", [("--slot-save-path", "/x"), ("--par", "2"), ("--port",)])
def test_what_the_launcher_does_not_know_is_refused(launcher: ModuleType, args: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        _read(launcher, *args)


def test_parameters_are_set_where_the_server_has_them(launcher: ModuleType) -> None:
    parameters = SimpleNamespace(model=SimpleNamespace(path=""), port=0, n_ctx=7)
    launcher.apply({"model.path": "/m.gguf", "port": 8001}, parameters)
    assert (parameters.model.path, parameters.port, parameters.n_ctx) == ("/m.gguf", 8001, 7)


class _Reader:
    """Reads a GGUF file as its format says, and nothing that is not there."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take(self, kind: str) -> Any:
        (value,) = struct.unpack_from(kind, self.content, self.place)
        self.place += struct.calcsize(kind)
        return value

    def text(self) -> str:
        length = self.take("<Q")
        self.place += length
        return self.content[self.place - length : self.place].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner = self.take("<I")
            return [self.value(inner) for _ in range(self.take("<Q"))]
        return self.take(_SIZES[kind])

    def tensors(self, count: int) -> Iterator[tuple[str, list[int], int]]:
        for _ in range(count):
            name = self.text()
            shape = [self.take("<Q") for _ in range(self.take("<I"))]
            assert self.take("<I") == 0, "32-bit floating-point numbers"
            yield name, shape, self.take("<Q")


def test_the_model_is_where_its_header_says(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "a" / "tiny.gguf", 1)
    reader = _Reader((tmp_path / "a" / "tiny.gguf").read_bytes())
    assert [reader.take("4s"), reader.take("<I")] == [b"GGUF", 3]
    tensors, values = reader.take("<Q"), reader.take("<Q")
    found = {reader.text(): reader.value(reader.take("<I")) for _ in range(values)}
    assert found["llama.context_length"] >= 4 * 8192, "four slots of what the tests' prompts need"
    tokens = found["tokenizer.ggml.tokens"]
    assert len(tokens) == len(set(tokens)) == found["llama.vocab_size"] == len(found["tokenizer.ggml.token_type"]) == 259
    assert all(part in tokens for part in found["tokenizer.ggml.merges"][0].split(" "))
    placed = list(reader.tensors(tensors))
    begin = -(-reader.place // tiny_gguf.ALIGNMENT) * tiny_gguf.ALIGNMENT
    expected = 0
    for name, shape, offset in placed:
        assert offset == expected, name
        numbers = 1
        for size in shape:
            numbers *= size
        expected += -(-4 * numbers // tiny_gguf.ALIGNMENT) * tiny_gguf.ALIGNMENT
    assert begin + expected == len(reader.content)


def test_a_byte_has_a_token_of_its_own_as_in_gpt2() -> None:
    found = tiny_gguf.byte_tokens()
    assert (len(found), len(set(found))) == (256, 256)
    assert (found[ord("a")], found[ord(" ")], found[ord("\n")], found[0]) == ("a", "Ġ", "Ċ", "Ā")


def test_a_seed_decides_the_model(tmp_path: Path) -> None:
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tiny_gguf.write(tmp_path / name, seed)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1] != contents[2]
