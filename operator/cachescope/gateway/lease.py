"""The gateway's own FenceLease: under its right a gateway decides.

What the rounds are is `cachescope.leases.rounds`; here is what a gateway says in them (which ledgers it applied, to which pods it
routes) and how it reads the ledgers: by quorum, all heads, and of the shards those that are above what it holds.

Rules:

- what is acknowledged is held: by every ledger in use of a pool that is known, and by every authorization head whose shards and
  policy are loaded, decisions are made from that same moment on. Of a shard that was taken back the state is told that is held;
- a round whose heads want a policy that is not loaded does not end before it is: the gateway lapses, and no fence waits for it;
- a statement that would be too long leaves out what can be missed most: pods that it routes to, then witnesses.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cachescope
from cachescope.api.documents import API_VERSION
from cachescope.api.ledgers import EpochLedger, FenceLeaseSpec
from cachescope.core.errors import SpecError
from cachescope.core.keys import Key
from cachescope.core.labels import HEAD, LEDGER_LABEL
from cachescope.core.leases import GATEWAY, LeaseStatement, lease_name
from cachescope.core.ledgers import Mark, authorization_key
from cachescope.core.types import CacheIdentity
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.lease_store import meaning
from cachescope.gateway.ledger_heads import LedgerRead
from cachescope.gateway.readings import KnownLedger, Reading, read_ledger, whatever
from cachescope.gateway.short_leases import ReadableStatements
from cachescope.gateway.snapshot import Snapshot
from cachescope.kube.rest import ApiError, NotFoundError, collection
from cachescope.kube.watched import Api, Name, name_of, pages
from cachescope.leases.clock import renew_time

_HEADS = f"{LEDGER_LABEL}={HEAD}"
_AT_ONCE = 8
"""Shards that are read at the same time."""


@dataclass(frozen=True)
class Pod:
    """The gateway's pod.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its UID.
    """

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Tells:
    """What a gateway tells of engines.

    Attributes:
        routable: Gives the UIDs of the pods that are routed to, by pool UID.
        wanted: Gives the cache identities that no pod was found for, by pool UID.
    """

    routable: Callable[[], Mapping[str, tuple[str, ...]]]
    wanted: Callable[[], Mapping[str, tuple[CacheIdentity, ...]]] = dict


@dataclass(frozen=True)
class Times:
    """What a gateway declares of its right, for as long as the process lives.

    Attributes:
        lease_ms: Length of the right.
        fresh_ms: For how long it goes on once that ran out.
    """

    lease_ms: int
    fresh_ms: int = 0


class GatewayLease:
    """Implements `Holder`.

    Args:
        pod: The pod.
        api: The API server.
        ledgers: Path of the list of ledgers.
        configuration: The configuration, which keeps the ledgers.
        tells: What it tells of engines.
        times: What is declared of the right.
    """

    def __init__(self, pod: Pod, *, api: Api, ledgers: str, configuration: Configuration, tells: Tells, times: Times) -> None:
        self._pod = pod
        self._api = api
        self._ledgers = ledgers
        self._configuration = configuration
        self._tells = tells
        self._times = times
        self._boot_id = secrets.token_hex(16)
        self._statements = ReadableStatements()
        self._released = False
        self._said_marks: Mapping[str, Mark] | None = None
        self._said_pods: Mapping[str, tuple[str, ...]] | None = None
        self._said_wanted: Mapping[str, tuple[CacheIdentity, ...]] = {}
        self._signed_with: Key | None = None

    def lease_name(self) -> str:
        """Name of the lease."""
        return lease_name(self._pod.uid, self._boot_id)

    def restarted(self) -> None:
        """Go on under a new name. Nothing has to be aborted here: what is in flight is judged by guards."""
        self._boot_id = secrets.token_hex(16)

    async def released(self) -> None:
        """The process ends; requests ended before."""
        self._released = True

    def acknowledges_more(self) -> bool:
        """Whether something is acknowledged that the last statement does not say."""
        snapshot = self._configuration.current()
        return snapshot is not None and self._said_marks != self._acknowledged(snapshot)

    def signs_otherwise(self) -> bool:
        """Whether the last statement is signed with another key: guards get a new one once every gateway signs with it."""
        snapshot = self._configuration.current()
        return snapshot is not None and self._signed_with != snapshot.keys.lease

    def routes_elsewhere(self) -> bool:
        """Whether other pods are routed to, or others are wanted, than the last statement says."""
        return self._said_pods != self._tells.routable() or self._said_wanted != self._tells.wanted()

    def spec(self, tick: int) -> Mapping[str, Any]:
        """The lease's spec for a tick.

        Raises:
            SpecError: There is no configuration yet, so nothing that could be said.
        """
        snapshot = self._configuration.current()
        if snapshot is None:
            raise SpecError(f"no configuration is in force ({self._configuration.fault}); see /readyz")
        statement = self._statement(snapshot, tick)
        self._said_marks, self._said_pods, self._signed_with = statement.acknowledged, statement.routable, snapshot.keys.lease
        self._said_wanted = statement.wanted
        spec = FenceLeaseSpec(
            holder=GATEWAY,
            pod=self._pod.name,
            tick=tick,
            lease_seconds=self._times.lease_ms // 1000,
            renew_time=renew_time(),
            version=cachescope.__version__,
            statement=self._statements.write(snapshot.keys.lease, statement),
        )
        return spec.model_dump(by_alias=True)

    async def read_heads(self) -> LedgerRead:
        """Read all heads by quorum, and the shards that they announce above what is held.

        Raises:
            ClusterError: They cannot be read.
        """
        try:
            return await self._read()
        except ApiError as error:
            raise meaning(error) from error

    async def _read(self) -> LedgerRead:
        ledgers = self._configuration.ledgers
        before, read = ledgers.known, whatever(read_ledger)
        found = pages(self._api, self._ledgers, labelSelector=_HEADS)
        heads = {name_of(item): read(item) async for page in found for item in page["items"]}
        missing, turns = ledgers.missing(heads), asyncio.Semaphore(_AT_ONCE)
        shards = await asyncio.gather(*(self._shard(name, turns) for name in missing))
        return LedgerRead(before, heads, dict(zip(missing, shards, strict=True)))

    async def apply(self, heads: object) -> None:
        """Take the ledgers over, each one's fault being its own, and wait for the policy that they want."""
        if not isinstance(heads, LedgerRead):
            raise TypeError("apply takes what read_heads returned; pass that")
        self._configuration.take_ledgers(heads)
        await self._configuration.loading.complete()

    def _statement(self, snapshot: Snapshot, tick: int) -> LeaseStatement:
        return LeaseStatement(
            holder=GATEWAY,
            pod_uid=self._pod.uid,
            boot_id=self._boot_id,
            tick=tick,
            lease_ms=self._times.lease_ms,
            version=cachescope.__version__,
            acknowledged=self._acknowledged(snapshot),
            witnesses=self._configuration.ledgers.witnesses(),
            fresh_ms=self._times.fresh_ms,
            released=self._released,
            routable={} if self._released else self._tells.routable(),
            wanted={} if self._released else self._tells.wanted(),
        )

    def _acknowledged(self, snapshot: Snapshot) -> dict[str, Mark]:
        standings, uids = snapshot.standings, snapshot.policy.uids
        pools = {uids[name]: ledger.mark for name, ledger in standings.pools.items() if name in uids}
        loaded = self._configuration.loading.is_loaded
        heads = {name: state.head for name, state in standings.authorizations.items() if loaded(state.head)}
        authorizations = {authorization_key(name): head.mark for name, head in heads.items()}
        return pools | authorizations | self._configuration.ledgers.forks()

    async def _shard(self, name: Name, turns: asyncio.Semaphore) -> Reading[KnownLedger]:
        async with turns:
            try:
                path = collection(API_VERSION, EpochLedger.PLURAL, name.namespace)
                return whatever(read_ledger)(await self._api.get(f"{path}/{name.name}"))
            except NotFoundError:
                return Reading(None, "the shard is not there; the operator deals with it")


def ledgers_path(namespace: str | None) -> str:
    """Path of the list of ledgers, of one namespace or of all."""
    return collection(API_VERSION, EpochLedger.PLURAL, namespace)
