"""Somebody who edits an object without pause, over one connection: so often that a write between a read and a write is likely."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import Iterator

from cachescope.core.errors import ClusterError
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Rest
from e2e.stack.paths import KUBECONFIG

PAUSE_SECONDS = 0.005


@contextlib.contextmanager
def edited(kind: str, name: str, label: str, namespace: str) -> Iterator[None]:
    """A label of an object that changes all the time in the block; take it away afterwards."""
    os.environ["KUBECONFIG"] = str(KUBECONFIG)
    ending, path = threading.Event(), f"{collection_of(kind, namespace)}/{name}"
    thread = threading.Thread(target=lambda: asyncio.run(_edit(path, label, ending)), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(30)


async def _edit(path: str, label: str, ending: threading.Event) -> None:
    async with Rest() as rest:
        for number in itertools.count():
            if ending.is_set():
                return
            with contextlib.suppress(ClusterError):  # the next edit comes soon
                await rest.merge(path, {"metadata": {"labels": {label: str(number)}}})
            await asyncio.sleep(PAUSE_SECONDS)
