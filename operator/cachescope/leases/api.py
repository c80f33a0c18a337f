"""The few requests that a guard sends to the API server: its own `FenceLease`, and the ledgers of its pool.

Rules:

- every request is sent once: the HTTP client's own retries are off, since an identical write proves nothing;
- reads carry no `resourceVersion`, so that the API server answers them by quorum; what a watch brings is a hint;
- a write whose answer did not come, or does not say what is stored, is a lost answer: it may have been committed;
- nobody shares a lease, so that there are no managers of its fields to keep: noting them is a sixth of what a write costs the API
  server, and every write of a lease says that it need not.

An engine's image has aiohttp; it is imported with the first request, so that this module needs the standard library alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cachescope.core.errors import ClusterError
from cachescope.leases.ports import LeaseConflict, LeaseGone, LostAnswer, ServerBusy, Stored, Written
from cachescope.leases.service_account import ServiceAccount
from cachescope.leases.watch import Watch

if TYPE_CHECKING:
    import aiohttp

API_VERSION = "cachescope.dev/v1alpha1"
LEASES = "fenceleases"
LEDGERS = "epochledgers"
NOBODY: list[dict[str, str]] = [{}]
"""As `managedFields` of a write: the API server keeps none from then on."""
_SHORT = 10_000
_BUSY_SECONDS = 1.0
_LONGEST_SECONDS = 10.0


class LeaseApi:
    """Requests of one process in one namespace; implements `LeaseStore`.

    Args:
        url: The API server, `https://host:port`.
        folder: Holds the ServiceAccount's `token` and `ca.crt`.
        namespace: Where leases and ledger are.
        seconds: How long a request may take.
        clock: Milliseconds of a clock that only rises.
    """

    def __init__(self, url: str, folder: Path, *, namespace: str, seconds: float, clock: Callable[[], int]) -> None:
        self._root = f"{url}/apis/{API_VERSION}/namespaces/{namespace}"
        self._account = ServiceAccount(folder, clock)
        self._namespace = namespace
        self._seconds = seconds
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def create(self, name: str, spec: Mapping[str, Any]) -> Written:
        """Create a lease; raises what `LeaseStore` says."""
        answer = await self._send("POST", LEASES, self._lease(name, spec))
        return _stored(_judged(answer, f"creating the FenceLease {name}"))

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Written:
        """Replace a lease that still has that version; raises what `LeaseStore` says."""
        body = self._lease(name, spec, resourceVersion=resource_version, managedFields=NOBODY)
        answer = await self._send("PUT", f"{LEASES}/{name}", body)
        if answer.status == 404:
            raise LeaseGone(f"the FenceLease {name} is not there any more; leave FenceLeases to the operator")
        return _stored(_judged(answer, f"replacing the FenceLease {name}"))

    async def get(self, name: str) -> Stored | None:
        """Read a lease by quorum; `None` when it is not there."""
        answer = await self._send("GET", f"{LEASES}/{name}")
        return None if answer.status == 404 else _stored(_judged(answer, f"reading the FenceLease {name}"))

    async def ledger(self, name: str) -> object:
        """Read the spec of an `EpochLedger` by quorum.

        Raises:
            ClusterError: It cannot be read, or is not there.
        """
        answer = await self._send("GET", f"{LEDGERS}/{name}")
        document = _judged(answer, f"reading the EpochLedger {name}")
        return document.get("spec") if isinstance(document, dict) else None

    def watch_ledger(self, name: str) -> AsyncIterator[object]:
        """Specs of an `EpochLedger` as they change; it never ends and raises nothing."""
        return Watch(self, name, clock=self._clock).specs()

    async def listed(self, query: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """A list of ledgers by quorum; implements `WatchedServer`."""
        return _judged(await self._send("GET", f"{LEDGERS}?{query}"), "listing EpochLedgers")

    async def streamed(self, query: str, seconds: float) -> AsyncGenerator[bytes, None]:
        """The parts of a watch of ledgers as they come; implements `WatchedServer`."""
        import aiohttp  # noqa: PLC0415 - as in `_send`

        # The server ends it in time; a connection that died silently is noticed a little later.
        timeout = aiohttp.ClientTimeout(connect=self._seconds, sock_read=seconds + self._seconds)
        options = {**await self._options(), "timeout": timeout}
        try:
            async with self._open().get(f"{self._root}/{LEDGERS}?{query}", **options) as response:
                if response.status != 200:
                    _judged(_answer(response, await response.content.read(_SHORT)), "watching EpochLedgers")
                async for part in response.content.iter_any():
                    yield part
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise LostAnswer(f"a watch of EpochLedgers broke ({type(error).__name__}); it starts again") from error

    async def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _lease(self, name: str, spec: Mapping[str, Any], **metadata: object) -> dict[str, Any]:
        named = {"name": name, "namespace": self._namespace, **metadata}
        return {"apiVersion": API_VERSION, "kind": "FenceLease", "metadata": named, "spec": dict(spec)}

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> _Answer:
        """Send one request once."""
        import aiohttp  # noqa: PLC0415 - the engine has it; whoever only imports this module need not

        session, options = self._open(), await self._options()
        data = json.dumps(body) if body is not None else None
        try:
            async with session.request(method, f"{self._root}/{path}", data=data, **options) as response:
                return _answer(response, await response.read())
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            problem = f"the API server did not answer {method} {path} ({type(error).__name__})"
            raise LostAnswer(f"{problem}; look at the network between this pod and the API server") from error

    async def _options(self) -> dict[str, Any]:
        given = await self._account.credentials()
        headers = {"Authorization": f"Bearer {given.token}", "Content-Type": "application/json", "Accept": "application/json"}
        return {"headers": headers, "ssl": given.tls, "allow_redirects": False, "trace_request_ctx": _Sent()}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp  # noqa: PLC0415 - as above

            trace = aiohttp.TraceConfig()
            trace.on_connection_create_start.append(_only_once)
            trace.on_connection_reuseconn.append(_only_once)
            timeout = aiohttp.ClientTimeout(total=self._seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, trace_configs=[trace])
        return self._session


@dataclass(frozen=True)
class _Answer:
    """What the API server answered.

    Attributes:
        status: HTTP status.
        content: The content.
        retry_after: The header `Retry-After`; empty without one.
    """

    status: int
    content: bytes
    retry_after: str


@dataclass
class _Sent:
    """Whether a request has had its connection."""

    connected: bool = False


async def _only_once(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    """Give a request one connection: from 3.10 on aiohttp sends a PUT again on another when the first breaks."""
    sent: _Sent = context.trace_request_ctx
    if sent.connected:
        raise ConnectionError("the connection broke")
    sent.connected = True


def _answer(response: aiohttp.ClientResponse, content: bytes) -> _Answer:
    return _Answer(response.status, content, response.headers.get("Retry-After", ""))


def _judged(answer: _Answer, what: str) -> Any:  # noqa: ANN401 - JSON of any kind
    """The document of a good answer; any other answer as an error."""
    status, content = answer.status, answer.content
    if status == 409:
        raise LeaseConflict(f"{what}: it changed or is there already (409); it is read again")
    if status == 429:
        problem = f"{what}: the API server is busy (429)"
        raise ServerBusy(f"{problem}; let the chart cachescope-crds give leases a priority level", _seconds(answer))
    if status >= 500:
        raise LostAnswer(f"{what}: the API server answered {status}; look at its health")
    if not 200 <= status < 300:
        raise ClusterError(f"{what}: the API server answered {status} ({_reason(content)}); check the Role and the object")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LostAnswer(f"{what}: the answer is not JSON; look for a proxy between this pod and the API server") from error


def _stored(document: Any) -> Stored:  # noqa: ANN401 - the parser is where untyped JSON ends
    try:
        metadata, tick = document["metadata"], document["spec"]["tick"]
        version = metadata["resourceVersion"]
        if not isinstance(version, str) or type(tick) is not int:
            raise TypeError("resourceVersion is a text and tick an integer")
        return Stored(version, tick, metadata.get("deletionTimestamp") is not None)
    except (KeyError, TypeError, AttributeError) as error:
        raise LostAnswer(f"the answer is no FenceLease ({error!r}); check that the CRDs are those of this version") from error


def _seconds(answer: _Answer) -> float:
    """When to ask again; the API server gives whole seconds, and a date (RFC 9110, 10.2.3) would need another machine's clock."""
    given = answer.retry_after
    return min(float(given), _LONGEST_SECONDS) if given.isascii() and given.isdigit() else _BUSY_SECONDS


def _reason(content: bytes) -> str:
    try:
        return str(json.loads(content)["reason"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
