"""What can go wrong with the images: every message ends with what to do next."""

from pathlib import Path

LOG_TAIL_LINES = 30


class ImageError(Exception):
    """An image cannot be built, or not be brought to where it is wanted."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}\nNext: {remedy}")


def failed_command(label: str, code: int, *, log: Path) -> ImageError:
    """Builds the error of a command that failed, with the end of its log.

    Args:
        label: What the command was for, as in the progress lines.
        code: Its exit code.
        log: Where its output went; a missing file counts as empty.

    Returns:
        The error to raise.
    """
    text = log.read_text(errors="replace") if log.exists() else ""
    tail = "\n".join(f"    {line}" for line in text.splitlines()[-LOG_TAIL_LINES:]) or "    (empty)"
    return ImageError(
        f"{label}: exit code {code}\nlast lines of {log}:\n{tail}",
        remedy=f"read {log}, mend the cause, and run the same command again.",
    )
