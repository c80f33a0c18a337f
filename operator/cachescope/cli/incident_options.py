"""Options that the commands of an incident share."""

from __future__ import annotations

from typing import Annotated

import typer

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; by default that of the current context.")]
Reason = Annotated[str, typer.Option(help="Why, for people: it is shown in Events and in the status.")]
IncidentId = Annotated[
    str | None,
    typer.Option("--incident", help="Id of the incident. Each id counts once; without it, a new one is made and printed."),
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until nothing older is used, and show how far it is.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait. What was declared goes on all the same.")]
DEFAULT_TIMEOUT = 900.0
"""Above what a fence takes with the default settings when a gateway was cut off: lease, margin and `maxStaleSeconds`."""
