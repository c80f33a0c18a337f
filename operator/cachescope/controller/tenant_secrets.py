"""The Secrets that Tenants name: which of them hold no keys that gateways read, and why.

Labelled Secrets are watched. The API server is asked only for those that are not among them, to say which of two faults it is: once
for each version of the Tenant, and then ever more rarely, however many Secrets are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cachescope.api.conditions import Reason
from cachescope.api.tenants import Tenant
from cachescope.controller.store import Key, Store
from cachescope.controller.watched_kinds import API_KEYS
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import NotFoundError, Rest

FIRST_PAUSE: Final = 15.0
LAST_PAUSE: Final = 600.0


@dataclass(frozen=True)
class _Looked:
    tenant: tuple[str, int]
    faults: Mapping[str, Reason]
    next_at: float
    pause: float


class TenantSecrets:
    """Faults of the Secrets that Tenants name.

    Args:
        rest: The API.
        store: Where the labelled ones are.
        clock: Seconds of a clock that only rises.
        again: Asks for a key to be reconciled in some seconds.
    """

    def __init__(self, rest: Rest, store: Store, *, clock: Callable[[], float], again: Callable[[Key, float], None]) -> None:
        self._rest = rest
        self._store = store
        self._clock = clock
        self._again = again
        self._looked: dict[Key, _Looked] = {}

    def forget(self, key: Key) -> None:
        """A Tenant is gone."""
        self._looked.pop(key, None)

    async def faults(self, key: Key, tenant: Tenant) -> Mapping[str, Reason]:
        """What is wrong with its Secrets, by name."""
        names = [item.secret_name for item in tenant.spec.identities.api_keys]
        missing = [name for name in dict.fromkeys(names) if not self._store.get(API_KEYS, key.namespace, name)]
        if not missing:
            self._looked.pop(key, None)
            return {}
        version = (tenant.uid, tenant.metadata.generation)
        known = self._looked.get(key)
        same = known is not None and known.tenant == version
        if known is None or not same or self._clock() >= known.next_at:
            pause = min(LAST_PAUSE, known.pause * 2) if known and same else FIRST_PAUSE
            faults = {name: reason for name in missing if (reason := await self._fault(key.namespace, name))}
            known = self._looked[key] = _Looked(version, faults, self._clock() + pause, pause)
        found = {name: reason for name, reason in known.faults.items() if name in missing}
        if found:
            self._again(key, max(0.0, known.next_at - self._clock()))
        return found

    async def _fault(self, namespace: str, name: str) -> Reason | None:
        try:
            secret = await self._rest.get(f"{collection_of('Secret', namespace)}/{name}")
        except NotFoundError:
            return Reason.SECRET_NOT_FOUND
        if (secret["metadata"].get("labels") or {}).get(API_KEYS_LABEL) != "true":
            return Reason.SECRET_NOT_LABELLED
        self._store.put(API_KEYS, secret)
        return None
