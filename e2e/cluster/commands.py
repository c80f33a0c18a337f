"""Runs other programs, and waits for conditions."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from e2e.cluster.errors import ClusterSetupError

POLL_SECONDS = 0.1


def run(argv: Sequence[str], *, stdin: str | None = None, env: Mapping[str, str] | None = None, cwd: str | None = None) -> str:
    """Runs a program to its end.

    Args:
        argv: Program and arguments.
        stdin: Text for its standard input; without it, the program gets none.
        env: Its whole environment; without it, this process's.
        cwd: Its working folder.

    Returns:
        What it wrote to standard output.

    Raises:
        ClusterSetupError: It is missing, or ended with another code than 0.
    """
    try:
        done = subprocess.run(argv, input=stdin or "", env=env, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise ClusterSetupError(f"{argv[0]} was not found", remedy=f"install {argv[0]} and try again.") from missing
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-20:])
        raise ClusterSetupError(
            f"`{' '.join(argv)}` ended with code {done.returncode}:\n{said}",
            remedy="run that command by itself, mend what it says, and try again.",
        )
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Tells whether a program exists and ends with code 0."""
    try:
        return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool], *, seconds: float) -> bool:
    """Polls a condition until it holds or the time is over.

    Args:
        holds: The condition.
        seconds: Time to wait at most.

    Returns:
        Whether it held.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
