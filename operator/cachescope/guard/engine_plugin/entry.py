"""The entry point: vLLM calls `register` in each of its processes (`vllm.general_plugins`), before it makes an engine core.

An injected folder needs no installation for that: vLLM finds plugins by `importlib.metadata`, which reads each `.dist-info` on
`PYTHONPATH`. Only `VLLM_PLUGINS` that names it, or that is not set, lets it load.

Rules:

- a process whose vLLM is not the one that was read is left as it is, and says why (`reports`);
- what is put around vLLM's own functions does nothing until an engine core was judged (`suitability`) and has hashed known blocks
  (`internals`): a core that fails either is left as it is, and says why;
- registering twice changes nothing: vLLM may call it several times, and processes are forked from one that was registered.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any

from cachescope.core.approvals import Expected
from cachescope.core.errors import CacheScopeError
from cachescope.core.log_lines import fault_of
from cachescope.guard import logs
from cachescope.guard.engine_digests import engine_version, tokenizer_digest
from cachescope.guard.engine_plugin.engine import OWNER, Engine, get_computed_blocks
from cachescope.guard.engine_plugin.internals import MANAGER, POOL, SCHEDULER, UTILS, hashing_of, surprises, unknown
from cachescope.guard.engine_plugin.reports import Report, boot_ms, keep_reporting
from cachescope.guard.engine_plugin.settings import read_plugin_settings, state_folder
from cachescope.guard.engine_plugin.suitability import unsuitable
from cachescope.guard.engine_plugin.tables import Tables

_LOG = logging.getLogger(__name__)
CORE = "vllm.v1.engine.core"
_HASHER = "get_request_block_hasher"
Wrapped = Callable[..., Any]


def register() -> None:
    """Put the plugin around this process's vLLM, or say why not. It never fails: vLLM would end with it."""
    logs.install()
    try:
        _register(import_module(UTILS))
    except Exception as error:
        _LOG.error("the engine plugin cannot load", extra=fault_of(error))
        refuse(_problem_of(error), os.environ)


def refuse(problem: str, environ: Mapping[str, str]) -> None:
    """Leave this process as it is, and say why as long as it lives."""
    keep_reporting(state_folder(environ), lambda: Report(pid=os.getpid(), at_ms=boot_ms(), problem=problem))


def _register(utils: Any) -> None:  # noqa: ANN401 - a module of vLLM
    if hasattr(getattr(utils, _HASHER), OWNER):
        return
    problems = unknown(engine_version().split(" ", 1)[1])
    if problems:
        refuse("; ".join(problems), os.environ)
        return
    plugin = Plugin(os.environ)
    _around(import_module(SCHEDULER).Scheduler, "__init__", plugin.judge)
    _around(import_module(MANAGER).KVCacheManager, "get_computed_blocks", get_computed_blocks)
    _around(import_module(POOL).BlockPool, "cache_full_blocks", cache_full_blocks)
    _around(utils, _HASHER, plugin.hasher)
    setattr(import_module(CORE), _HASHER, getattr(utils, _HASHER))


class Plugin:
    """What waits in a process for its engine core: vLLM makes the core's scheduler first, then its hasher, if it caches at all.

    Args:
        environ: The engine's environment.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._scheduler: Any = None

    def judge(self, original: Wrapped, scheduler: Any, *args: Any, **named: Any) -> None:  # noqa: ANN401 - vLLM's own
        """`Scheduler.__init__`."""
        original(scheduler, *args, **named)
        self._scheduler = scheduler if self._passes(lambda: unsuitable(scheduler)) else None

    def hasher(self, original: Wrapped, hash_block_size: int, caching_hash_fn: Callable[[Any], bytes]) -> Any:  # noqa: ANN401
        """`get_request_block_hasher`: the plugin's own where it may, else the engine's."""
        scheduler, self._scheduler = self._scheduler, None
        engines: list[Engine] = []

        def tried() -> tuple[str, ...]:
            if not (problems := tuple(surprises(original, caching_hash_fn))):
                engines.append(self._engine(scheduler, hash_block_size, caching_hash_fn))
            return problems

        if scheduler is not None and self._passes(tried):
            return engines[0].hasher
        return original(hash_block_size, caching_hash_fn)

    def _passes(self, asked: Callable[[], tuple[str, ...]]) -> bool:
        """Whether there are no problems; those that there are, and whatever else fails, are said."""
        try:
            problems = asked()
        except Exception as error:
            _LOG.error("the engine cannot be judged, and shares no segments", extra=fault_of(error))
            problems = (_problem_of(error),)
        if problems:
            refuse("; ".join(problems), self._environ)
        return not problems

    def _engine(self, scheduler: Any, block_size: int, hash_function: Callable[[Any], bytes]) -> Engine:  # noqa: ANN401
        engine_keys = import_module(UTILS).generate_block_hash_extra_keys
        engine = Engine(self._tables(), block_size=block_size, hashing=hashing_of(hash_function), engine_keys=engine_keys)
        for owned in (scheduler.kv_cache_manager, scheduler.kv_cache_manager.block_pool):
            setattr(owned, OWNER, engine)
        engine.report()
        keep_reporting(state_folder(self._environ), engine.report)
        return engine

    def _tables(self) -> Tables:
        settings = read_plugin_settings(self._environ)

        def expected() -> Expected:
            return Expected(settings.pool_uid, tokenizer_digest(settings.model_path, sys.argv[1:]))

        return Tables(settings.approvals_file, settings.keys_folder, expected)


def cache_full_blocks(  # noqa: PLR0917 - vLLM's own
    original: Wrapped,
    pool: Any,  # noqa: ANN401
    request: Any,  # noqa: ANN401
    blocks: Any,  # noqa: ANN401
    num_cached_blocks: int,
    num_full_blocks: int,
    *args: Any,  # noqa: ANN401
    **named: Any,  # noqa: ANN401
) -> None:
    """`BlockPool.cache_full_blocks`, which also keeps identities."""
    original(pool, request, blocks, num_cached_blocks, num_full_blocks, *args, **named)
    engine: Engine | None = getattr(pool, OWNER, None)
    if engine is not None and num_cached_blocks < num_full_blocks:
        engine.blocks.cached(request, blocks, num_cached_blocks, num_full_blocks)


def _problem_of(error: Exception) -> str:
    """Of an error of ours its message, of any other its type: a message of the engine's could quote anything."""
    return str(error) if isinstance(error, CacheScopeError) else type(error).__name__


def _around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:  # noqa: ANN401 - a class or module of vLLM
    """Put a function around another, which it gets first."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        return wrapper(original, *args, **named)

    setattr(wrapped, OWNER, True)
    setattr(owner, name, wrapped)
