"""kopf as the watcher, and nothing else: it follows the API and puts what it hears into the store.

No finalizers, no annotations, no state of its own on any object, no Events: all handlers are `on.event`, and the storages write
nothing. What kopf does not say (an object that vanished while a watch was broken, a watch that stalls) is found by `audit`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kopf

from cachescope.controller.store import Store
from cachescope.controller.watched_kinds import WatchedKind, streamed

SERVER_SECONDS = 240
CLIENT_SECONDS = 270
INACTIVE_SECONDS = 70
CONNECT_SECONDS = 10
REQUEST_SECONDS = 60
RETRIES = (1, 1, 2, 3, 5)
"""Seconds between attempts. kopf tries again after 403 too; then the watcher ends, and the process is started anew."""

Heard = Callable[[str], None]
"""Told the kind of every event."""


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no copy of what was last handled: nothing is compared with it."""

    def build(self, **_: object) -> Any:  # noqa: ANN401 - kopf's type
        """Nothing."""
        return {}

    def fetch(self, **_: object) -> Any:  # noqa: ANN401 - kopf's type
        """Nothing."""
        return None

    def store(self, **_: object) -> None:
        """Keep nothing."""


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress: handlers of events have none."""

    def fetch(self, **_: object) -> Any:  # noqa: ANN401 - kopf's type
        """Nothing."""
        return None

    def store(self, **_: object) -> None:
        """Keep nothing."""

    def purge(self, **_: object) -> None:
        """Keep nothing."""

    def touch(self, **_: object) -> None:
        """Keep nothing."""

    def clear(self, *, essence: Any) -> Any:  # noqa: ANN401 - kopf's type
        """The same."""
        return essence


def settings(kinds: Sequence[WatchedKind]) -> kopf.OperatorSettings:
    """Settings under which watches are bounded on both sides and nothing is written."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.peering.standalone = True
    # In both modes: which kinds there are is checked at the start, and a CRD that vanishes ends the process.
    made.scanning.disabled = True
    made.watching.server_timeout = SERVER_SECONDS
    made.watching.client_timeout = CLIENT_SECONDS
    made.watching.connect_timeout = CONNECT_SECONDS
    made.watching.inactivity_timeout = INACTIVE_SECONDS
    made.watching.reconnect_backoff = 1.0
    made.networking.request_timeout = REQUEST_SECONDS
    made.networking.connect_timeout = CONNECT_SECONDS
    made.networking.error_backoffs = RETRIES
    made.process.ultimate_exiting_timeout = None
    made.persistence.diffbase_storage = NoDiffBase()
    made.persistence.progress_storage = NoProgress()
    for kind in kinds:
        if kind.selector:
            made.watching.label_selectors[_group(kind), kind.plural] = kind.selector
    return made


def registry(kinds: Sequence[WatchedKind], store: Store, heard: Heard) -> kopf.OperatorRegistry:
    """Handlers that put every event into the store."""
    made = kopf.OperatorRegistry()
    kopf.on.login(registry=made, id="login")(_log_in)
    for kind in kinds:
        group, _, version = kind.api_version.rpartition("/")
        kopf.on.event(group, version, kind.plural, registry=made, id=kind.plural)(_handler(kind.kind, store, heard))
    return made


async def watch(store: Store, heard: Heard, *, namespace: str | None, ready: asyncio.Event) -> None:
    """Follow the API until cancelled; returns or raises when kopf cannot go on.

    Args:
        store: Where objects go.
        heard: Told the kind of every event.
        namespace: The one namespace to watch, or `None` for all.
        ready: Set once it runs. By then kopf has taken the process's signals; whoever needs them takes them back.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    scope: Mapping[str, Any] = {"namespaces": [namespace]} if namespace else {"clusterwide": True}
    # Unnamed it would name itself after the user, and a pod's user often has no name.
    scope = {**scope, "identity": "cachescope-operator"}
    kinds = streamed(namespace)
    handlers, bounds = registry(kinds, store, heard), settings(kinds)
    await kopf.operator(registry=handlers, settings=bounds, standalone=True, ready_flag=ready, **scope)


def _group(kind: WatchedKind) -> str:
    return kind.api_version.rpartition("/")[0]


def _handler(kind: str, store: Store, heard: Heard) -> Callable[..., Any]:
    async def hear(event: Mapping[str, Any], **_: object) -> None:
        heard(kind)
        if event["type"] == "DELETED":
            store.remove(kind, event["object"])
        else:
            store.put(kind, event["object"])

    return hear


def _log_in(**options: Any) -> Any:  # noqa: ANN401 - kopf's type
    return kopf.login_with_service_account(**options) or kopf.login_with_kubeconfig(**options)
