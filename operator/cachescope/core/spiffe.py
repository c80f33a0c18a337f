"""SPIFFE ids: the names of workloads in their certificates.

Rules:

- an id has one spelling: `spiffe://`, a trust domain in lower case, and a path, in the characters that the standard allows and no
  others. There is no query, fragment, port, user or percent-encoding, and nothing is normalized: what would have to be is no id;
- no segment of the path is empty, `.` or `..`;
- the path is not left out: an id without one names a trust domain, and no workload;
- it has at most 2,048 bytes, its trust domain at most 255.

Source: SPIFFE-ID (sections 2.1 to 2.4) and X509-SVID (section 2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cachescope.core.errors import SpecError

MAX_BYTES: Final = 2048
TRUST_DOMAIN_PATTERN: Final = r"[a-z0-9._-]{1,255}"
# A segment is dots and then something else, or three dots and more: `.` and `..` are neither. RE2 knows no look-ahead.
_SEGMENT: Final = r"(\.*[A-Za-z0-9_-][A-Za-z0-9._-]*|\.{3,})"
PATTERN: Final = rf"spiffe://{TRUST_DOMAIN_PATTERN}(/{_SEGMENT})+"
"""Without anchors; the same in the CRD."""

_ID: Final = re.compile(rf"spiffe://(?P<trust_domain>{TRUST_DOMAIN_PATTERN})(?P<path>(/{_SEGMENT})+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpiffeId:
    """The name of a workload.

    Attributes:
        trust_domain: Whose certificate authority vouches for it.
        path: Begins with a slash.
    """

    trust_domain: str
    path: str

    def __str__(self) -> str:
        """The id in its one spelling."""
        return f"spiffe://{self.trust_domain}{self.path}"


def read_spiffe_id(text: str) -> SpiffeId:
    """Read an id.

    Raises:
        SpecError: It is none.
    """
    found = _ID.fullmatch(text) if len(text) <= MAX_BYTES else None
    if found is None:
        raise SpecError(
            "this is no SPIFFE id; write `spiffe://`, a trust domain in lower case and a path without empty or dot segments, of at "
            f"most {MAX_BYTES} letters, digits, dots, hyphens and underscores"
        )
    return SpiffeId(found["trust_domain"], found["path"])
