"""`kubectl cachescope`: what people ask of an installation, as a plugin of kubectl."""

from __future__ import annotations

import typer

from cachescope.cli import keys
from cachescope.cli.doctor.command import doctor
from cachescope.cli.explain import explain
from cachescope.cli.main import run_app
from cachescope.cli.restored import restored
from cachescope.cli.revoke import readmit, revoke
from cachescope.cli.rollback import rollback
from cachescope.cli.status import status

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="CacheScope: pools, the installation itself, and what is done in an incident.",
)
app.command("status")(status)
app.command("doctor")(doctor)
app.command("explain")(explain)
app.command("rollback")(rollback)
app.add_typer(revoke, name="revoke")
app.add_typer(readmit, name="readmit")
app.command("restored")(restored)
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Run `kubectl cachescope`."""
    run_app(app, "kubectl cachescope")
