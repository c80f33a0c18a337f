"""All that the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

import typer

PIPE_WIDTH = 200
"""Columns of a table where no terminal says how wide it is."""


def text(content: str) -> None:
    """Print text as it is."""
    typer.echo(content, nl=not content.endswith("\n"))


def document(content: object) -> None:
    """Print JSON."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def aside(content: str) -> None:
    """Say something that is not the result."""
    typer.echo(content, err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without lines, as kubectl does; the last column is folded where it is too long."""
    from rich.console import Console  # noqa: PLC0415 - gateway and operator print no tables, and start often
    from rich.table import Table  # noqa: PLC0415 - the same
    from rich.text import Text  # noqa: PLC0415 - the same

    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        shown.add_column(column, no_wrap=column != columns[-1], overflow="fold")
    for row in rows:
        # As plain text: what tenants and clusters named is no markup.
        shown.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(shown)


class LiveLine:
    """One line that says how far something is: rewritten in place on a terminal, else a line for each change."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def show(self, seconds: float, content: str) -> None:
        """Show how far it is after so many seconds."""
        line = f"{seconds:6.1f} s  {content}"
        if self._terminal:
            columns = shutil.get_terminal_size().columns
            typer.echo(f"\r{line[: columns - 1]}\x1b[K", err=True, nl=False)
        elif content != self._last:
            aside(line)
        self._last = content

    def end(self) -> None:
        """Leave the line as it is; what is printed next begins below it."""
        if self._terminal and self._last:
            typer.echo("", err=True)
        self._last = ""
