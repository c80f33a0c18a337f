"""The configuration in force: what is mounted and what the Kubernetes API holds, compiled whole, in a thread, and only on change.

Rules:

- there is none before everything was read once: a gateway that knows tenants and not yet their CacheScopes would share too much;
- settings or keys with a fault are not taken over: the last good ones stay, and the fault is said;
- an object with a fault is left out, or narrowed, and the fault is said; nobody else's is touched;
- ledgers are taken over at once, whatever is being compiled or at fault: an incident does not wait for somebody's typo;
- floors never fall within the process, whatever the API says (`ledger_heads`);
- whether it is as new as the authorization heads that were read is known at any time (`policy_history`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cachescope.api.claim_rules import ClaimRules
from cachescope.api.scopes import CacheScope
from cachescope.api.settings import IdentityProvider, Settings
from cachescope.core.log_lines import fault_of, name_in_logs
from cachescope.core.probes import probe_keys
from cachescope.core.public_sources import Source
from cachescope.gateway.identity.api_keys import ApiKeys
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.certificates import Certificates
from cachescope.gateway.identity.holders import Holding, accounts, api_keys, in_order, jwt_identities, workloads
from cachescope.gateway.identity.jwks import KeySet
from cachescope.gateway.identity.jwt_tokens import JwtTokens, Now, Provider
from cachescope.gateway.identity.probes import ProbeCredentials
from cachescope.gateway.identity.service_accounts import ClusterKeys, ServiceAccountTokens
from cachescope.gateway.ledger_heads import LedgerHeads, LedgerRead
from cachescope.gateway.mounted import Mounted, MountedFolder
from cachescope.gateway.policy import Declared, Policy
from cachescope.gateway.policy_history import PolicyLoading
from cachescope.gateway.readings import KeyEntry, KnownPool, KnownTenant, Reading
from cachescope.gateway.snapshot import Snapshot, at_standings, snapshot_of
from cachescope.gateway.stores import Stores
from cachescope.kube.watched import Name

log = logging.getLogger(__name__)

T = TypeVar("T")
_SHOWN = 20
"""Faults that a report shows; a thousand would hide the first."""


class KeySets(Protocol):
    """Gives the key set of a provider; the same one while the provider's setting is the same."""

    @property
    def cluster(self) -> ClusterKeys:
        """The keys of the cluster's own issuer."""

    def of(self, provider: IdentityProvider, secrets: Path) -> KeySet:
        """The key set of a provider."""


@dataclass(frozen=True)
class Inputs:
    """Everything that a configuration is compiled from, at one moment."""

    mounted: Mounted
    pools: Mapping[Name, Reading[KnownPool]]
    tenants: Mapping[Name, Reading[KnownTenant]]
    scopes: Mapping[Name, Reading[CacheScope]]
    sources: Mapping[Name, Reading[Source]]
    secrets: Mapping[Name, Reading[tuple[KeyEntry, ...]]]
    namespaces: Mapping[Name, Reading[dict[str, str]]]
    home: str = ""
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Compiled:
    """A configuration without ledgers."""

    mounted: Mounted
    policy: Policy
    authenticator: Authenticator
    faults: Mapping[str, str]


