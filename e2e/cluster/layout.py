"""Where the cluster keeps its files: everything lies in one cache folder, nothing in the repository."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below the cache folder.

    ``cluster`` is the state of the running cluster and goes with ``down`` (``log`` stays); ``bin``, ``downloads`` and
    ``images`` (the node's image store) stay until ``down --purge``.
    """

    cache: Path

    @property
    def bin(self) -> Path:
        """Built programs, each named with its version."""
        return self.cache / "bin"

    @property
    def downloads(self) -> Path:
        """Package files as they were fetched."""
        return self.cache / "downloads"

    @property
    def images(self) -> Path:
        """The node's image store."""
        return self.cache / "containerd"

    @property
    def engines(self) -> Path:
        """Environments, models and logs of the engines that the conformance suite runs on."""
        return self.cache / "conformance"

    @property
    def lock(self) -> Path:
        """Held while the cluster changes, so that two runs do not meet."""
        return self.cache / "cluster.lock"

    @property
    def cluster(self) -> Path:
        """State of the running cluster."""
        return self.cache / "cluster"

    @property
    def log(self) -> Path:
        """Logs of the components, the API server's audit log among them."""
        return self.cluster / "log"

    @property
    def pki(self) -> Path:
        """Keys, certificates and the components' kubeconfigs."""
        return self.cluster / "pki"

    @property
    def config(self) -> Path:
        """Rendered configuration of the components."""
        return self.cluster / "config"

    @property
    def commands(self) -> Path:
        """Folder for PATH: the cluster's own kubectl and helm under their plain names."""
        return self.cluster / "bin"

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig."""
        return self.cluster / "kubeconfig"

    @property
    def env(self) -> Path:
        """Shell file that sets KUBECONFIG and PATH."""
        return self.cluster / "env"

    @property
    def provider(self) -> Path:
        """Name of the provider that brought the cluster up."""
        return self.cluster / "provider"

    @property
    def socket(self) -> Path:
        """Socket of the node's containerd."""
        return self.cluster / "containerd.sock"

    def program(self, name: str) -> str:
        """Gives the program of a running cluster, e.g. ``kubectl``, by its plain name."""
        own = self.commands / name
        return str(own) if own.exists() else name


def from_environment() -> Layout:
    """Reads the cache folder from CACHESCOPE_CACHE; without it, ``~/.cache/cachescope``."""
    chosen = os.environ.get("CACHESCOPE_CACHE")
    return Layout(Path(chosen).absolute() if chosen else Path.home() / ".cache" / "cachescope")
