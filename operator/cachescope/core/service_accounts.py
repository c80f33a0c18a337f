"""ServiceAccounts by the name that their tokens give them: `system:serviceaccount:<namespace>:<name>`.

Rule: namespace and name are as the API server allows them, so that a subject reads in one way; anything else is no ServiceAccount.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cachescope.core.errors import SpecError

PREFIX: Final = "system:serviceaccount:"
PATTERN: Final = rf"{PREFIX}[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?:[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?"
"""Without anchors; the same in the CRD."""

_SUBJECT: Final = re.compile(PATTERN, re.ASCII)


class ServiceAccount(NamedTuple):
    """A ServiceAccount of this cluster."""

    namespace: str
    name: str

    @property
    def subject(self) -> str:
        """The `sub` of its tokens."""
        return f"{PREFIX}{self.namespace}:{self.name}"


def read_subject(text: str) -> ServiceAccount:
    """Read the `sub` of a token.

    Raises:
        SpecError: It names no ServiceAccount.
    """
    if _SUBJECT.fullmatch(text) is None:
        raise SpecError(f"this names no ServiceAccount; write {PREFIX}<namespace>:<name>")
    namespace, _, name = text.removeprefix(PREFIX).partition(":")
    return ServiceAccount(namespace, name)
