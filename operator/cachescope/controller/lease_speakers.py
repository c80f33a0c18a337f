"""Who speaks in a lease: decided without believing what is written in it, since every engine pod of a namespace may write there.

Rules:

- gateways write leases in the installation's namespace alone (the chart's Role `cachescope-gateway`): nobody is one elsewhere;
- a lease belongs to one process, and its name begins with the UID of the pod: what the lease of an engine pod says counts under the
  key of the pod's pool. Of a pod that is not there it counts under the key of the pool that it names;
- who was proven stays who he is: no other process takes a lease over. So a neighbour that writes into it moves nobody to another
  pool, and the guards of a pool that was deleted, and made anew under its name, are still those of the one before;
- a guard speaks of its own pool, and of the authorization head of its own namespace: of another the key of a pool proves nothing;
- whoever cannot be made out is anybody who may be meant: a guard of any pool there, in the installation's namespace also a gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Key, Store
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.labels import POOL_LABEL
from cachescope.core.leases import GATEWAY, GUARD, LeaseStatement, lease_keys, read_lease
from cachescope.core.ledgers import AUTHORIZATION, authorization_key
from cachescope.core.permits import permit_keys
from cachescope.core.rosters import ANYBODY


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whose lease it is.

    Attributes:
        holder: `Guard`, `Gateway`, or `ANYBODY`.
        pool: Name of a guard's pool; empty for any.
        pool_uid: Its UID; empty while it is not known.
        proven: Whether a statement in this lease verified.
    """

    holder: str
    pool: str = ""
    pool_uid: str = ""
    proven: bool = False


class LeaseSpeakers:
    """Finds out who speaks.

    Args:
        store: Pools and engine pods as last seen.
        keys: The root keys.
        home: Namespace of the installation.
    """

    def __init__(self, store: Store, keys: RootKeys, home: str) -> None:
        self._store = store
        self._keys = keys
        self._home = home

    def presumed(self, key: Key, before: Speaker | None) -> Speaker:
        """Whose lease it is when nothing that it says is believed.

        Args:
            key: Of the lease.
            before: Whose it was when it was seen last, if it was.
        """
        if before is not None and before.proven:
            return before
        pool = self._pool_of_pod(key)
        if pool:
            return Speaker(GUARD, pool, self._uid(key.namespace, pool))
        return Speaker(ANYBODY if key.namespace == self._home else GUARD)

    def read(self, key: Key, spec: Mapping[str, Any], presumed: Speaker) -> tuple[Speaker, LeaseStatement]:
        """Verify a statement; whose it is now proven to be, and what it says.

        Args:
            key: Of the lease.
            spec: Its spec.
            presumed: As `presumed` says.

        Raises:
            WireFormatError: It proves nothing.
        """
        claimed = self._claimed(key, spec, presumed)
        statement = read_lease(self._ring(claimed), str(spec.get("statement", "")), name=key.name)
        # The key that signed it says who may speak: with a pool's own key nobody speaks as a gateway, or of another pool.
        if (statement.holder, statement.pool_uid) != (claimed.holder, claimed.pool_uid):
            raise WireFormatError("the statement is another holder's; look for who wrote it")
        if claimed.holder == GUARD and not _of_its_own(statement, key.namespace):
            raise WireFormatError("a guard speaks of the authorization of its own namespace alone; look for who wrote it")
        return claimed, statement

    def _claimed(self, key: Key, spec: Mapping[str, Any], presumed: Speaker) -> Speaker:
        """Under whose key it is to be read."""
        if spec.get("holder") == GATEWAY and presumed.holder in (ANYBODY, GATEWAY):
            return Speaker(GATEWAY, proven=True)
        pool = presumed.pool or str(spec.get("pool") or "")
        uid = presumed.pool_uid or self._uid(key.namespace, pool)
        if presumed.holder == GATEWAY or not uid:
            raise WireFormatError("there is nobody in this namespace who can have said that; look for who wrote it")
        return Speaker(GUARD, pool, uid, proven=True)

    def _ring(self, speaker: Speaker) -> KeyRing:
        root = self._keys.ring
        return lease_keys(root) if speaker.holder == GATEWAY else permit_keys(root, speaker.pool_uid)

    def _pool_of_pod(self, key: Key) -> str:
        """The pool of the engine pod whose UID the lease is named by; empty when no such pod is there."""
        uid = key.name.partition(".")[0]
        pod = next((item for item in self._store.all("Pod", key.namespace) if item["metadata"]["uid"] == uid), None)
        return str((pod["metadata"].get("labels") or {}).get(POOL_LABEL, "")) if pod else ""

    def _uid(self, namespace: str, pool: str) -> str:
        found = self._store.get("ServingPool", namespace, pool)
        return str(found["metadata"]["uid"]) if found else ""


def _of_its_own(statement: LeaseStatement, namespace: str) -> bool:
    named = {name for name in (*statement.acknowledged, *statement.witnesses) if name.startswith(AUTHORIZATION)}
    return named <= {authorization_key(namespace)}
