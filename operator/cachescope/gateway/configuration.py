"""Configuration from mounted folders: read whole, compiled whole, taken over whole or not at all.

Folders below the root: `config/` (`settings.yaml`, `resources.yaml`, `head.json`), `root-keys/` (one file a key, and `targets`),
`secrets/<name>/` (hash-only API key Secrets: one file a key id with `hash` and `principal`; key sets: `jwks.json`).

Rules:

- resources or settings with a fault are not taken over: the last good ones stay, and the fault is said; without any
  nothing is ready;
- the head is taken over whatever else is at fault: an incident does not wait for somebody's typo;
- a fault of a tenant's Secret is that tenant's: the key in it is refused, and of two that claim one key id neither has it;
- floors never fall within the process, whatever the file says; another lineage needs a restart.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cachescope.api.documents import read_documents, select
from cachescope.api.resources import CacheScope, ServingPool, Tenant
from cachescope.api.settings import IdentityProvider, Settings, read_settings
from cachescope.core.errors import CacheScopeError, SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.gateway.identity.api_keys import ApiKeyEntry, ApiKeys
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.jwks import KeySet
from cachescope.gateway.identity.jwt_tokens import JwtIdentity, JwtTokens, Now, Provider
from cachescope.gateway.keys import read_keys
from cachescope.gateway.policy import compile_policy
from cachescope.gateway.snapshot import Snapshot, at_head, snapshot_of

log = logging.getLogger(__name__)


class KeySets(Protocol):
    """Gives the key set of a provider; the same one while the provider's setting is the same."""

    def of(self, provider: IdentityProvider, secrets: Path) -> KeySet:
        """The key set of a provider."""


class Configuration:
    """The configuration in force, and what is wrong with the newest one.

    Args:
        root: The folder.
        key_sets: Key sets of providers.
        now: The time of day in seconds.
    """

    def __init__(self, root: Path, key_sets: KeySets, now: Now) -> None:
        self._root = root
        self._key_sets = key_sets
        self._now = now
        self._seen = b""
        self._snapshot: Snapshot | None = None
        self.fault: str | None = "the configuration has not been read yet"

    def current(self) -> Snapshot | None:
        """The snapshot in force, or `None` before the first good one."""
        return self._snapshot

    def refresh(self) -> None:
        """Read again what changed."""
        try:
            seen = fingerprint(self._root)
            if seen == self._seen:
                return
            self._seen = seen
            self._take_over()
        except OSError as error:
            self._seen = b""  # a file that vanished while it was replaced: what is there now is read again
            self._say(str(error))
        except (CacheScopeError, ValueError) as error:
            self._say(str(error))

    def _take_over(self) -> None:
        head = self._head(json.loads((self._root / "config" / "head.json").read_text()))
        if self._snapshot is not None:
            self._snapshot = at_head(self._snapshot, head)
        self._snapshot, faults = self._read(head)
        self._say("; ".join(faults) or None)
        log.info("configuration loaded", extra={"sequence": head.sequence})

    def _say(self, fault: str | None) -> None:
        if fault and fault != self.fault:
            log.error("configuration at fault", extra={"fault": fault})
        self.fault = fault

    def _read(self, head: Head) -> tuple[Snapshot, list[str]]:
        config, secrets = self._root / "config", self._root / "secrets"
        settings = read_settings((config / "settings.yaml").read_text(), "settings.yaml")
        documents = read_documents((config / "resources.yaml").read_text(), "resources.yaml")
        tenants = list(select(Tenant, documents, "resources.yaml"))
        pools = list(select(ServingPool, documents, "resources.yaml"))
        policy = compile_policy(pools, tenants, list(select(CacheScope, documents, "resources.yaml")))
        keys = read_keys(self._root / "root-keys")
        providers = [self._provider(item, secrets) for item in settings.identity_providers]
        tokens = JwtTokens(providers, list(jwt_identities(tenants, settings)), self._now)
        entries, faults = api_keys(tenants, secrets)
        authenticator = Authenticator(ApiKeys(entries), tokens, policy.suspended)
        return snapshot_of(settings, policy, keys, head=head, authenticator=authenticator), faults

    def _head(self, document: Any) -> Head:  # noqa: ANN401 - parsed JSON
        newer = parse_head(document)
        if self._snapshot is None:
            return newer
        head, rollbacks = self._snapshot.head.followed_by(newer)
        for rollback in rollbacks:
            log.warning("floor held", extra={"rollback": str(rollback)})
        return head

    def _provider(self, item: IdentityProvider, secrets: Path) -> Provider:
        return Provider(item.name, item.issuer, item.algorithms, self._key_sets.of(item, secrets), item.leeway_seconds)


def jwt_identities(tenants: Sequence[Tenant], settings: Settings) -> Iterable[JwtIdentity]:
    """The token identities of all tenants.

    Raises:
        SpecError: A tenant names a provider that the installation does not have.
    """
    known = {provider.name for provider in settings.identity_providers}
    for tenant in tenants:
        for item in tenant.spec.identities.jwt:
            if item.provider not in known:
                raise SpecError(f"Tenant {tenant.name!r} names the identity provider {item.provider!r}; use one of {sorted(known)}")
            yield JwtIdentity(tenant.uid, item.provider, item.audience, item.claims, item.principal_claim)


def api_keys(tenants: Sequence[Tenant], secrets: Path) -> tuple[dict[str, ApiKeyEntry], list[str]]:
    """The API keys of all tenants by key id, and what is wrong with the others: those are refused, and harm nobody else."""
    entries: dict[str, ApiKeyEntry] = {}
    claimed: set[str] = set()
    faults: list[str] = []
    for tenant, secret, key_id, content in _key_files(tenants, secrets):
        if key_id in claimed:
            entries.pop(key_id, None)
            faults.append(f"the API key id {key_id!r} is claimed twice and refused; remove it from one of the Secrets")
            continue
        claimed.add(key_id)
        try:
            entries[key_id] = _entry(tenant, secret, key_id, content)
        except SpecError as error:
            faults.append(str(error))
    return entries, faults


def fingerprint(root: Path) -> bytes:
    """A digest of the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and not any(part.startswith("..") for part in path.relative_to(root).parts):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _key_files(tenants: Sequence[Tenant], secrets: Path) -> Iterable[tuple[Tenant, str, str, str]]:
    """Every file of every API key Secret: tenant, Secret, key id, content. A Secret that is not there yet holds no keys."""
    for tenant in tenants:
        for name in dict.fromkeys(source.secret_name for source in tenant.spec.identities.api_keys):
            folder = secrets / name
            for path in sorted(folder.iterdir()) if folder.is_dir() else []:
                if not path.name.startswith("."):
                    yield tenant, name, path.name, path.read_text()


def _entry(tenant: Tenant, secret: str, key_id: str, content: str) -> ApiKeyEntry:
    try:
        fields = json.loads(content)
        entry = ApiKeyEntry(str(fields["hash"]), tenant.uid, str(fields["principal"]))
        ApiKeys({key_id: entry})
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(f"Secret {secret!r} holds no API key entry ({error!r}); make one: `cachescope keys create`") from error
    return entry
