"""Stands in for the CUDA libraries that torch's CUDA build links with: ``cuda_stubs.py TORCH_LIB_FOLDER``.

The dynamic linker refuses to load torch when they are absent, although a CPU engine never calls them. For each missing
library this writes a small one that defines what torch asks of it. Each function answers 35, which is
``cudaErrorInsufficientDriver``: torch then reports, as on any machine without a driver, that there is no CUDA device.
A library that is there stays as it is.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

NVIDIA_LIBRARY = re.compile(r"lib(cu(?!da\.)|nccl|nv)")
# These libraries name no version in their symbols, so the symbol's prefix is all that tells whose it is.
UNVERSIONED_SYMBOL = re.compile(r"(nccl|cusparseLt|curand|cuFile)\w")
LOADED_ON_A_GPU_ONLY = "libcaffe2_nvrtc.so"
ANSWER = 35

Demands = dict[str, dict[str, set[str]]]  # library -> version ("" for none) -> symbols


@dataclass(slots=True)
class Linkage:
    """What a folder of shared libraries needs and has."""

    needed: set[str] = field(default_factory=set)
    versions: dict[str, set[str]] = field(default_factory=dict)
    undefined: set[tuple[str, str]] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)


def _readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True).stdout


def read(folder: Path) -> Linkage:
    """Reads the dynamic sections of all libraries of a folder."""
    linkage = Linkage()
    for library in sorted(folder.glob("*.so*")):
        if library.name != LOADED_ON_A_GPU_ONLY:
            linkage.needed.update(re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", str(library))))
            _add_versions(linkage, _readelf("--version-info", str(library)))
            _add_symbols(linkage, _readelf("--dyn-syms", str(library)))
    return linkage


def _add_versions(linkage: Linkage, text: str) -> None:
    library = ""
    for line in text.splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found[1]
        elif found := re.search(r"Name: (\S+)\s+Flags", line):
            linkage.versions.setdefault(library, set()).add(found[1])


def _add_symbols(linkage: Linkage, text: str) -> None:
    for line in text.splitlines():
        columns = line.split()
        if len(columns) < 8 or not columns[0].rstrip(":").isdigit():
            continue
        name, _, version = columns[7].partition("@")
        if columns[6] != "UND":
            linkage.defined.add(name)
        elif columns[4] == "GLOBAL":
            linkage.undefined.add((name, version.lstrip("@")))


def demands(linkage: Linkage, present: set[str]) -> Demands:
    """Sorts the undefined symbols by the missing library that has to define them."""
    missing = sorted(name for name in linkage.needed - present if NVIDIA_LIBRARY.match(name))
    wanted: Demands = {library: {version: set() for version in linkage.versions.get(library, ())} for library in missing}
    owners = {version: library for library in missing for version in linkage.versions.get(library, ())}
    unversioned = next((library for library in missing if library not in linkage.versions), None)
    for name, version in linkage.undefined:
        if name in linkage.defined:
            continue
        if version in owners:
            wanted[owners[version]][version].add(name)
        elif not version and unversioned and UNVERSIONED_SYMBOL.match(name):
            wanted[unversioned].setdefault("", set()).add(name)
    return wanted


def source(versions: dict[str, set[str]]) -> str:
    """Renders the C source of one library: one function under all the names."""
    names = sorted({name for symbols in versions.values() for name in symbols})
    aliases = [f'int {name}(void) __attribute__((alias("no_driver")));' for name in names]
    return "\n".join([f"static int no_driver(void) {{ return {ANSWER}; }}", *aliases, ""])


def version_script(versions: dict[str, set[str]]) -> str:
    """Renders the linker's version script; empty where the library names no versions."""
    lines = [
        f"{version} {{ global: {' '.join(f'{name};' for name in sorted(symbols))} }};"
        for version, symbols in sorted(versions.items())
        if version
    ]
    return "\n".join(lines)


def compile_stub(folder: Path, library: str, versions: dict[str, set[str]]) -> None:
    """Compiles one library into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        code, script = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        code.write_text(source(versions))
        script.write_text(version_script(versions))
        link = [f"-Wl,-soname,{library}", *([f"-Wl,--version-script,{script}"] if script.read_text() else [])]
        command = ["gcc", "-shared", "-fPIC", "-w", "-nostdlib", *link, "-o", str(folder / library), str(code)]
        subprocess.run(command, check=True)


def main() -> None:
    """Writes all missing libraries."""
    folder = Path(sys.argv[1])
    present = {library.name for library in folder.glob("*.so*")}
    for library, versions in demands(read(folder), present).items():
        compile_stub(folder, library, versions)


if __name__ == "__main__":
    main()
