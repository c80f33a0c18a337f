"""Builds images with what this machine has, and keeps the builder's storage small."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from images import debian, host, inputs, references
from images.catalogue import Image
from images.commands import Build, Buildah, Builder, Docker
from images.layout import Layout
from images.packages import ensure_packages
from images.processes import answers, output, run
from images.progress import Progress

CACHED_STEPS_BYTES = 4 * 2**30


@dataclass(slots=True)
class Workshop:
    """A builder with its storage, ready for use.

    Attributes:
        layout: Where files are kept.
        progress: Where steps are shown.
        base: Image that all others are built on.
    """

    layout: Layout
    progress: Progress
    base: str
    builder: Builder = field(init=False)

    def __post_init__(self) -> None:
        if answers(["docker", "info"]):
            self.builder = Docker()
            return
        ensure_packages(("buildah",), log=self.layout.log("packages"), progress=self.progress)
        self.builder = Buildah(self.layout.builder)
        self._scratch.mkdir(parents=True, exist_ok=True)
        for command in self.builder.recover():
            self.run(command, "clean up", "tidy")

    @property
    def _scratch(self) -> Path:
        """Folder for buildah's temporary files and cache mounts: ``/tmp`` may be small, and is not ours."""
        return self.layout.builder / "tmp"

    def run(self, command: list[str], label: str, log: str) -> None:
        """Runs one of the builder's commands."""
        environment = {"TMPDIR": str(self._scratch)} if isinstance(self.builder, Buildah) else {}
        run(command, label=label, log=self.layout.log(log), progress=self.progress, environment=environment)

    def images(self) -> dict[str, str]:
        """Reads the names that the builder has, with their ids."""
        pairs = (line.split(maxsplit=1) for line in output(self.builder.images()).splitlines())
        return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}

    def ensure_base(self) -> None:
        """Makes the base, where it is ours and the builder lacks it."""
        if self.base != references.own_base() or self.base in self.images():
            return
        ensure_packages(("mmdebstrap",), log=self.layout.log("packages"), progress=self.progress)
        context = self.layout.context("base")
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        self.layout.log("base").unlink(missing_ok=True)
        with self.progress.step(f"base: {self.base}"):
            self.run(debian.bootstrap(context / "base.tar"), "base", "base")
            build = Build(self.base, references.ROOT / references.BASE_CONTAINERFILE, context, base="")
            self.run(self.builder.build(build), "base", "base")
        shutil.rmtree(context)

    def ensure(self, image: Image, reference: str) -> None:
        """Builds an image on the base, which has to be there, where the builder lacks it."""
        if reference in self.images():
            self.progress.line(f"{image.name}: the builder has it already")
            return
        context = self.layout.context(image.name)
        inputs.stage(references.ROOT, references.input_files(image), context)
        self.layout.log(image.name).unlink(missing_ok=True)
        build = Build(
            reference,
            context / image.containerfile,
            context,
            base=self.base,
            secrets=host.secrets(self.layout.work / "host"),
            cached=not image.large,
        )
        with self.progress.step(f"{image.name}: build {reference}"):
            self.run(self.builder.build(build), image.name, image.name)

    def tidy(self, image: Image, reference: str) -> None:
        """Drops older builds of an image; a large one's latest too, as it is where it was wanted."""
        prefix = f"{references.PREFIX}/{image.name}:"
        names = [name for name in self.images() if name.startswith(prefix) and (image.large or name != reference)]
        if names:
            self.run(self.builder.remove(names), f"{image.name}: remove older builds", "tidy")

    def prune(self) -> None:
        """Drops cached steps that no image rests on, once they take much room: until then they make builds quick."""
        if _size(self.layout.builder) > CACHED_STEPS_BYTES:
            for command in self.builder.prune():
                self.run(command, "prune", "tidy")


def _size(folder: Path) -> int:
    """Adds up the sizes of all files, those that vanish meanwhile left out."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
