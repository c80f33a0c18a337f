"""Closing: when the requests that became old are over, so that the guard may acknowledge what made them old.

Rules:

- heads are acknowledged once nothing older is left: every request that was closed returned from its application, the engine
  confirmed that it knows nothing of them, and nothing that drains is behind that ledger;
- nothing of this has a time limit: an application that never returns, or an engine that never confirms, means that the guard
  never acknowledges, and that its lease ends;
- with nothing closed since the last confirmation the engine is not asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from cachescope.core.errors import ClusterError
from cachescope.core.log_lines import fault_of
from cachescope.guard.confirmation import Confirmation
from cachescope.guard.in_flight import Flight, InFlight

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.1
CONFIRMED = "confirmed"
FAILED = "failed"


class Closing:
    """Waits until what was closed is over.

    Args:
        in_flight: The requests.
        confirmation: Asks the engine.
        sleep: Waits after a confirmation that failed, in seconds.

    Attributes:
        confirmation: Asks the engine.
        outcomes: Confirmations by how they ended.
        seconds: Seconds that confirmations took, all together.
    """

    def __init__(
        self, in_flight: InFlight, confirmation: Confirmation, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.confirmation = confirmation
        self.outcomes: Counter[str] = Counter()
        self.seconds = 0.0
        self._in_flight = in_flight
        self._sleep = sleep
        self._lock = asyncio.Lock()

    async def over(self) -> None:
        """Return when everything that was closed is over, what is closed meanwhile included."""
        async with self._lock:
            while closed := self._in_flight.unconfirmed():
                for flight in closed:
                    await flight.returned.wait()
                if await self._confirmed(closed):
                    self._in_flight.confirm(closed)
                else:
                    await self._sleep(_PAUSE_SECONDS)

    async def _confirmed(self, closed: tuple[Flight, ...]) -> bool:
        began_at = time.monotonic()
        try:
            await self.confirmation.confirmed([flight.permit.id for flight in closed])
        except ClusterError as error:
            self.outcomes[FAILED] += 1
            # Once in a while is enough: it is asked again until it confirms.
            if self.outcomes[FAILED] % 100 == 1:
                _LOG.warning("the engine does not confirm what was closed", extra={"problem": str(error), **fault_of(error)})
            return False
        finally:
            self.seconds += time.monotonic() - began_at
        self.outcomes[CONFIRMED] += 1
        return True
