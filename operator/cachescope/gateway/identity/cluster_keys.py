"""The keys of the cluster's own issuer of ServiceAccount tokens, from the API server.

Rules:

- issuer and keys come from the API server itself, over the connection and with the credentials that everything else is read with.
  The `jwks_uri` of its discovery document is not followed: it may lead anywhere;
- they are kept as the keys of every URL are: refreshed, asked again for a `kid` that is not known, and used for a bounded time
  while the API server does not answer.

The gateway needs no right of its own for it: the default binding `system:service-account-issuer-discovery` lets every
ServiceAccount read both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, Protocol

from cachescope.api.settings import SERVICE_ACCOUNTS_PROVIDER
from cachescope.core.errors import ClusterError
from cachescope.gateway.identity.jwks import NoUsableKeys, PublicKey
from cachescope.gateway.identity.jwks_sources import TIMEOUT_SECONDS, UrlKeySet

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
KEYS_PATH: Final = "/openid/v1/jwks"


class Reads(Protocol):
    """Reads documents of the API server."""

    async def get(self, path: str) -> dict[str, Any]:
        """A document.

        Raises:
            ClusterError: It could not be read.
        """


class ClusterKeySet:
    """Implements `ClusterKeys`.

    Args:
        api: The API server.
        now: A clock in seconds that never runs backwards.

    Attributes:
        source: The keys; its `run` keeps them, and the issuer, fresh.
    """

    def __init__(self, api: Reads, now: Callable[[], float]) -> None:
        self._api = api
        self._issuer: str | None = None
        self.source = UrlKeySet(self._fetch, now, source=SERVICE_ACCOUNTS_PROVIDER)

    @property
    def issuer(self) -> str | None:
        """The `iss` of its tokens; `None` before it was read."""
        return self._issuer

    @property
    def problem(self) -> str | None:
        """Why it cannot be relied on now."""
        return self.source.problem

    @property
    def revision(self) -> int:
        """Counts the sets that were loaded; -1 while there is none that may be used."""
        return self.source.revision

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The one key that may verify."""
        return await self.source.find(kid, algorithm)

    async def _fetch(self) -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                issuer, keys = (await self._api.get(DISCOVERY_PATH)).get("issuer"), await self._api.get(KEYS_PATH)
        except ClusterError as error:
            raise OSError(f"{error}; ServiceAccounts read it by the binding system:service-account-issuer-discovery") from error
        if not isinstance(issuer, str) or not issuer:
            raise NoUsableKeys("the API server names no issuer; see its --service-account-issuer")
        self._issuer = issuer
        return json.dumps(keys).encode()
