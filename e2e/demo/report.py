"""What the demo prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from e2e.demo.cases import Case
from e2e.stack.install import GATEWAY, OPERATOR, Stack
from e2e.stack.kubectl import NAMESPACE
from e2e.stack.paths import CACHE

_console = Console()


def step(text: str) -> None:
    """A line of progress."""
    _console.print(f"[bold]demo[/bold] {text}", highlight=False)


def table(cases: Sequence[Case]) -> None:
    """The table that a person reads."""
    shown = Table(title="Who could observe what (cached tokens by the engine's own count)")
    for title in ("warmed by", "asked by", "case", "observed", "TTFT", "must be", "holds"):
        shown.add_column(title, justify="right" if title == "TTFT" else "left")
    for case in cases:
        seconds = "-" if case.seconds is None else f"{case.seconds * 1000:.0f} ms"
        verdict = "[green]yes[/green]" if case.holds else "[red bold]NO[/red bold]"
        shown.add_row(case.warmed_by, case.asked_by, case.how, case.outcome, seconds, case.expected, verdict)
    Console(width=max(_console.width, 130)).print(shown)


def next_steps(stack: Stack) -> None:
    """How to send a first request."""
    key = stack.credentials.api_keys["blue-carol"]
    _console.print(
        f"""The cluster stays up. Send a first request:

  source {CACHE}/cluster/env
  kubectl -n {NAMESPACE} port-forward service/{GATEWAY} 8080:80 &

  curl http://127.0.0.1:8080/v1/chat/completions -H 'authorization: Bearer {key}' \\
    -H 'content-type: application/json' -d '{{"model": "tiny", "messages": [{{"role": "user", "content": "hello"}}]}}'

  kubectl -n {NAMESPACE} get servingpools,tenants,cachescopes,epochledgers
  kubectl -n {NAMESPACE} exec deployment/{OPERATOR} -- cachescope status

  from openai import OpenAI
  client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="{key}")
  client.chat.completions.create(model="tiny", messages=[{{"role": "user", "content": "hello"}}])

`make down` removes everything.
""",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
