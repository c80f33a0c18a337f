"""Runs commands: output into a log, steps of builds as progress."""

import os
import re
import subprocess
from pathlib import Path

from images.errors import failed_command
from images.progress import Progress

# "[2/2] STEP 3/4: RUN ..." of buildah, "#9 [build 3/8] RUN ..." of BuildKit.
BUILD_STEP = re.compile(r"^(\[\d+/\d+\] )?STEP \d+/\d+: |^#\d+ \[.*\d+/\d+\] ")
SHOWN_CHARACTERS = 110


def answers(command: list[str]) -> bool:
    """Tells whether a command can be run and succeeds; its output is dropped."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def output(command: list[str], *, environment: dict[str, str] | None = None) -> str:
    """Returns a command's output; its errors go where this process's go."""
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables).stdout


def run(command: list[str], *, label: str, log: Path, progress: Progress, environment: dict[str, str] | None = None) -> None:
    """Runs a command to its end.

    Args:
        command: Program and arguments.
        label: What it is for, as people read it.
        log: File that its output is appended to.
        progress: Where the steps of a build are shown.
        environment: Variables beside this process's own.

    Raises:
        ImageError: The command failed; it holds the end of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **(environment or {})}
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables)
        for line in process.stdout or ():
            file.write(line)
            if BUILD_STEP.match(line):
                progress.line(f"  {label}: {line.strip()[:SHOWN_CHARACTERS]}")
        code = process.wait()
    if code:
        raise failed_command(label, code, log=log)
