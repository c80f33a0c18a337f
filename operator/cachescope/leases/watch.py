"""Watching one object by its name: hints about its changes, for as long as somebody wants them.

Rules:

- a watch starts from a list, goes on from the version of its last event, and starts again from a list after anything that went
  wrong, with a pause that differs from process to process;
- it never ends by itself and raises nothing: whoever needs certainty reads. One that stalls is ended by the server's time or ours;
- an event is one line, of bounded length.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol
from urllib.parse import urlencode

from cachescope.core.errors import CacheScopeError, ClusterError
from cachescope.core.log_lines import fault_of

_LOG = logging.getLogger(__name__)
WATCH_SECONDS = 240
"""How long a watch lasts at most; a fifth less by chance."""
LONGEST_LINE = 4 * 2**20
_PAUSE_SECONDS = 1.0
_HASTY_SECONDS = 1.0


class WatchedServer(Protocol):
    """The port to the API server."""

    async def listed(self, query: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """A list as the API server answers it.

        Raises:
            ClusterError: There is none.
        """

    def streamed(self, query: str, seconds: float) -> AsyncGenerator[bytes, None]:
        """The parts of a watch's answer as they come; it ends when the server ends it, or brings nothing for so many seconds.

        Raises:
            ClusterError: It broke, or there is none.
        """


class Watch:
    """The watch of one object.

    Args:
        server: The API server.
        name: Name of the object.
        clock: Milliseconds of a clock that only rises.
        sleep: Waits, in seconds.
    """

    def __init__(
        self,
        server: WatchedServer,
        name: str,
        *,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._name = name
        self._clock = clock
        self._sleep = sleep
        self._version = ""

    async def specs(self) -> AsyncIterator[object]:
        """Specs of the object as they change, the present one first; it never ends."""
        while True:
            try:
                async for spec in self._followed():
                    yield spec
            except Exception as error:  # noqa: PERF203 - each attempt fails by itself
                self._version = ""
                what = {"problem": str(error)} if isinstance(error, CacheScopeError) else fault_of(error)
                _LOG.debug("a watch starts again", extra={"object": self._name, **what})
                await self._sleep(_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311 - it only spreads load

    async def _followed(self) -> AsyncIterator[object]:
        """What a list shows, unless the version is known, and then what one watch brings."""
        if not self._version:
            found = await self._server.listed(self._query())
            self._version = _version(found)
            for item in found["items"]:
                yield item["spec"]
        began_at, seconds = self._clock(), WATCH_SECONDS * (0.8 + 0.2 * random.random())  # noqa: S311 - the same
        query = self._query(
            watch="true", resourceVersion=self._version, allowWatchBookmarks="true", timeoutSeconds=str(int(seconds))
        )
        async with aclosing(self._server.streamed(query, seconds)) as parts:
            async for line in lines(parts):
                event = json.loads(line)
                self._version = _version(event["object"])
                if event["type"] in {"ADDED", "MODIFIED"}:
                    yield event["object"]["spec"]
        if self._clock() - began_at < 1000 * _HASTY_SECONDS:
            raise ClusterError("the watch ended at once; look at the API server's health")

    def _query(self, **further: str) -> str:
        return urlencode({"fieldSelector": f"metadata.name={self._name}", **further})


async def lines(parts: AsyncIterator[bytes], longest: int = LONGEST_LINE) -> AsyncIterator[bytes]:
    """The lines of a stream; what follows the last line break is no line.

    Args:
        parts: The stream.
        longest: Most bytes of a line.

    Raises:
        ClusterError: A line is longer.
    """
    rest = bytearray()
    async for part in parts:
        *whole, after = part.split(b"\n")
        for end in whole:
            yield bytes(rest) + end
            rest.clear()
        rest += after
        if len(rest) > longest:
            raise ClusterError("an event of a watch is too long; look for a proxy between this pod and the API server")


def _version(document: Any) -> str:  # noqa: ANN401 - the parser is where untyped JSON ends
    """The version that a list, or the object of an event, carries; an error's object carries none."""
    version = document["metadata"].get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise ClusterError(f"the watch brought no object, but {document.get('reason', 'no reason')}; it starts again")
    return version
