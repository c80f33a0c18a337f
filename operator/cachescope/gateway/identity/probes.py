"""Credentials of the operator's probe (`core.probes`): whom they speak for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from cachescope.core.errors import WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.probes import SCHEME, read_credential
from cachescope.core.scopes import Credential
from cachescope.gateway.identity.credentials import Identity, Unauthenticated

KIND: Final = "probe"
"""Of such a credential; no resource can name it."""
_PREFIX: Final = f"{SCHEME} "


@dataclass(frozen=True)
class ProbeCredentials:
    """Verifies them for one state of keys and pools.

    Attributes:
        keys: The keys of the probe.
        pools: UIDs of the pools that are probed.
        now: The time of day in seconds.
    """

    keys: KeyRing
    pools: Collection[str]
    now: Callable[[], float]

    def authenticate(self, header: str) -> Identity | None:
        """Who asks; `None` where the header is of another scheme.

        Raises:
            Unauthenticated: It does not verify, or there is no such pool.
        """
        if not header.startswith(_PREFIX):
            return None
        try:
            prober = read_credential(self.keys, header.removeprefix(_PREFIX), now=self.now())
        except WireFormatError as error:
            raise Unauthenticated(str(error)) from error
        if prober.pool_uid not in self.pools:
            raise Unauthenticated("there is no such pool to probe; wait until the gateway knows it")
        return Identity(prober.tenant_uid, Credential(KIND, "", str(prober.who)), prober=prober)
