"""`cachescope`: runs the parts, and makes what people need to declare."""

from __future__ import annotations

import json
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cachescope import logs
from cachescope.cli.render import render
from cachescope.core.epochs import Floors, epoch
from cachescope.core.errors import CacheScopeError
from cachescope.core.heads import Head
from cachescope.gateway.identity.api_keys import make_key
from cachescope.manifests.configuration import write_head
from cachescope.manifests.parts import Site

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Prefix-cache isolation for LLM engines.")
keys_app = typer.Typer(no_args_is_help=True, help="Make keys.")
app.add_typer(keys_app, name="keys")

ConfigFolder = Annotated[Path, typer.Option("--config", help="Folder of the mounted configuration.")]
Socket = Annotated[str, typer.Option("--socket", help="Unix socket between Envoy and the processor.")]


@app.command()
def gateway(config: ConfigFolder, socket: Socket, port: Annotated[int, typer.Option(help="Health and metrics.")] = 9090) -> None:
    """Run the gateway's processor beside Envoy."""
    import uvloop  # noqa: PLC0415 - the other commands do not need its libraries

    from cachescope.gateway.main import Options, run  # noqa: PLC0415 - the same

    logs.configure(os.environ.get("CACHESCOPE_LOG_LEVEL", "INFO"))
    uvloop.run(run(Options(config, socket, port, os.environ.get("CACHESCOPE_NAMESPACE", "default"))))


@app.command()
def envoy(config: ConfigFolder, socket: Socket, port: Annotated[int, typer.Option(help="For clients.")] = 8080) -> None:
    """Run Envoy with the gateway's configuration; this process becomes Envoy."""
    from cachescope.gateway.start_envoy import start  # noqa: PLC0415 - the other commands do not need its libraries

    start(config, socket, port)


@app.command("drain-envoy")
def drain_envoy(limit: Annotated[float, typer.Option(help="Seconds for the requests under way.")] = 120) -> None:
    """Let Envoy's requests end, as its container's preStop hook."""
    from cachescope.gateway.drain import HttpAdmin, Waiting, drain  # noqa: PLC0415 - the other commands have no use for it

    drain(HttpAdmin(), Waiting(limit))


@app.command("outlive-envoy")
def outlive_envoy(limit: Annotated[float, typer.Option(help="Seconds after which it stops waiting.")] = 130) -> None:
    """Wait until Envoy is gone, as the processor container's preStop hook."""
    from cachescope.gateway.drain import HttpAdmin, Waiting, outlive  # noqa: PLC0415 - the same

    outlive(HttpAdmin(), Waiting(limit))


@app.command("render")
def render_manifests(
    *,
    resources: Annotated[Path, typer.Option(help="YAML with ServingPools, Tenants and CacheScopes.")],
    settings: Annotated[Path, typer.Option(help="YAML with the installation's settings.")],
    keys: Annotated[Path, typer.Option(help="Folder of the root keys (`cachescope keys root`).")],
    head: Annotated[Path, typer.Option(help="JSON with the epochs that stand (`cachescope keys head`).")],
    gateway_image: Annotated[str, typer.Option(help="Image of the gateway.")],
    guard_image: Annotated[str, typer.Option(help="Image of the guard's init container.")],
    namespace: Annotated[str, typer.Option(help="Namespace of gateway and pools; the platform's own.")],
) -> None:
    """Print the manifests of an installation, for `kubectl apply -f -`."""
    site = Site(namespace, gateway_image, guard_image)
    typer.echo(render(site, resources=resources, settings=settings, keys=keys, head=head), nl=False)


@keys_app.command("head")
def create_head(path: Annotated[Path, typer.Argument(help="File for the first head; an existing one is kept.")]) -> None:
    """Make the first head: a new lineage with every epoch at 1."""
    if not path.exists():
        path.write_text(write_head(Head(secrets.token_hex(16), 1, Floors(base=epoch(1)))))
        typer.echo(str(path))


@keys_app.command("create")
def create_key(
    secret: Annotated[str, typer.Option(help="Name of the Secret to write.")],
    principal: Annotated[str, typer.Option(help="Stable name of whom the key speaks for; it outlives the key.")],
    namespace: Annotated[str, typer.Option(help="Namespace of the gateway.")] = "default",
) -> None:
    """Make an API key: the key goes to standard error once, the Secret with its hash to standard output."""
    made = make_key(secrets.token_bytes(32))
    entry = json.dumps({"hash": made.hash, "principal": principal})
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret, "namespace": namespace},
        "stringData": {made.key_id: entry},
    }
    typer.echo(yaml.safe_dump(manifest, sort_keys=False), nl=False)
    typer.echo(f"The key, shown this once: {made.token}", err=True)


@keys_app.command("root")
def create_root(folder: Annotated[Path, typer.Argument(help="Folder for the root keys; existing ones are kept.")]) -> None:
    """Make the installation's root keys; add another one to rotate."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("targets", datetime.now(UTC).strftime("k%Y%m%d%H%M%S")):
        path = folder / name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(32))
            typer.echo(str(path))


def main() -> None:
    """Run the command; an error that was raised on purpose is one line that says what to do."""
    try:
        app()
    except CacheScopeError as error:
        typer.echo(f"cachescope: {error}", err=True)
        sys.exit(1)
