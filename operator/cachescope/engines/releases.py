"""Which release a version names, and whether somebody read it.

Rules:

- versions are compared as PEP 440 has it;
- a build from source, a candidate, a build with a local suffix, a digest and a tag such as `latest` name no release;
- a release after the last one that was read is unknown, also where only its last number differs; one between two that were read
  counts as read.
"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import InvalidVersion, Version

from cachescope.engines.evidence import Step, enforcing
from cachescope.engines.facts import Reading
from cachescope.engines.routes import Capability


def release(version: str) -> Version | None:
    """The release that a version names; `None` where it names none."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return None
    return None if parsed.is_prerelease or parsed.local or parsed.epoch else parsed


def read_release(reading: Reading | None, version: str) -> Version | None:
    """The release that a version names, if it was read."""
    found = release(version)
    if found is None or reading is None or reading.last is None:
        return None
    return found if found <= Version(reading.last) else None


def step_at(steps: Sequence[Step], found: Version | None) -> Step | None:
    """What holds of a release.

    Args:
        steps: Ascending.
        found: The release; `None` where it is not known. Then a step holds that is the only one, from the first release on, and
            enforces nothing: what no release does, no unknown one is believed to do.

    Returns:
        The step; `None` before the first one, and where it is not known.
    """
    if found is None:
        return steps[0] if len(steps) == 1 and not enforcing(steps) and Version(steps[0].since) == Version("0") else None
    return next((step for step in reversed(steps) if Version(step.since) <= found), None)


def first_enforced(steps: Sequence[Step]) -> str | None:
    """The first release that enforces; `None` where none does."""
    return next((step.since for step in steps if step.capability is Capability.ENFORCED), None)


def difference(declared: str, reported: str | None) -> str | None:
    """Why the version that a running engine reports is not the declared one; `None` where it is, or nothing was reported."""
    if reported is None or reported == declared or _equal(declared, reported):
        return None
    return f"the engine says that it is {reported}, and {declared} is declared; correct engine.version, or the image"


def _equal(declared: str, reported: str) -> bool:
    try:
        return Version(declared) == Version(reported)
    except InvalidVersion:
        return False
