"""Where key sets come from: a file (also a mounted Secret), or a URL.

Rules:

- what was read last and was good stays in use, and `problem` says what is wrong since; a URL's keys end at `max_stale_seconds`;
- a `kid` that is not known asks the source once more, a URL at most every 10 seconds, so that tokens cannot make it a flood;
- the address is a setting of the installation, never of a tenant or a token; redirects are not followed, plain HTTP is not spoken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from cachescope.core.errors import SpecError
from cachescope.gateway.identity.credentials import KeysUnavailable
from cachescope.gateway.identity.jwks import MAX_BYTES, KeyTable, NoUsableKeys, PublicKey, parse_jwks

logger = logging.getLogger(__name__)

Now = Callable[[], float]
"""A clock in seconds that never runs backwards."""

Fetch = Callable[[], Awaitable[bytes]]
"""Reads a document; raises `OSError`, `TimeoutError`, `aiohttp.ClientError` or `NoUsableKeys` if it cannot."""

TIMEOUT_SECONDS = 5.0
UNKNOWN_KID_SECONDS = 10.0
FILE_CHECK_SECONDS = 1.0


class _LastGood:
    """The last good key table of a source, and what is wrong since."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.table: KeyTable | None = None
        self.problem: str | None = f"{source} has not been read yet; wait"
        self.revision = 0
        self._content: bytes | None = None

    def take(self, content: bytes) -> None:
        """Use a new document; a document that is no good changes the problem alone."""
        if self.table is not None and content == self._content:
            self.problem = None
            return
        try:
            table = parse_jwks(content)
        except NoUsableKeys as error:
            self.fail(str(error))
            return
        if self.table is None or table.keys != self.table.keys:
            self.revision += 1
            logger.info("keys loaded", extra={"source": self.source, "usable": len(table.keys), "ignored": dict(table.ignored)})
        self.table, self._content, self.problem = table, content, None

    def fail(self, reason: str) -> None:
        """Keep what is there, and say why there is nothing newer."""
        problem = f"{self.source}: {reason}"
        if problem != self.problem:
            logger.warning("keys not loaded", extra={"source": self.source, "reason": reason})
        self.problem = problem

    def need(self) -> KeyTable:
        """The table, or a refusal."""
        if self.table is None:
            raise KeysUnavailable("the identity provider's keys are not available; try again later")
        return self.table


class FileKeySet:
    """Keys from a file; a mounted Secret is one. Its content is looked at once a second, and when a `kid` is not known."""

    def __init__(self, path: Path, now: Now) -> None:
        self._path = path
        self._now = now
        self._keys = _LastGood(str(path))
        self._checked = float("-inf")
        self._refresh()

    @property
    def problem(self) -> str | None:
        """Why the file cannot be relied on now."""
        self._refresh()
        return self._keys.problem

    @property
    def revision(self) -> int:
        """Counts the sets that were loaded."""
        self._refresh()
        return self._keys.revision

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The one key that may verify."""
        self._refresh()
        found = self._keys.need().find(kid, algorithm)
        if found is None:
            self._read()
            found = self._keys.need().find(kid, algorithm)
        return found

    def _refresh(self) -> None:
        if self._now() - self._checked >= FILE_CHECK_SECONDS:
            self._read()

    def _read(self) -> None:
        self._checked = self._now()
        try:
            with self._path.open("rb") as file:
                self._keys.take(file.read(MAX_BYTES + 1))
        except OSError as error:
            self._keys.fail(f"cannot be read ({error.strerror}); mount it")


class UrlKeySet:
    """Keys from a URL; `run` keeps them fresh."""

    def __init__(
        self, fetch: Fetch, now: Now, *, source: str, refresh_seconds: float = 300.0, max_stale_seconds: float = 3600.0
    ) -> None:
        """Prepare the source; nothing is fetched yet.

        Args:
            fetch: Reads the document (`http_fetch`).
            now: The clock.
            source: What to call it in logs and problems.
            refresh_seconds: How often `run` fetches.
            max_stale_seconds: How long the last good set is used while the source does not answer.
        """
        self._fetch = fetch
        self._now = now
        self._refresh_seconds = refresh_seconds
        self._max_stale_seconds = max_stale_seconds
        self._keys = _LastGood(source)
        self._lock = asyncio.Lock()
        self._asked = float("-inf")
        self._good = float("-inf")

    @property
    def problem(self) -> str | None:
        """Why the source cannot be relied on now."""
        return self._keys.problem

    @property
    def revision(self) -> int:
        """Counts the sets that were loaded; -1 while there is none that may be used."""
        return -1 if self._stale else self._keys.revision

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The one key that may verify; a `kid` that is not known may fetch the set first."""
        found = None if self._stale else self._keys.need().find(kid, algorithm)
        if found is None:
            await self._ask_again()
            if self._stale:
                raise KeysUnavailable("the identity provider's keys are not available; try again later")
            found = self._keys.need().find(kid, algorithm)
        return found

    async def run(self) -> None:
        """Keep the set fresh until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._refresh_seconds if self._keys.problem is None else UNKNOWN_KID_SECONDS)

    async def refresh(self) -> None:
        """Fetch the set once, now."""
        async with self._lock:
            await self._load()

    @property
    def _stale(self) -> bool:
        return self._now() - self._good > self._max_stale_seconds

    async def _ask_again(self) -> None:
        async with self._lock:
            if self._now() - self._asked >= UNKNOWN_KID_SECONDS:
                await self._load()

    async def _load(self) -> None:
        self._asked = self._now()
        try:
            content = await self._fetch()
        except (OSError, TimeoutError, aiohttp.ClientError, NoUsableKeys) as error:
            self._keys.fail(str(error) or f"{type(error).__name__}; check the address and the network")
            return
        self._keys.take(content)
        if self._keys.problem is None:
            self._good = self._now()


def http_fetch(session: aiohttp.ClientSession, url: str, *, allow_insecure: bool = False) -> Fetch:
    """A reader of a URL: 5 seconds and 1 MiB at most, no redirects, no proxies, no cookies.

    Args:
        session: The session to use; make it with `key_session`.
        url: Address of the key set.
        allow_insecure: Speak plain HTTP too; for tests alone.

    Raises:
        SpecError: The address is not an absolute https URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ({"https", "http"} if allow_insecure else {"https"}) or not parts.hostname or parts.username:
        raise SpecError(f"the key set's address {url!r} is not an absolute https URL without credentials; set one")

    async def fetch() -> bytes:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        async with session.get(url, timeout=timeout, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise NoUsableKeys(f"answers {response.status}; set an address that answers 200 itself")
            return await _bounded(response.content)

    return fetch


def key_session() -> aiohttp.ClientSession:
    """A session for `http_fetch`: it keeps no cookies, reads no proxy settings, and inflates nothing."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False)


async def _bounded(stream: aiohttp.StreamReader) -> bytes:
    content = bytearray()
    async for chunk in stream.iter_chunked(65536):
        content += chunk
        if len(content) > MAX_BYTES:
            raise NoUsableKeys(f"the key set is larger than {MAX_BYTES} bytes; publish a smaller one")
    return bytes(content)
