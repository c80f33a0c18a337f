"""The base of every error of the project.

There are two families by whose fault it is: a `SpecError` is the user's and permanent, a `ClusterError` is the environment's
and passes. A wrong order of calls is a `RuntimeError`. Every message ends with what to do next.
"""

from __future__ import annotations


class CacheScopeError(Exception):
    """Base of all errors that CacheScope raises on purpose."""


class SpecError(CacheScopeError):
    """What the user declared cannot be done; repeating it does not help."""


class ClusterError(CacheScopeError):
    """The environment did not answer as needed; trying again later may help."""


class WireFormatError(CacheScopeError):
    """A permit or a statement is not of a format that this version reads, or its MAC does not match."""
