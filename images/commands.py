"""Renders the builders' command lines: pure, one class a builder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Build:
    """One build.

    Attributes:
        reference: Full name of the result.
        containerfile: Path of the Containerfile.
        context: Folder that the builder sees.
        base: Image below; empty where the Containerfile starts from nothing.
        secrets: Files of this host that the build may read and that leave no trace in the image, by id.
        cached: Whether finished steps are kept for the next build.
    """

    reference: str
    containerfile: Path
    context: Path
    base: str
    secrets: tuple[tuple[str, Path], ...] = ()
    cached: bool = True

    def arguments(self) -> list[str]:
        """Renders what all builders understand."""
        base = [f"--build-arg=BASE={self.base}"] if self.base else []
        secrets = [f"--secret=id={name},src={path}" for name, path in self.secrets]
        names = [f"--tag={self.reference}", f"--file={self.containerfile}"]
        return ["--network=host", *base, *secrets, *names, str(self.context)]


class Builder(Protocol):
    """What a builder is asked to do; each method gives the command that does it."""

    def build(self, build: Build) -> list[str]:
        """Builds an image."""

    def images(self) -> list[str]:
        """Lists ``<id> <repository>:<tag>``, one image a line."""

    def save(self, reference: str, archive: Path) -> list[str]:
        """Writes an image into an archive that containerd and kind read."""

    def push(self, reference: str, destination: str) -> list[list[str]]:
        """Pushes an image to a registry, maybe in several steps."""

    def remove(self, references: list[str]) -> list[str]:
        """Removes names, and what only they held."""

    def recover(self) -> list[list[str]]:
        """Removes what a build that was cut off left half done."""

    def prune(self) -> list[list[str]]:
        """Removes steps that no named image rests on."""


@dataclass(frozen=True, slots=True)
class Buildah:
    """Buildah, with its storage in a folder of its own: needs no daemon, no user namespaces, no container runtime."""

    storage: Path

    def _buildah(self, *arguments: str) -> list[str]:
        own = [f"--root={self.storage / 'root'}", f"--runroot={self.storage / 'run'}", "--storage-driver=overlay"]
        return ["buildah", *own, *arguments]

    def build(self, build: Build) -> list[str]:
        """Renders ``buildah build``; chroot isolation, as it works in a container and without one."""
        return self._buildah("build", "--isolation=chroot", f"--layers={str(build.cached).lower()}", *build.arguments())

    def images(self) -> list[str]:
        """Renders ``buildah images``."""
        return self._buildah("images", "--noheading", "--format={{.ID}} {{.Name}}:{{.Tag}}")

    def save(self, reference: str, archive: Path) -> list[str]:
        """Renders ``buildah push`` to an OCI archive; zstd makes it a third as large in the time of a plain copy."""
        return self._buildah("push", "--compression-format=zstd", reference, f"oci-archive:{archive}:{reference}")

    def push(self, reference: str, destination: str) -> list[list[str]]:
        """Renders ``buildah push`` to a registry."""
        return [self._buildah("push", reference, f"docker://{destination}")]

    def remove(self, references: list[str]) -> list[str]:
        """Renders ``buildah rmi``."""
        return self._buildah("rmi", "--force", *references)

    def recover(self) -> list[list[str]]:
        """Renders ``buildah rm --all``: the storage is this project's alone, so no build of others is among them."""
        return [self._buildah("rm", "--all")]

    def prune(self) -> list[list[str]]:
        """Renders ``buildah rmi --prune``."""
        return [self._buildah("rmi", "--prune", "--force")]


@dataclass(frozen=True, slots=True)
class Docker:
    """Docker (BuildKit), where its daemon answers."""

    def build(self, build: Build) -> list[str]:
        """Renders ``docker build``; BuildKit keeps its steps outside the images, within its own limits."""
        return ["docker", "build", "--progress=plain", *build.arguments()]

    def images(self) -> list[str]:
        """Renders ``docker images``."""
        return ["docker", "images", "--format={{.ID}} {{.Repository}}:{{.Tag}}"]

    def save(self, reference: str, archive: Path) -> list[str]:
        """Renders ``docker save``."""
        return ["docker", "save", f"--output={archive}", reference]

    def push(self, reference: str, destination: str) -> list[list[str]]:
        """Renders ``docker tag`` and ``docker push``."""
        return [["docker", "tag", reference, destination], ["docker", "push", destination]]

    def remove(self, references: list[str]) -> list[str]:
        """Renders ``docker rmi``."""
        return ["docker", "rmi", "--force", *references]

    def recover(self) -> list[list[str]]:
        """Does nothing: Docker's daemon does it."""
        return []

    def prune(self) -> list[list[str]]:
        """Leaves Docker's build cache alone: it is not this project's, and Docker keeps it within its own limits."""
        return []
