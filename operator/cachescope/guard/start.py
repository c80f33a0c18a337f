"""The guard's state as a process makes it: from its environment and the engine's arguments, once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import cachescope
from cachescope.core.caches import Caching
from cachescope.core.errors import SpecError
from cachescope.core.front_doors import forbidden
from cachescope.guard import logs
from cachescope.guard.binding import Binding
from cachescope.guard.engine_digests import engine_digests
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.lease_holder import LeaseHolder
from cachescope.guard.process import GuardProcess
from cachescope.guard.settings import Settings, read_settings
from cachescope.leases.api import LeaseApi
from cachescope.leases.clock import process_clock

_LOG = logging.getLogger(__name__)
_MOST_SECONDS = 10.0


class Misconfigured:
    """A guard that cannot work as it was set up, and refuses everything."""

    def __init__(self, problem: str) -> None:
        self.problem = problem


def make_process(environ: Mapping[str, str], args: Sequence[str]) -> GuardProcess | Misconfigured:
    """Make the state of a guard from its environment and the engine's arguments."""
    python_path = str(Path(cachescope.__file__).parent.parent)
    problems = list(forbidden(args, environ, python_path=python_path))
    try:
        settings = read_settings(environ)
        binding = Binding(settings.state_folder) if settings.state_folder and settings.caching is Caching.ONE_CACHE else None
    except SpecError as error:
        problems.append(str(error))
    if problems:
        _LOG.error("the guard is misconfigured and refuses everything", extra={"problem": "; ".join(problems)})
        return Misconfigured("; ".join(problems))
    process = _with_lease(settings, environ, args)
    process.binding = binding
    return process


def shared_process() -> GuardProcess | Misconfigured:
    """The one state of this process, however often the middleware is constructed; a forked child makes its own."""
    return _process_of(os.getpid())


@lru_cache(maxsize=1)
def _process_of(_pid: int) -> GuardProcess | Misconfigured:
    logs.install()
    return make_process(dict(os.environ), tuple(sys.argv[1:]))


def _with_lease(settings: Settings, environ: Mapping[str, str], args: Sequence[str]) -> GuardProcess:
    """A guard whose right is kept by a lease in the API."""
    clock = process_clock()
    # Two attempts, two looks and a read of the ledgers still fit into one lease.
    seconds = min(_MOST_SECONDS, settings.lease_ms / 6000)
    api = LeaseApi(settings.api_url, settings.api_folder, namespace=settings.namespace, seconds=seconds, clock=clock)
    heads = LeaseHeads(api.ledger, clock, pool=settings.pool)
    process = GuardProcess(
        settings,
        source=heads,
        keys=KeyFolder(settings.keys_folder, clock),
        clock=clock,
        digests=lambda: engine_digests(settings.model_path, args, environ),
    )
    process.keeper = LeaseHolder(process, heads, store=api)
    return process
