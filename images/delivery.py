"""Where a built image goes: the cluster's node, a registry, or a folder of archives for a site without either."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from images.building import Workshop
from images.catalogue import Image
from images.errors import ImageError
from images.references import ROOT

CLUSTER = (sys.executable, "-m", "e2e.cluster")
HAS, LACKS = 0, 1


class Destination(Protocol):
    """A place for images."""

    def has(self, reference: str) -> bool:
        """Tells whether the image is there already."""

    def deliver(self, workshop: Workshop, image: Image, reference: str) -> None:
        """Brings the builder's image there."""


class Node:
    """The nodes of the e2e cluster."""

    def has(self, reference: str) -> bool:
        """Asks the cluster.

        Raises:
            ImageError: No cluster answers.
        """
        asked = _cluster("has", reference)
        if asked.returncode not in {HAS, LACKS}:
            raise ImageError(
                f"the cluster does not answer: {asked.stderr.strip()}",
                remedy="bring it up with `python -m e2e.cluster up`, or name another place: --push REGISTRY/PREFIX, "
                "--archives FOLDER.",
            )
        return asked.returncode == HAS

    def deliver(self, workshop: Workshop, image: Image, reference: str) -> None:
        """Saves the image, loads it into the nodes, and deletes the archive."""
        archive = workshop.layout.archive(image.name)
        try:
            _save(workshop, image, reference, archive=archive)
            with workshop.progress.step(f"{image.name}: load into the cluster"):
                loaded = _cluster("load", str(archive))
        finally:
            archive.unlink(missing_ok=True)
        if loaded.returncode:
            raise ImageError(
                f"{image.name} was built and could not be loaded: {loaded.stderr.strip() or loaded.stdout.strip()}",
                remedy="look at `python -m e2e.cluster status`, then run the same command again.",
            )


class Builder:
    """The builder's own storage: for later, while there is no cluster yet."""

    def has(self, reference: str) -> bool:
        """Answers no: the builder itself knows what it has."""
        return not reference

    def deliver(self, workshop: Workshop, image: Image, reference: str) -> None:
        """Leaves the image where it is."""
        workshop.progress.line(f"{image.name}: kept in the builder as {reference}")


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry; the builder's own login is used.

    Attributes:
        prefix: Registry and path, to which ``/<name>:<tag>`` is added.
    """

    prefix: str

    def has(self, reference: str) -> bool:
        """Answers no: a push of what is there sends nothing anyway."""
        return not reference

    def deliver(self, workshop: Workshop, image: Image, reference: str) -> None:
        """Pushes the image."""
        target = destination(self.prefix, reference)
        with workshop.progress.step(f"{image.name}: push {target}"):
            for command in workshop.builder.push(reference, target):
                workshop.run(command, f"{image.name}: push", image.name)


@dataclass(frozen=True, slots=True)
class Archives:
    """A folder of archives, one an image, named with its tag.

    Attributes:
        folder: Created where it does not exist.
    """

    folder: Path

    def _file(self, reference: str) -> Path:
        return self.folder / f"{reference.rsplit('/', 1)[1].replace(':', '-')}.tar"

    def has(self, reference: str) -> bool:
        """Looks for the finished archive."""
        return self._file(reference).exists()

    def deliver(self, workshop: Workshop, image: Image, reference: str) -> None:
        """Saves the image; the archive gets its name when it is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._file(reference).with_suffix(".unfinished")
        _save(workshop, image, reference, archive=unfinished)
        unfinished.rename(self._file(reference))


def destination(prefix: str, reference: str) -> str:
    """Names an image in a registry: the prefix, then its own name and tag."""
    return f"{prefix.rstrip('/')}/{reference.rsplit('/', 1)[1]}"


def _save(workshop: Workshop, image: Image, reference: str, *, archive: Path) -> None:
    archive.unlink(missing_ok=True)  # of a run that was interrupted: builders append or refuse
    with workshop.progress.step(f"{image.name}: write an archive"):
        workshop.run(workshop.builder.save(reference, archive), f"{image.name}: archive", image.name)


def _cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (*CLUSTER, *arguments)
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
