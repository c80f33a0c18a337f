"""The node's images: importing archives, and packing the two images that the cluster itself needs.

A program linked statically needs no base image, so Python's tarfile packs both without a builder.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.image_names import full_name
from e2e.cluster.layout import Layout
from e2e.cluster.local import binaries, settings

PAUSE_SOURCE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void stop(int number) { (void)number; _exit(0); }
static void collect(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) { signal(SIGTERM, stop); signal(SIGINT, stop); signal(SIGCHLD, collect); for (;;) pause(); }
"""


def dns_image() -> str:
    """Names the image of the cluster's DNS."""
    return f"{settings.DNS_IMAGE}:{binaries.versions()['coredns']}"


def _ctr(layout: Layout, *arguments: str) -> str:
    return run(["ctr", "--address", str(layout.socket), "--namespace", settings.IMAGE_NAMESPACE, *arguments])


def present(layout: Layout, image: str) -> bool:
    """Tells whether the node has an image."""
    return full_name(image) in _ctr(layout, "images", "list", "-q").split()


def load(layout: Layout, archive: Path) -> list[str]:
    """Imports a docker or OCI archive, and returns what containerd says about it."""
    return [line.strip() for line in _ctr(layout, "images", "import", str(archive)).splitlines()]


def ensure_own_images(layout: Layout) -> None:
    """Packs and imports the sandbox and DNS images, where the node lacks them."""
    with tempfile.TemporaryDirectory(dir=layout.cluster) as folder:
        if not present(layout, settings.PAUSE_IMAGE):
            program = _compile_pause(Path(folder))
            _import(layout, Path(folder), settings.PAUSE_IMAGE, program)
        if not present(layout, dns_image()):
            _import(layout, Path(folder), dns_image(), binaries.program(layout, "coredns"))


def _compile_pause(folder: Path) -> Path:
    program = folder / "pause"
    run(["gcc", "-static", "-O2", "-x", "c", "-o", str(program), "-"], stdin=PAUSE_SOURCE)
    return program


def _import(layout: Layout, folder: Path, image: str, program: Path) -> None:
    archive = folder / "image.tar"
    archive.write_bytes(pack(image, program.read_bytes()))
    load(layout, archive)


def pack(image: str, program: bytes) -> bytes:
    """Packs an image of one program, as a docker archive.

    Args:
        image: Its name and tag.
        program: A statically linked executable; it becomes ``/program``, the entry point.

    Returns:
        The archive; the same bytes for the same arguments.
    """
    layer = _tar({"program": program}, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/program"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created_by": "cachescope e2e"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [image], "Layers": ["layer.tar"]}]).encode()
    return _tar({config_name: config, "layer.tar": layer, "manifest.json": manifest}, mode=0o644)


def _tar(files: Mapping[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
