"""A gateway whose watch of PublicSources stalls: it looks alive, and shows nothing any more.

- `silent`: lists still show what there is. The head names policy that the watch never showed, so it is listed;
- `deaf`: nothing shows it, lists included. The gateway knows that it does not know, and has no right to issue anything;
- `believing`: `silent`, and it takes what it has for what the head names: the control, which shares what was withdrawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cachescope.gateway.policy_history import PolicyLoading
from cachescope.kube.rest import Document
from cachescope.kube.watched import Watched

Patch = Callable[[object, str, object], None]
"""Puts something in the place of an attribute; `setattr`, where it need not be undone."""

KIND = "publicsources"
_TAKE, _LIST = Watched._take, Watched._list


def silent(patch: Patch) -> None:
    """Events are lost, and the watch goes on as if there had been none."""
    patch(Watched, "_take", _lose)


def deaf(patch: Patch) -> None:
    """Events are lost, and no list but the first is ever answered."""
    silent(patch)
    patch(Watched, "_list", _list_once)


def believing(patch: Patch) -> None:
    """Events are lost, and nobody asks whether policy is the one that the head names."""
    silent(patch)
    patch(PolicyLoading, "_loaded", lambda *_: True)


def _lose(watched: Watched[Any], kind: str, item: Document) -> None:
    if not watched._path.endswith(KIND):
        _TAKE(watched, kind, item)
        return
    watched._heard()
    watched._from = item["metadata"]["resourceVersion"]


async def _list_once(watched: Watched[Any]) -> None:
    if watched._path.endswith(KIND) and watched.age() is not None:
        await asyncio.Event().wait()
    await _LIST(watched)
