"""`kubectl cachescope`: what people ask of an installation, as a plugin of kubectl."""

from __future__ import annotations

import typer

from cachescope.cli import keys
from cachescope.cli.doctor.command import doctor
from cachescope.cli.main import run_app
from cachescope.cli.status import status

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at CacheScope: pools, and the installation itself.",
)
app.command("status")(status)
app.command("doctor")(doctor)
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Run `kubectl cachescope`."""
    run_app(app, "kubectl cachescope")
