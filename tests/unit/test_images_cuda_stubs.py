"""The libraries that stand in for CUDA define what torch asks for, under the versions that it asks for."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "images" / "vllm-cpu" / "cuda_stubs.py"


@pytest.fixture(scope="module")
def stubs() -> ModuleType:
    """Loads the script: its folder has the image's name, which is no module name."""
    spec = importlib.util.spec_from_file_location("cuda_stubs", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["cuda_stubs"] = module
    spec.loader.exec_module(module)
    return module


def test_symbols_go_to_the_library_whose_version_they_name(stubs: ModuleType) -> None:
    linkage = stubs.Linkage(
        needed={"libcudart.so.13", "libnccl.so.2", "libc.so.6", "libcuda.so.1"},
        versions={"libcudart.so.13": {"libcudart.so.13"}, "libc.so.6": {"GLIBC_2.2.5"}},
        undefined={("cudaMalloc", "libcudart.so.13"), ("ncclSend", ""), ("printf", "GLIBC_2.2.5"), ("PyLong_Type", "")},
    )
    assert stubs.demands(linkage, present=set()) == {
        "libcudart.so.13": {"libcudart.so.13": {"cudaMalloc"}},
        "libnccl.so.2": {"": {"ncclSend"}},
    }


def test_present_libraries_and_own_symbols_are_left_alone(stubs: ModuleType) -> None:
    linkage = stubs.Linkage(
        needed={"libcudart.so.13", "libnccl.so.2"},
        versions={"libcudart.so.13": {"libcudart.so.13"}},
        undefined={("cudaMalloc", "libcudart.so.13"), ("ncclSend", "")},
        defined={"ncclSend"},
    )
    assert stubs.demands(linkage, present={"libcudart.so.13"}) == {"libnccl.so.2": {}}


def test_every_function_answers_that_there_is_no_driver(stubs: ModuleType) -> None:
    text = stubs.source({"V": {"cudaMalloc"}, "": {"ncclSend"}})
    assert "return 35;" in text
    assert text.count('alias("no_driver")') == 2


def test_versions_are_defined_even_when_nothing_is_asked_under_them(stubs: ModuleType) -> None:
    assert stubs.version_script({"V1": {"b", "a"}, "V2": set(), "": {"c"}}) == "V1 { global: a; b; };\nV2 { global:  };"
