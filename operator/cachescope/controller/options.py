"""What an operator process is started with."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cachescope import __version__
from cachescope.api.settings import Settings, read_settings
from cachescope.core.errors import SpecError

LEASE_NAME = "cachescope-operator"


@dataclass(frozen=True)
class Options:
    """Options of one process.

    Attributes:
        namespace: Its own namespace: that of the installation.
        guard_image: Image that brings the guard into engine pods.
        scope: Whether it serves its own namespace only, or all.
        settings: Mounted file with the installation's settings; those of an empty file when it is `None`.
        monitoring_namespace: Namespace that may read engine metrics; empty for none.
        api_servers: Addresses (CIDR) of API servers that guards may reach; empty: any.
        port: Of health and metrics.
        identity: Name of the process in the Lease; its pod's name.
        guard_version: Version in the guard's image.
        run_as_user: UID of engine pods; `None` leaves it to their images or to the cluster.
    """

    namespace: str
    guard_image: str
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    settings: Path | None = None
    monitoring_namespace: str = ""
    api_servers: tuple[str, ...] = ()
    port: int = 9090
    identity: str = ""
    guard_version: str = __version__
    run_as_user: int | None = None

    def __post_init__(self) -> None:
        """Refuse what would only fail later, in every pool at once."""
        if not self.namespace or not self.guard_image:
            raise SpecError("the operator needs its namespace and the guard's image; set CACHESCOPE_NAMESPACE and --guard-image")
        for network in self.api_servers:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise SpecError(f"{network!r} is no network; write the API servers as CIDR, such as 10.0.0.1/32") from error

    @property
    def watched_namespace(self) -> str | None:
        """The one namespace that is watched, or `None` for all."""
        return self.namespace if self.scope == "Namespaced" else None

    def read_settings(self) -> Settings:
        """The installation's settings.

        Raises:
            SpecError: They cannot be read, or are not valid.
        """
        if self.settings is None:
            return Settings()
        try:
            return read_settings(self.settings.read_text(), self.settings.name)
        except OSError as error:
            raise SpecError(f"the settings {self.settings} cannot be read ({error.strerror}); mount them") from error
