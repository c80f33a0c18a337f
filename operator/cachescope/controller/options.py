"""What an operator process is started with."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from packaging.version import InvalidVersion, Version

from cachescope import __version__
from cachescope.api.settings import Settings, read_settings
from cachescope.core.errors import SpecError
from cachescope.core.labels import PROBES_PORT, PROBES_SERVICE
from cachescope.manifests.platform import API_SERVER_PORTS

LEASE_NAME: Final = "cachescope-operator"
"""Of the Lease that the working operator holds, in the namespace of the installation."""


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
        api_server_ports: Ports of them; those of the Service and of the servers behind it.
        port: Of health and metrics.
        identity: Name of the process in the Lease; its pod's name.
        guard_version: CacheScope's version in the guard's image; the operator's own, where the images are of one release.
        run_as_user: UID of engine pods; `None` leaves it to their images or to the cluster.
        gateway: URL at which gateways listen for the isolation probe; by default that of their Service.
    """

    namespace: str
    guard_image: str
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    settings: Path | None = None
    monitoring_namespace: str = ""
    api_servers: tuple[str, ...] = ()
    api_server_ports: tuple[int, ...] = API_SERVER_PORTS
    port: int = 9090
    identity: str = ""
    guard_version: str = __version__
    run_as_user: int | None = None
    gateway: str = ""

    def __post_init__(self) -> None:
        """Refuse what would only fail later, in every pool at once."""
        if not self.namespace or not self.guard_image:
            raise SpecError("the operator needs its namespace and the guard's image; set CACHESCOPE_NAMESPACE and --guard-image")
        for network in self.api_servers:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise SpecError(f"{network!r} is no network; write the API servers as CIDR, such as 10.0.0.1/32") from error
        if not self.api_server_ports or not all(1 <= port <= 65535 for port in self.api_server_ports):
            raise SpecError(f"{self.api_server_ports} are no ports; name at least one from 1 to 65535, such as 6443")
        try:
            Version(self.guard_version)
        except InvalidVersion as error:
            raise SpecError(f"{self.guard_version!r} is no version, as 0.2.0 is; correct that of the guard's image") from error

    @property
    def gateway_url(self) -> str:
        """URL at which gateways listen for the isolation probe."""
        return self.gateway or f"http://{PROBES_SERVICE}.{self.namespace}:{PROBES_PORT}"

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
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"the settings {self.settings} cannot be read ({type(error).__name__}); mount them") from error
