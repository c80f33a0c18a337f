"""Namespaces on the real API server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.stack import kubectl


@contextmanager
def made(what: str) -> Iterator[str]:
    """A namespace of a test's own until the end of the block; nobody waits until it is gone.

    Args:
        what: A part of its name, which says whose it is.
    """
    name = f"cachescope-{what}-{secrets.token_hex(4)}"
    kubectl.run("create", "namespace", name, namespace=name)
    try:
        yield name
    finally:
        kubectl.run("delete", "namespace", name, "--wait=false", namespace=name)
