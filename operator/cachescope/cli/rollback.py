"""`rollback`: everything that a pool has cached becomes unreachable, once for each incident."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cachescope.cli import output
from cachescope.cli.contexts import current_namespace
from cachescope.cli.declaring import carry_out
from cachescope.cli.incident_options import DEFAULT_TIMEOUT, IncidentId, Namespace, Reason, Timeout, Wait
from cachescope.cli.incidents import cache_epoch, new_id


def rollback(  # noqa: PLR0913 - one for each option
    pool: Annotated[str, typer.Argument(help="Name of the ServingPool.")],
    *,
    reason: Reason,
    incident: IncidentId = None,
    bypass: Annotated[bool, typer.Option("--bypass", help="Reuse nothing at all until people resume.")] = False,
    stop_public: Annotated[bool, typer.Option("--stop-public", help="Share nothing publicly until people resume.")] = False,
    drain: Annotated[
        int | None, typer.Option(min=1, max=600, help="Seconds for answers under way. Without it they are cut.")
    ] = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Make everything that a pool has cached unreachable, and say when that is true everywhere.

    Ends with 0 when it is, or was not waited for, or once a restore that nobody confirmed refuses everything; with 1 when it was
    refused or is held; with 3 when it is not yet: it goes on by itself.
    """
    incident = incident or new_id(datetime.now(UTC))
    declared: dict[str, Any] = {"id": incident, "reason": reason}
    declared |= {"bypassReuse": True} if bypass else {}
    declared |= {"stopPublicSharing": True} if stop_public else {}
    declared |= {"inFlight": {"mode": "Drain", "drainSeconds": drain}} if drain else {}
    target = {"kind": "ServingPool", "name": pool}
    wanted = cache_epoch(namespace or current_namespace(), {"target": target, "incident": declared})
    if bypass or stop_public:
        output.aside(f"what it switches off stays off until spec.sharing.resumeAfter of the pool is {incident}")
    carry_out("rollback", wanted, wait=wait, timeout=timeout)
