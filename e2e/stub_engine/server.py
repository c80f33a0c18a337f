"""The process: vLLM's command line as far as the stub knows it, the engine, and uvicorn around the application.

Options that only matter to a real engine are accepted and ignored, as there are hundreds of them.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import uvicorn

from e2e.stub_engine import wall_clock
from e2e.stub_engine.application import App, Application
from e2e.stub_engine.core import EngineCore
from e2e.stub_engine.faults import SLOW_START, Faults, begun_before, from_environment
from e2e.stub_engine.leaks import Leak, Leaks

DEV_MODE = "VLLM_SERVER_DEV_MODE"


def arguments(args: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--uds")
    parser.add_argument("--middleware", action="append", default=[])
    parser.add_argument("--shutdown-timeout", type=int, default=0)
    parser.add_argument("--max-num-seqs", type=int, default=4)
    parser.add_argument("--token-seconds", type=float, default=0.002, help="seconds for each token; the stub's own")
    parser.add_argument("--clock-offset", type=float, default=0.0, help="seconds by which its wall clock is off; the stub's own")
    parser.add_argument("--leak", action="append", default=[], choices=list(Leak), help="what it does wrong; the stub's own")
    return parser.parse_known_args(args)[0]


def application(options: argparse.Namespace, core: EngineCore, environ: Mapping[str, str]) -> Application:
    """The application with its middleware.

    Raises:
        ValueError: A middleware is no class.
    """
    models = tuple(options.served_model_name or [options.model])
    names = frozenset(map(Leak, options.leak))
    # Nobody else's folder gets a mark.
    leaks = Leaks(names, restarted=Leak.AFTER_RESTART in names and begun_before(environ))
    app = Application(core, models=models, dev_mode=environ.get(DEV_MODE) == "1", leaks=leaks)
    for name in options.middleware:
        app.add_middleware(_middleware(name))
    return app


def _middleware(name: str) -> Callable[[App], App]:
    """A class by its path. vLLM takes coroutine functions too, as Starlette does; a guard is none."""
    module, attribute = name.rsplit(".", 1)
    found = getattr(importlib.import_module(module), attribute)
    if not inspect.isclass(found):
        raise ValueError(f"invalid middleware {name}; the stub takes classes only")
    return cast("Callable[[App], App]", found)


async def serve(options: argparse.Namespace, faults: Faults, environ: Mapping[str, str]) -> None:
    """Serve until the process is told to end."""
    await asyncio.sleep(faults.seconds(SLOW_START))
    core = EngineCore(max_num_seqs=options.max_num_seqs, token_seconds=options.token_seconds, faults=faults)
    loop = asyncio.ensure_future(core.run())
    config = uvicorn.Config(
        application(options, core, environ),
        host=options.host,
        port=options.port,
        uds=options.uds,
        access_log=False,
        timeout_graceful_shutdown=options.shutdown_timeout,
    )
    serving = asyncio.ensure_future(uvicorn.Server(config).serve())
    # Without its engine the server would only hang; vLLM ends too.
    await asyncio.wait({loop, serving}, return_when=asyncio.FIRST_COMPLETED)
    if loop.done():
        loop.result()
    await serving
    loop.cancel()


def main() -> None:
    """What `python3 -m vllm.entrypoints.openai.api_server` does."""
    options = arguments(sys.argv[1:])
    if options.clock_offset:
        wall_clock.moved(setattr, options.clock_offset)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(options, from_environment(os.environ), os.environ))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The event loop that vLLM uses: what a guard does with transports is then tried on the same ones."""
    uvloop = importlib.import_module("uvloop")
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)
