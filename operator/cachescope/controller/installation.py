"""What every reconciler of one process shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cachescope.api.settings import Settings
from cachescope.api.statuses import IsolationStatus
from cachescope.controller.fences import Fences
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.outcomes import Outcomes
from cachescope.controller.pool_ledgers import PoolLedgers
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Key, Store
from cachescope.kube.applying import Applier
from cachescope.kube.rest import Document, Rest
from cachescope.manifests.platform import Platform


@dataclass(frozen=True)
class Installation:
    """One installation, as its operator sees it.

    Attributes:
        rest: The API; answers to writes go into the store.
        store: Objects as last seen.
        applier: Applies children.
        keys: Root keys.
        leases: Leases of guards and gateways.
        ledgers: Ledgers of pools.
        fences: Fences in progress, and those that are complete.
        outcomes: What ledgers made of CacheEpochs.
        platform: What pools are built with.
        settings: Settings in force.
        again: Asks for a key to be reconciled in some seconds.
        isolation: What the probe has shown of a pool; `None` where there is nothing to show.
        renewed: Told how many engine pods were deleted to make room for a new cache identity.
    """

    rest: Rest
    store: Store
    applier: Applier
    keys: RootKeys
    leases: LeaseBook
    ledgers: PoolLedgers
    fences: Fences
    outcomes: Outcomes
    platform: Platform
    settings: Settings
    again: Callable[[Key, float], None]
    isolation: Callable[[Document], IsolationStatus | None] = lambda _: None
    renewed: Callable[[int], None] = lambda _: None
