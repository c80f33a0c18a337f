"""The key sets of identity providers and of the cluster itself: made once for each setting, kept fresh in the background."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp

from cachescope.api.settings import SERVICE_ACCOUNTS_PROVIDER, IdentityProvider, JwksSource, Settings
from cachescope.core.errors import SpecError
from cachescope.gateway.identity.cluster_keys import ClusterKeySet, Reads
from cachescope.gateway.identity.jwks import KeySet
from cachescope.gateway.identity.jwks_sources import FileKeySet, UrlKeySet, http_fetch

JWKS_FILE = "jwks.json"


class ProviderKeySets:
    """Implements `KeySets` with files and URLs.

    Args:
        session: The session for URLs (`key_session`).
        api: The API server, whose own keys verify tokens of ServiceAccounts.

    Attributes:
        cluster: These keys; they are fetched for as long as the settings take such tokens.
    """

    def __init__(self, session: aiohttp.ClientSession, api: Reads) -> None:
        self._session = session
        self.cluster = ClusterKeySet(api, time.monotonic)
        self._issuers: dict[str, str] = {}
        self._made: dict[tuple[str, JwksSource, str], KeySet] = {}
        self._tasks: dict[UrlKeySet, asyncio.Task[None]] = {}

    def of(self, provider: IdentityProvider, secrets: Path) -> KeySet:
        """The key set of a provider; the same one while its setting is the same."""
        name = (provider.name, provider.jwks, str(secrets))
        if name not in self._made:
            self._made[name] = self._make(provider, secrets)
        return self._made[name]

    def problems(self) -> dict[str, str]:
        """What is wrong, by provider."""
        found = {name[0]: keys.problem for name, keys in self._made.items() if keys.problem}
        if self.cluster.source not in self._tasks:
            return found
        if self.cluster.problem:
            found[SERVICE_ACCOUNTS_PROVIDER] = self.cluster.problem
        shadowed = [name for name, issuer in self._issuers.items() if issuer == self.cluster.issuer]
        return {**found, **dict.fromkeys(shadowed, "its issuer is the cluster's own, so it gets no tokens; remove the provider")}

    @property
    def tended(self) -> int:
        """Key sets that are kept fresh in the background."""
        return len(self._tasks)

    def tend(self, settings: Settings) -> None:
        """Keep the key sets of the settings in force fresh, and forget the others; called on the event loop."""
        wanted = {(provider.name, provider.jwks) for provider in settings.identity_providers}
        self._made = {name: keys for name, keys in self._made.items() if name[:2] in wanted}
        self._issuers = {provider.name: provider.issuer for provider in settings.identity_providers}
        urls = {keys for keys in self._made.values() if isinstance(keys, UrlKeySet)}
        if settings.service_accounts:
            urls.add(self.cluster.source)
        for keys in self._tasks.keys() - urls:
            self._tasks.pop(keys).cancel()
        for keys in urls - self._tasks.keys():
            self._tasks[keys] = asyncio.create_task(keys.run())

    def _make(self, provider: IdentityProvider, secrets: Path) -> KeySet:
        source = provider.jwks
        if source.url:
            return self._from_url(provider.name, source.url, allow_insecure=source.allow_insecure)
        if source.file:
            return FileKeySet(Path(source.file), time.monotonic)
        if source.secret_name:
            return FileKeySet(secrets / source.secret_name / JWKS_FILE, time.monotonic)
        raise SpecError(f"identity provider {provider.name!r} has no source of keys; set url, file or secretName")

    def _from_url(self, name: str, url: str, *, allow_insecure: bool) -> UrlKeySet:
        return UrlKeySet(http_fetch(self._session, url, allow_insecure=allow_insecure), time.monotonic, source=name)
