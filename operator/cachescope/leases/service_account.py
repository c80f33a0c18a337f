"""The identity of a pod at the API server: address, token and certificate authority, as the kubelet provides them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cachescope.core.errors import ClusterError, SpecError

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_READ_AGAIN_MS = 60_000


@dataclass(frozen=True)
class Credentials:
    """What a request is sent with.

    Attributes:
        token: The ServiceAccount's token.
        tls: Trusts the cluster's certificate authority, and nobody else.
        authority: The certificates that it was made from.
    """

    token: str
    tls: ssl.SSLContext
    authority: str


class ServiceAccount:
    """Credentials from a mounted folder; the kubelet renews them in place.

    Args:
        folder: Holds `token` and `ca.crt`.
        clock: Milliseconds of a clock that only rises.
    """

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self._folder = folder
        self._clock = clock
        self._read_at = 0
        self._known: Credentials | None = None

    async def credentials(self) -> Credentials:
        """The credentials, read again when they are older than a minute.

        Raises:
            ClusterError: They cannot be read.
        """
        now = self._clock()
        if self._known is None or now - self._read_at >= _READ_AGAIN_MS:
            self._known = await asyncio.to_thread(self._read, self._known)
            self._read_at = now
        return self._known

    def _read(self, known: Credentials | None) -> Credentials:
        try:
            token = (self._folder / "token").read_text("ascii").strip()
            authority = (self._folder / "ca.crt").read_text("ascii")
            # The same context while the authority stays: connections belong to their context.
            same = known is not None and known.authority == authority
            tls = known.tls if known is not None and same else ssl.create_default_context(cadata=authority)
        except (OSError, ValueError, ssl.SSLError) as error:
            problem = f"the ServiceAccount in {self._folder} cannot be read ({type(error).__name__})"
            raise ClusterError(f"{problem}; mount its token and ca.crt into the pod") from error
        return Credentials(token, tls, authority)


def in_cluster_url(environ: Mapping[str, str]) -> str:
    """Address of the API server, from the variables that every container gets.

    Raises:
        SpecError: They are not set.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise SpecError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; run this in a pod of a cluster")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
