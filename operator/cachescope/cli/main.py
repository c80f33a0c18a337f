"""`cachescope`: runs the parts, and makes and shows what people need."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cachescope import __version__, logs
from cachescope.cli import keys, output
from cachescope.cli.conformance import conformance
from cachescope.cli.doctor.command import doctor
from cachescope.cli.explain import explain
from cachescope.cli.restored import restored
from cachescope.cli.revoke import readmit, revoke
from cachescope.cli.rollback import rollback
from cachescope.cli.status import status
from cachescope.core.errors import CacheScopeError, SpecError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Prefix-cache isolation for LLM engines."
)
app.add_typer(keys.app, name="keys")
app.command("status")(status)
app.command("doctor")(doctor)
app.command("explain")(explain)
app.command("rollback")(rollback)
app.add_typer(revoke, name="revoke")
app.add_typer(readmit, name="readmit")
app.command("restored")(restored)
app.command("conformance")(conformance)

ConfigFolder = Annotated[Path, typer.Option("--config", help="Folder of the mounted configuration.")]
Socket = Annotated[str, typer.Option("--socket", help="Unix socket between Envoy and the processor.")]

Scope = Annotated[Literal["Namespaced", "Cluster"], typer.Option(envvar="CACHESCOPE_SCOPE", help="Where pools and tenants are.")]
Monitoring = Annotated[
    str, typer.Option("--monitoring-namespace", envvar="CACHESCOPE_MONITORING_NAMESPACE", help="May scrape metrics.")
]
ApiPorts = Annotated[str, typer.Option("--api-server-ports", envvar="CACHESCOPE_API_SERVER_PORTS", help="Of these, with commas.")]


@app.command()
def operator(  # noqa: PLR0913 - one for each variable that the chart sets
    *,
    config: ConfigFolder = Path("/etc/cachescope"),
    port: Annotated[int, typer.Option(help="Health and metrics.")] = 9090,
    namespace: Annotated[str, typer.Option(envvar="CACHESCOPE_NAMESPACE", help="Its own.")] = "",
    scope: Scope = "Namespaced",
    guard_image: Annotated[str, typer.Option(envvar="CACHESCOPE_GUARD_IMAGE", help="Brings the guard into engine pods.")] = "",
    guard_version: Annotated[
        str, typer.Option(envvar="CACHESCOPE_GUARD_VERSION", help="CacheScope's in that image.")
    ] = __version__,
    monitoring: Monitoring = "monitoring",
    api_servers: Annotated[str, typer.Option(envvar="CACHESCOPE_API_SERVERS", help="CIDRs, with commas.")] = "",
    api_ports: ApiPorts = "443,6443",
    user: Annotated[int | None, typer.Option("--engine-user", envvar="CACHESCOPE_ENGINE_USER", help="UID of engine pods.")] = None,
    gateway_url: Annotated[str, typer.Option(envvar="CACHESCOPE_GATEWAY_URL", help="Where gateways listen for the probe.")] = "",
    identity: Annotated[str, typer.Option(envvar="CACHESCOPE_POD_NAME", help="Name of this process in the Lease.")] = "",
) -> None:
    """Run the operator."""
    from cachescope.controller.main import run  # noqa: PLC0415 - the other commands do not need its libraries
    from cachescope.controller.options import Options  # noqa: PLC0415 - the same

    logs.configure(os.environ.get("CACHESCOPE_LOG_LEVEL", "INFO"))
    options = Options(
        namespace,
        guard_image,
        scope=scope,
        settings=config / "config" / "settings.yaml",
        monitoring_namespace=monitoring,
        api_servers=_parts(api_servers),
        api_server_ports=tuple(map(_port, _parts(api_ports))),
        port=port,
        identity=identity,
        guard_version=guard_version,
        run_as_user=user,
        gateway=gateway_url,
    )
    run(options)


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _port(text: str) -> int:
    if not text.isdecimal():
        raise SpecError(f"{text!r} is no port; write numbers with commas between them, such as 443,6443")
    return int(text)


@app.command()
def gateway(config: ConfigFolder, socket: Socket, port: Annotated[int, typer.Option(help="Health and metrics.")] = 9090) -> None:
    """Run the gateway's processor beside Envoy."""
    import uvloop  # noqa: PLC0415 - the other commands do not need its libraries

    from cachescope.gateway.main import Options, run  # noqa: PLC0415 - the same

    logs.configure(os.environ.get("CACHESCOPE_LOG_LEVEL", "INFO"))
    uvloop.run(run(Options(config, socket, port, os.environ.get("CACHESCOPE_NAMESPACE", "default"))))


@app.command()
def envoy(
    config: ConfigFolder,
    socket: Socket,
    port: Annotated[int, typer.Option(help="For clients.")] = 8080,
    probe_port: Annotated[int, typer.Option(help="For the operator's isolation probe; 0 for none.")] = 0,
) -> None:
    """Run Envoy with the gateway's configuration; this process becomes Envoy."""
    from cachescope.gateway.start_envoy import start  # noqa: PLC0415 - the other commands do not need its libraries

    start(config, socket, port, probe_port)


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


@app.command("self-test")
def run_self_test(gateway: Annotated[str, typer.Option(help="URL of the gateway's Service.")]) -> None:
    """Test an installation from inside the cluster, as `helm test` does."""
    from cachescope.cli.self_test import self_test  # noqa: PLC0415 - the other commands have no use for it

    for line in self_test(gateway):
        output.text(line)


def run_app(chosen: typer.Typer, name: str) -> None:
    """Run a command; an error that was raised on purpose is one line that says what to do."""
    try:
        chosen(prog_name=name)
    except CacheScopeError as error:
        output.aside(f"{name}: {error}")
        sys.exit(1)


def main() -> None:
    """Run `cachescope`."""
    run_app(app, "cachescope")
