"""What an installation decides for all of its pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

API_SERVER_PORTS: Final = (443, 6443)
"""Of the Service and of the servers behind it: some networks judge a connection before its address is translated, some after."""


@dataclass(frozen=True)
class Platform:
    """An installation, as its pools see it.

    Attributes:
        namespace: Namespace of gateways and operator.
        guard_image: Image of the init container that brings the guard.
        guard_version: CacheScope's version in that image.
        monitoring_namespace: Namespace that may scrape metrics.
        api_servers: Addresses (CIDR) at which engines may reach the API server; empty: any address, on its ports alone.
        api_server_ports: Ports at which engines may reach it.
        max_request_bytes: Largest body that gateways take from a client.
        run_as_user: UID of engine pods; `None` leaves it to their images or to the cluster (OpenShift chooses one).
    """

    namespace: str
    guard_image: str
    guard_version: str
    monitoring_namespace: str = "monitoring"
    api_servers: tuple[str, ...] = ()
    api_server_ports: tuple[int, ...] = API_SERVER_PORTS
    max_request_bytes: int = 16 * 2**20
    run_as_user: int | None = None