class Configuration:
    """The configuration in force, and what is wrong with what was left out.

    Args:
        root: The mounted folder (`mounted`).
        stores: What the Kubernetes API holds.
        key_sets: Key sets of providers.
        now: The time of day in seconds.

    Attributes:
        ledgers: The ledgers.
        loading: What authorization heads want of the policy, against what is in force.
        fault: Why the newest settings are not in force, or why there is no configuration yet; empty when all is well.
    """

    def __init__(self, root: Path, stores: Stores, key_sets: KeySets, *, now: Now) -> None:
        self._root = root
        self._folder = MountedFolder(root)
        self._stores = stores
        self._key_sets = key_sets
        self._now = now
        self.ledgers = LedgerHeads()
        self.loading = PolicyLoading(stores.histories)
        self._seen: object = None
        self._compile_fault = ""
        self._compiled_faults: Mapping[str, str] = {}
        self._said: set[tuple[str, str]] = set()
        self._snapshot: Snapshot | None = None
        self.fault = "the configuration has not been read yet"

    def current(self) -> Snapshot | None:
        """The snapshot in force, or `None` before the first."""
        return self._snapshot

    @property
    def stale(self) -> list[str]:
        """The kinds of policy in force that are older than an authorization head that was read."""
        return sorted({wanted.kind for wanted in self.loading.unmet})

    def faults(self) -> dict[str, str]:
        """What is wrong with objects, by kind, namespace and name, as logs may have it (`name_in_logs`)."""
        return {**self._compiled_faults, **{_named("EpochLedger", name): fault for name, fault in self.ledgers.faults.items()}}

    def report(self) -> dict[str, str]:
        """The first of `faults`."""
        return dict(sorted(self.faults().items())[:_SHOWN])

    async def refresh(self) -> None:
        """Take over what changed since the last time."""
        mounted = await asyncio.to_thread(self._folder.refresh)
        waiting = [kind for kind, store in self._stores.by_kind().items() if store.age() is None]
        if mounted is None or waiting:
            self._say(self._folder.fault)
            # At every start it is so for a moment, which is nothing to log.
            self.fault = self.fault or f"the API server has not told of {', '.join(waiting)} yet; see the gateway's rights"
            return
        seen = (mounted, *(store.version for store in self._compiled_stores()))
        if seen != self._seen and await self._compile(self._inputs(mounted)):
            self._seen = seen
        self._say("; ".join(filter(None, (self._folder.fault, self._compile_fault))))

    def take_ledgers(self, read: LedgerRead) -> None:
        """Take over at once what a round read."""
        self._take_over(changed=self.ledgers.read(read))

    def take_hints(self) -> bool:
        """Take over at once what the watch of ledgers shows, as far as it may; whether a round is needed for the rest."""
        changed, ask = self.ledgers.hint(self._stores.ledgers.items())
        self._take_over(changed=changed)
        return ask

    def _take_over(self, *, changed: bool) -> None:
        self._tell()
        if changed:
            self.loading.want(state.head for state in self.ledgers.standings.remembered.values())
        if changed and self._snapshot is not None:
            self._snapshot = at_standings(self._snapshot, self.ledgers.standings)

    async def _compile(self, inputs: Inputs) -> bool:
        try:
            compiled = await asyncio.to_thread(self._compiled, inputs)
        except Exception as error:
            # Objects were judged one by one, and settings when they were read: what is left is a fault of ours, and tried again.
            fault = f"the configuration was not compiled ({type(error).__name__}); the last one stays: report this"
            if fault != self._compile_fault:  # it is tried again every second
                log.error("configuration not compiled", extra=fault_of(error))
            self._compile_fault = fault
            return False
        self._compile_fault, self._compiled_faults = "", compiled.faults
        self._tell()
        self._snapshot = snapshot_of(
            compiled.mounted.settings,
            compiled.policy,
            compiled.mounted.keys,
            standings=self.ledgers.standings,
            authenticator=compiled.authenticator,
        )
        self.loading.compiled(inputs.versions)
        return True

    def _compiled_stores(self) -> list[Any]:
        """Ledgers are not among them: they are taken over without compiling anything."""
        return [store for kind, store in self._stores.by_kind().items() if kind != "EpochLedger"]

    def _inputs(self, mounted: Mounted) -> Inputs:
        stores = self._stores
        return Inputs(
            mounted=mounted,
            pools=stores.pools.items(),
            tenants=stores.tenants.items(),
            scopes=stores.scopes.items(),
            sources=stores.sources.items(),
            secrets=stores.secrets.items(),
            namespaces=stores.namespaces.items() if stores.namespaces else {},
            home=stores.home,
            versions={kind: store.version for kind, store in stores.by_kind().items()},
        )

    def _compiled(self, inputs: Inputs) -> Compiled:
        settings, tenants = inputs.mounted.settings, _values(inputs.tenants)
        holdings = in_order(tenants, ClaimRules(settings, inputs.home))
        claims = {tenant.uid: tenant.compartments.claim for tenant in tenants}
        keys = ApiKeys(api_keys(holdings, {name: reading.value or () for name, reading in inputs.secrets.items()}))
        certificates = Certificates([domain.name for domain in settings.trust_domains], workloads(holdings), self._now)
        policy = Policy(declared(inputs))
        authenticator = Authenticator(
            keys,
            self._tokens(settings, holdings, claims),
            policy.refused,
            certificates=certificates,
            probes=ProbeCredentials(probe_keys(inputs.mounted.keys.root), policy.probed, self._now),
        )
        return Compiled(inputs.mounted, policy, authenticator, faults_of(inputs))

    def _tokens(self, settings: Settings, holdings: list[Holding], compartments: Mapping[str, str]) -> JwtTokens:
        providers = [self._provider(item) for item in settings.identity_providers]
        taken = settings.service_accounts
        own = ServiceAccountTokens(taken, self._key_sets.cluster, accounts(holdings)) if taken else None
        return JwtTokens(providers, jwt_identities(holdings, compartments), self._now, own)

    def _provider(self, item: IdentityProvider) -> Provider:
        keys = self._key_sets.of(item, self._root / "secrets")
        return Provider(item.name, item.issuer, item.algorithms, keys, item.leeway_seconds, item.list_claims)

    def _say(self, fault: str) -> None:
        if fault and fault != self.fault:
            log.error("configuration at fault", extra={"fault": fault})
        self.fault = fault

    def _tell(self) -> None:
        """Log each fault of an object once, for as long as it is there."""
        faults = set(self.faults().items())
        for name, fault in sorted(faults - self._said):
            log.warning("object at fault", extra={"object": name, "fault": fault})
        self._said = faults


def declared(inputs: Inputs) -> Declared:
    """What the policy is made of."""
    return Declared(
        pools=_values(inputs.pools),
        tenants=_values(inputs.tenants),
        scopes=_values(inputs.scopes),
        sealed=frozenset(name.namespace for name, reading in inputs.scopes.items() if reading.value is None),
        namespaces={name.name: reading.value or {} for name, reading in inputs.namespaces.items()},
        home=inputs.home,
        shared=frozenset(inputs.mounted.settings.shared_pool_namespaces),
        sources={(name.namespace, name.name): reading.value for name, reading in inputs.sources.items() if reading.value},
    )


def faults_of(inputs: Inputs) -> dict[str, str]:
    """What is wrong, by object."""
    kinds: dict[str, Mapping[Name, Reading[Any]]] = {
        "ServingPool": inputs.pools,
        "Tenant": inputs.tenants,
        "CacheScope": inputs.scopes,
        "PublicSource": inputs.sources,
        "Secret": inputs.secrets,
    }
    faults = {
        _named(kind, name): reading.fault for kind, items in kinds.items() for name, reading in items.items() if reading.fault
    }
    shared = "until it can be read, all tenants of its namespace share nothing (class Request)"
    return {name: f"{fault}; {shared}" if name.startswith("CacheScope ") else fault for name, fault in faults.items()}


def _values(items: Mapping[Name, Reading[T]]) -> list[T]:
    return [reading.value for reading in items.values() if reading.value is not None]


def _named(kind: str, name: Name) -> str:
    return f"{kind} {name.namespace}/{name_in_logs(kind, *name)}"
