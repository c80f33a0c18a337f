"""`conformance`: whether an engine does with salts and prefixes what a profile asks, seen from outside alone."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cachescope.cli import output
from cachescope.core.errors import ClusterError, SpecError

if TYPE_CHECKING:
    from cachescope.probe.conformance.checks import Result
    from cachescope.probe.conformance.suite import Declared, Report

_SEED_BYTES = 8

Url = Annotated[str, typer.Option("--engine-url", help="URL of the engine itself, without /v1; nobody else may use it meanwhile.")]
Engine = Annotated[str, typer.Option("--engine", help="Its name, as the report shall say it, e.g. vLLM.")]
Version = Annotated[str, typer.Option("--version", help="Its version, e.g. 0.32.0; held against what it reports.")]
ProfileName = Annotated[
    str, typer.Option("--profile", help="Salted: each salt has a cache of its own. PerTenant: salts do nothing.")
]
Model = Annotated[str | None, typer.Option("--model", help="The model to ask for; by default the first that it lists.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write the report here, JSON.")]
Tries = Annotated[int, typer.Option("--tries", min=2, help="Trials of each plain experiment.")]
Seed = Annotated[str | None, typer.Option("--seed", help="Makes prompts and their order; by default a new one for each run.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", envvar="CACHESCOPE_ENGINE_API_KEY", help="If the engine asks for one.")]


def conformance(  # noqa: PLR0913 - the options are what is declared
    url: Url,
    engine: Engine,
    version: Version,
    profile: ProfileName,
    *,
    model: Model = None,
    report: ReportFile = None,
    tries: Tries = 10,
    seed: Seed = None,
    api_key: ApiKey = None,
) -> None:
    """Test an OpenAI-compatible engine from outside: does it keep salts apart, or leak as its profile says? Exits with 1 if not."""
    from cachescope.probe.conformance.profiles import Profile  # noqa: PLC0415 - the other commands have no use for it
    from cachescope.probe.conformance.report import text  # noqa: PLC0415 - the same
    from cachescope.probe.conformance.suite import Declared  # noqa: PLC0415 - the same

    if profile not in list(Profile):
        raise SpecError(f"{profile!r} is no profile; write {' or '.join(Profile)}")
    declared, chosen = Declared(engine, version, Profile(profile)), seed or secrets.token_hex(_SEED_BYTES)
    found = asyncio.run(_run(url, declared, seed=chosen, model=model, tries=tries, api_key=api_key))
    if report is not None:
        _write(report, text(found))
    for line in _lines(found):
        output.text(line)
    if found.failures:
        output.table(("RULE", "ROUTE", "EXPECTED", "FOUND", "WHY"), [_row(result) for result in found.failures])
        output.aside(f"the same prompts again, on a fresh engine: --seed {chosen}")
        raise typer.Exit(1)


async def _run(url: str, declared: Declared, *, seed: str, model: str | None, tries: int, api_key: str | None) -> Report:
    from cachescope.probe.conformance.suite import run  # noqa: PLC0415 - the other commands have no use for it
    from cachescope.probe.engine_http import engine  # noqa: PLC0415 - the same

    live, started = output.LiveLine(), time.monotonic()

    def progress(done: int, checks: int) -> None:
        live.show(time.monotonic() - started, f"{10 * (10 * done // checks)} % of {checks} checks")

    async with engine(url, api_key=api_key) as target:
        try:
            return await run(target, declared, seed=seed, model=model, tries=tries, progress=progress)
        finally:
            live.end()


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written ({error}); name a file in a folder that is there") from error


def _lines(report: Report) -> Iterator[str]:
    declared, failed = report.declared, len(report.failures)
    served = sum(status == 200 for status in report.features.routes.values())
    name = f"{declared.engine} {declared.version} as {declared.profile.value}"
    yield f"{name}: {served} routes, {len(report.results)} checks, {failed} failed"
    for result in report.results:
        if result.evidence and not result.detail:
            seconds = ", ".join(f"{role.value} {1000 * taken:.0f} ms" for role, taken in result.evidence.seconds.items())
            yield f"{result.route}: {result.rule.value}: {result.found.value}; medians, which decide nothing: {seconds}"


def _row(result: Result) -> tuple[str, ...]:
    rule = f"{result.rule.value} ({result.detail})" if result.detail else result.rule.value
    expected = " or ".join(sorted(outcome.value for outcome in result.expected))
    return rule, result.route or "-", expected, result.found.value, result.why
