"""`doctor`: is this installation sound, and what is to be done."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from cachescope.cli import output
from cachescope.cli.contexts import current_namespace, need_cluster
from cachescope.cli.doctor.examination import examine
from cachescope.cli.doctor.findings import exit_code
from cachescope.cli.doctor.observed import Observed


def doctor(
    *,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the installation.")] = None,
    trusted: Annotated[
        list[str] | None,
        typer.Option(help="Who belongs to the platform: User:name, Group:name or ServiceAccount:namespace/name."),
    ] = None,
    form: Annotated[str, typer.Option("--output", "-o", help="`table` or `json`.")] = "table",
) -> None:
    """Check an installation; each finding comes with its remedy.

    Ends with 1 when a check failed, with 2 when none did but one could not look, else with 0.
    """
    need_cluster()
    findings = examine(asyncio.run(_observe(namespace or current_namespace())), trusted or ())
    if form == "json":
        output.document([asdict(finding) for finding in findings])
    else:
        rows = [[item.verdict.value.upper(), item.check, _sentence(item.message, item.remedy)] for item in findings]
        output.table(("VERDICT", "CHECK", "FINDING"), rows)
    raise typer.Exit(exit_code(findings))


def _sentence(message: str, remedy: str) -> str:
    return f"{message}\n→ {remedy}" if remedy else message


async def _observe(namespace: str) -> Observed:
    from cachescope.cli.doctor.gather import gather  # noqa: PLC0415 - its libraries take long to load
    from cachescope.kube.rest import Rest  # noqa: PLC0415 - the same

    async with Rest() as rest:
        return await gather(rest, namespace)
