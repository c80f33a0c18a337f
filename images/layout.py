"""Where the images keep their files: everything lies in the project's cache folder, nothing in the repository."""

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import layout as cluster


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below the cache folder."""

    cache: Path

    @property
    def builder(self) -> Path:
        """Storage of buildah, its scratch space and its download cache among it."""
        return self.cache / "buildah"

    @property
    def work(self) -> Path:
        """Archives on their way, contexts, logs."""
        return self.cache / "images"

    @property
    def lock(self) -> Path:
        """Held while images are built: two runs would undo each other's clean-up."""
        return self.work / "lock"

    def log(self, name: str) -> Path:
        """Gives the log of an image's last build."""
        return self.work / "log" / f"{name}.log"

    def context(self, name: str) -> Path:
        """Gives the folder that the builder sees."""
        return self.work / "context" / name

    def archive(self, name: str) -> Path:
        """Gives the file in which an image goes to the node."""
        return self.work / f"{name}.tar"


def from_environment() -> Layout:
    """Takes the cache folder that the cluster takes."""
    return Layout(cluster.from_environment().cache)
