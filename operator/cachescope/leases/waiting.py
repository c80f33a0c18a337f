"""Waiting for something with a limit, and bearing a cancellation meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def within(work: Coroutine[Any, Any, _T], seconds: float | None) -> asyncio.Task[_T]:
    """Wait for that many seconds, or without a limit, and end what is not done by then.

    Not `asyncio.wait_for`: before Python 3.12 it loses a cancellation that comes together with what it waits for.

    Returns:
        What became of it; not done if it was ended.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    return task
