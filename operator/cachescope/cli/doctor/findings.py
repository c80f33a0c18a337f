"""What a check finds, and what it may have to look at.

A check that could not look says so: `Verdict.UNSEEN` is no pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Document = dict[str, Any]
"""One object as the API server gives it."""


class Verdict(StrEnum):
    """The verdict of a finding."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    UNSEEN = "unseen"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    Attributes:
        check: Name of the check.
        verdict: Its verdict.
        message: What was found.
        remedy: What to do; empty for a pass.
    """

    check: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What could not be looked at.

    Attributes:
        reason: Why.
    """

    reason: str


Documents = list[Document] | Unseen
"""Objects, or why they could not be read. An object that is not there is no object in the list."""


def passed(check: str, message: str) -> Finding:
    """A pass."""
    return Finding(check, Verdict.PASS, message)


def failed(check: str, message: str, remedy: str) -> Finding:
    """A failure."""
    return Finding(check, Verdict.FAIL, message, remedy)


def unseen(check: str, what: Unseen) -> Finding:
    """A check that could not look."""
    return Finding(check, Verdict.UNSEEN, f"could not look: {what.reason}", "run it again with rights to read this")


def noted(check: str, message: str, remedy: str) -> Finding:
    """Something to know, which is no failure."""
    return Finding(check, Verdict.NOTE, message, remedy)


def exit_code(findings: Iterable[Finding]) -> int:
    """1 when a check failed, 2 when none did but one could not look, else 0."""
    verdicts = {finding.verdict for finding in findings}
    return 1 if Verdict.FAIL in verdicts else 2 if Verdict.UNSEEN in verdicts else 0
