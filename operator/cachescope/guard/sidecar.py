"""The guard as a sidecar, for engines that serve no ASGI or whose image cannot take it: `python -m cachescope.guard.sidecar`.

It is the same middleware in front of a proxy. The engine listens on 127.0.0.1 or on a Unix socket, and nowhere else. Beside the
guard's own variables (`settings.py`) there are:

| variable | what | default |
| --- | --- | --- |
| `CACHESCOPE_UPSTREAM` | where the engine listens: `http://127.0.0.1:<port>` or `unix:<path>` | required |
| `CACHESCOPE_ENGINE` | the engine's name and version, or its image with digest | required |
| `CACHESCOPE_ENGINE_ARGS` | the engine's arguments, a JSON list of texts | required |
| `CACHESCOPE_PORT` | where the sidecar listens | 8000 |

A sidecar does not see the engine's process: what it publishes as the engine's digests is what it was told of engine and arguments,
and the files of the model, of its adapters, and of what the arguments name beside them, that both containers mount.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cachescope.core.digests import digest
from cachescope.core.errors import SpecError
from cachescope.core.record import EngineDigests, Loaded
from cachescope.guard import logs
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.delivery import Delivery, DroppableProtocol
from cachescope.guard.engine_digests import adapter_digests, configurations, model_files, separating, tokenizer_beside
from cachescope.guard.process import GuardProcess
from cachescope.guard.proxy import Proxy, Upstream, read_upstream
from cachescope.guard.start import Misconfigured, make_process
from cachescope.guard.wire import App, Receive, Scope, Send

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engine:
    """What a sidecar is told of its engine.

    Attributes:
        upstream: Where it listens.
        name: Its name and version, or its image with digest.
        args: Its arguments.
    """

    upstream: Upstream
    name: str
    args: tuple[str, ...]


def read_engine(environ: Mapping[str, str]) -> Engine:
    """Read what a sidecar is told of its engine.

    Raises:
        SpecError: A variable is missing or cannot be read; the message names it.
    """
    name = environ.get("CACHESCOPE_ENGINE", "")
    if not name:
        raise SpecError("CACHESCOPE_ENGINE is not set; name the engine and its version, or its image with digest")
    return Engine(read_upstream(environ.get("CACHESCOPE_UPSTREAM", "")), name, _arguments(environ))


def declared_digests(model: Path, engine: Engine) -> Loaded:
    """Digest what the engine was told to load: any other file separates, be it of weights or tokenizer.

    Raises:
        OSError: A file cannot be read.
        SpecError: There is no file, or a part of the model is elsewhere, or the engine drops adapters.
    """
    contents = [[name, content] for name, content in sorted(model_files(model))]
    if not contents:
        raise SpecError(f"{model} holds no file; mount the model into the sidecar, read-only, where the engine has it")
    beside = [[name, content] for name, content in sorted(configurations(engine.args).items())]
    runtime = digest({"engine": engine.name, "arguments": separating(engine.args)})
    loaded = EngineDigests(digest([*contents, *beside]), digest([*contents, *tokenizer_beside(engine.args)]), runtime)
    return Loaded(loaded, adapter_digests(engine.args))


def make_app(environ: Mapping[str, str]) -> App:
    """The sidecar's application; one that was set up wrongly refuses everything and says why."""
    try:
        engine = read_engine(environ)
    except SpecError as error:
        _LOG.error("the sidecar is misconfigured and refuses everything", extra={"problem": str(error)})
        return Delivery(Guard(Proxy(Upstream()), Running(Misconfigured(str(error)))))
    process = make_process(environ, engine.args)
    if isinstance(process, GuardProcess):
        model = process.settings.model_path
        process.digests = lambda: declared_digests(model, engine)
    return Delivery(Guard(Proxy(engine.upstream), Running(process)))


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The sidecar of this process, made from its environment with the first event."""
    await _app_of(os.getpid())(scope, receive, send)


def server_protocol() -> type[DroppableProtocol]:
    """Uvicorn's protocol, so that answers can be dropped."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: PLC0415 - the guard inside an engine needs no server

    return type("SidecarProtocol", (DroppableProtocol, AutoHTTPProtocol), {})


def main() -> None:
    """Serve until SIGTERM."""
    import uvicorn  # noqa: PLC0415 - as above

    uvicorn.run(
        app,
        host="0.0.0.0",  # noqa: S104 - the gateway is another pod
        port=int(os.environ.get("CACHESCOPE_PORT") or 8000),
        http=server_protocol(),
        ws="none",
        workers=1,  # used permits are remembered by one process
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,  # the engine's own headers pass
        date_header=False,
    )


@lru_cache(maxsize=1)
def _app_of(_pid: int) -> App:
    logs.install()
    return make_app(dict(os.environ))


def _arguments(environ: Mapping[str, str]) -> tuple[str, ...]:
    try:
        found = json.loads(environ.get("CACHESCOPE_ENGINE_ARGS", ""))
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(argument, str) for argument in found):
        raise SpecError("CACHESCOPE_ENGINE_ARGS is no JSON list of texts; give the engine's arguments, [] if there are none")
    return tuple(found)


if __name__ == "__main__":
    main()
