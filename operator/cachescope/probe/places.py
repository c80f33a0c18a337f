"""Where a client might put a value in the hope that it chooses a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A header or a field of the body.

    Attributes:
        name: The header's name, or the field's, with dots between the names of objects within objects.
        header: Whether it is a header.
    """

    name: str
    header: bool = False

    def __str__(self) -> str:
        return f"{'header' if self.header else 'field'} {self.name}"

    def headers(self, value: str) -> Mapping[str, str]:
        """What it adds to the headers."""
        return {self.name: value} if self.header else {}

    def fields(self, value: str) -> Mapping[str, object]:
        """What it adds to the body."""
        if self.header:
            return {}
        head, *inner = self.name.split(".")
        found: object = value
        for name in reversed(inner):
            found = {name: found}
        return {head: found}


SALT = Place("cache_salt")
HEADERS = tuple(
    Place(name, header=True) for name in ("x-cache-salt", "x-tenant-id", "x-session-id", "x-request-id", "x-cachescope-salt")
)
FIELDS = tuple(
    Place(name)
    for name in (
        "extra_key", "nvext.cache_salt", "prompt_cache_key", "session_id", "request_id", "user", "metadata.cache_salt",
        "kv_transfer_params.cache_salt",
    )
)  # fmt: skip
PLACES = (*HEADERS, *FIELDS)
"""Every place but the salt's own field, which is one too wherever it is not the prober who salts."""
