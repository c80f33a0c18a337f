"""What can go wrong with the cluster: every message ends with what to do next."""

from pathlib import Path

LOG_TAIL_LINES = 20


class ClusterSetupError(Exception):
    """The cluster cannot be brought up, used or taken down as asked."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}\nNext: {remedy}")
        self.problem = problem
        self.remedy = remedy


def component_error(name: str, problem: str, *, log: Path) -> ClusterSetupError:
    """Builds the error of one component, with the end of its log.

    Args:
        name: Component, as in the progress lines.
        problem: What was waited for, or what happened.
        log: Its log file; a missing one counts as empty.

    Returns:
        The error to raise.
    """
    text = log.read_text(errors="replace") if log.exists() else ""
    tail = "\n".join(f"    {line}" for line in text.splitlines()[-LOG_TAIL_LINES:]) or "    (empty)"
    return ClusterSetupError(
        f"{name}: {problem}\nlast lines of {log}:\n{tail}",
        remedy=f"read {log}, then run `python -m e2e.cluster up` again: it goes on where it stopped.",
    )
