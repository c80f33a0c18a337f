"""Sends challenges to guards over HTTP."""

from __future__ import annotations

import aiohttp

from cachescope.core.errors import ClusterError
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER
from cachescope.gateway.challenges import ChallengeAnswer

# A route that every guarded engine serves: the proof is that exactly this, without a permit, is refused.
PATH = "/v1/chat/completions"
TIMEOUT = aiohttp.ClientTimeout(total=5)


class HttpChallenger:
    """Challenges over one connection pool; close it when the gateway ends."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, auto_decompress=False)

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Send a request without a permit; see `Challenger`."""
        headers = {CHALLENGE_HEADER: nonce, "content-type": "application/json"}
        try:
            async with self._session.post(
                f"http://{address}{PATH}", data=b"{}", headers=headers, allow_redirects=False
            ) as response:
                return ChallengeAnswer(response.status, response.headers.get(STATEMENT_HEADER))
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ClusterError(f"the engine at {address} did not answer ({type(error).__name__}); see its pod") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
