"""One run of the probe on one process: its credentials, and its connections to gateway and guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp

from cachescope.controller.isolation_targets import Target
from cachescope.controller.root_keys import RootKeys
from cachescope.core.probes import LONGEST_SECONDS, Pair, Prober, probe_keys, write_credential
from cachescope.probe.cases import Identity
from cachescope.probe.live import Shown, examine
from cachescope.probe.live_http import LiveProcess

_ANSWER_SECONDS: Final = 60.0


@dataclass
class IsolationRuns:
    """Runs of the probe.

    Attributes:
        keys: Root keys.
        gateway: URL at which gateways listen for the probe.
        now: The time of day, in seconds since 1970: credentials end by it.
    """

    keys: RootKeys
    gateway: str
    now: Callable[[], float]

    async def examined(self, target: Target, seed: str) -> Shown:
        """Ask a process.

        Args:
            target: The process.
            seed: Prompts follow from it.

        Raises:
            ClusterError: There are no root keys to sign with.
        """
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        # A server may close a connection that was kept just when the next request begins.
        connector = aiohttp.TCPConnector(force_close=True)
        # A small compressed answer could be a large one.
        plain = {"accept-encoding": "identity"}
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=plain, auto_decompress=False) as session:
            process = LiveProcess(session, self.gateway, target.metrics)
            return await examine(process.ask, target.routes, self._identities(target), model=target.model, seed=seed)

    def _identities(self, target: Target) -> Callable[[Pair], tuple[Identity, Identity]]:
        key, until = probe_keys(self.keys.ring).current, int(self.now()) + LONGEST_SECONDS

        def identity(pair: Pair, who: int) -> Identity:
            prober = Prober(target.pool_uid, target.boot_id, pair, who)
            return Identity({"authorization": write_credential(key, prober, until=until)})

        return lambda pair: (identity(pair, 0), identity(pair, 1))
