"""Names the images: ``localhost/cachescope/<name>:<digest of its inputs>``."""

import os
from pathlib import Path

from images import debian, inputs
from images.catalogue import Image

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "localhost/cachescope"

BASE_CONTAINERFILE = "images/base/Containerfile"


def own_base() -> str:
    """Names the base that is made here, by its recipe."""
    recipe = "\n".join(debian.bootstrap(Path("base.tar")))
    content = (BASE_CONTAINERFILE, (ROOT / BASE_CONTAINERFILE).read_bytes())
    return f"{PREFIX}/base:{inputs.digest([content], base=recipe)}"


def chosen_base(option: str | None) -> str:
    """Gives the base to build on: the option, else CACHESCOPE_BASE, else the one that is made here."""
    return option or os.environ.get("CACHESCOPE_BASE") or own_base()


def input_files(image: Image) -> list[str]:
    """Lists the files that go into an image, its Containerfile among them."""
    return inputs.files(ROOT, (image.containerfile, *image.sources))


def reference(image: Image, base: str) -> str:
    """Names an image by all of its inputs."""
    contents = ((path, (ROOT / path).read_bytes()) for path in input_files(image))
    return f"{PREFIX}/{image.name}:{inputs.digest(contents, base=base)}"
