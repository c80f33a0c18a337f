"""A gateway whose salts hold nothing of the record: what must be seen where a test of the real pool says that nothing is found.

Permits, guard and engine are the real ones: with such salts a cache is shared by all tenants, and by all generations.
"""

from __future__ import annotations

from collections.abc import Callable

from cachescope.core import salts
from cachescope.core.frames import Field
from cachescope.core.record import IdentityRecord

Patch = Callable[[object, str, object], None]
"""Puts something in the place of an attribute; `setattr`, where it need not be undone."""


def constant(patch: Patch) -> None:
    """Give everybody the same salt."""
    patch(salts, "salted_fields", _nothing)


def _nothing(_record: IdentityRecord) -> tuple[Field, ...]:
    return ()
