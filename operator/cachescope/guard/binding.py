"""Whose cache it is: the one identity that an engine without salts is used under, for as long as the pod lives.

Rules:

- the first permit that is admitted binds the pod, and nothing unbinds it: the engine keeps what it computed;
- the binding outlives the guard's process, since a sidecar starts anew while its engine goes on; it goes with the pod;
- it is on the disk before the request goes to the engine; what cannot be kept binds nothing, and is refused;
- a binding that is on the disk is never replaced, be it another process of the pod that wrote it meanwhile;
- a file that cannot be read, or a folder that is not there, leaves the pod with nobody's cache that may be anybody's: nothing is
  admitted.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from cachescope.core.errors import SpecError
from cachescope.core.types import NO_CACHE, CacheIdentity

_LOG = logging.getLogger(__name__)
_FILE = "cache-identity"
_IDENTITY = re.compile(rb"[A-Za-z0-9_-]{43}\Z")


class Binding:
    """The binding of one pod.

    Args:
        folder: Where it is kept: a folder that lives as long as the pod.

    Attributes:
        cache: Whose cache it is; nobody's before the first request.

    Raises:
        SpecError: There is one that cannot be read, or no folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SpecError(
                f"{folder} is no folder, so the pod cannot keep whose cache it is; mount one that lives as long as the pod"
            )
        self._folder = folder
        self.cache = _kept(folder / _FILE)

    def bind(self, cache: CacheIdentity) -> bool:
        """Bind the pod, unless it is bound; whether it is kept now that this is whose cache it is.

        Args:
            cache: The identity of a permit that passed every other check.
        """
        if self.cache == NO_CACHE:
            try:
                self.cache = _keep(self._folder, cache)
            except (OSError, SpecError) as error:
                _LOG.error("the pod's binding cannot be kept; mount a writable folder", extra={"problem": type(error).__name__})
                return False
            _LOG.info("the pod's cache belongs to one identity from now on")
        return self.cache == cache


def _kept(path: Path) -> CacheIdentity:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return NO_CACHE
    except OSError as error:
        raise SpecError(
            f"{path} cannot be read ({type(error).__name__}), so whose cache it is is not known; delete the pod"
        ) from error
    if not _IDENTITY.match(found):
        raise SpecError(f"{path} holds no cache identity, so whose cache it is is not known; delete the pod")
    return CacheIdentity(found.decode())


def _keep(folder: Path, cache: CacheIdentity) -> CacheIdentity:
    """Write it so that it is there whole after a crash, or not at all, unless there is one; which one there is."""
    path = folder / _FILE
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{_FILE}.") as beside:
        beside.write(cache.encode())
        beside.flush()
        os.fsync(beside.fileno())
        with suppress(FileExistsError):
            os.link(beside.name, path)  # a rename would replace the binding of another process
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
    return _kept(path)
