"""What the node's packet filter says; only where the node is this machine.

Whoever enforces NetworkPolicy there writes its whole table anew when any pod changes. A connection in that very moment shows how
the node does that, and nothing of the policies.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

from e2e.stack import outage

_SAVE = ("iptables-save", "-t", "filter")
_COUNTERS = re.compile(r" \[\d+:\d+\]$|^#.*$", re.MULTILINE)


def undisturbed(connects: Callable[[], bool], tries: int) -> list[bool]:
    """What came of connecting that often while the rules stayed as they were; a try during which they were rewritten is made again.

    Raises:
        AssertionError: They were rewritten all the time.
    """
    found: list[bool] = []
    for _ in range(5 * tries):
        before = _rules()
        said = connects()
        if _rules() == before:
            found.append(said)
        if len(found) == tries:
            return found
    raise AssertionError(f"the node rewrote its rules in all but {len(found)} tries; look which pods come and go without end")


def _rules() -> str:
    if not outage.possible():
        return ""
    saved = subprocess.run(_SAVE, capture_output=True, text=True, check=True).stdout
    return _COUNTERS.sub("", saved)
