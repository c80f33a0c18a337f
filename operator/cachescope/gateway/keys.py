"""The gateway's keys, all derived from the root keys; read from mounted Secrets.

A mounted Secret is a folder with one file a key: the name is the key's id, the content 64 hexadecimal digits. The folder of the
root keys also holds `targets`, the key that names epoch targets: it never rotates, since floors are kept under those names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing, derive, read_key
from cachescope.core.leases import lease_keys
from cachescope.core.permits import permit_keys

TARGETS = "targets"


@dataclass(frozen=True)
class GatewayKeys:
    """Keys of one configuration.

    Attributes:
        root: Root keys.
        targets: Key that names epoch targets.
    """

    root: KeyRing
    targets: Key

    @cached_property
    def namespace(self) -> Key:
        """Key of namespaces."""
        return self.root.derive("namespace").current

    @cached_property
    def salt(self) -> Key:
        """Key of salts."""
        return self.root.derive("salt").current

    @cached_property
    def caches(self) -> Key:
        """Key of the keys of caches."""
        return self.root.derive("cache-key").current

    @cached_property
    def handles(self) -> KeyRing:
        """Keys of handles; older ones still open."""
        return self.root.derive("handle")

    def permits(self, pool_uid: str) -> KeyRing:
        """Permit keys of a pool; the same object whenever they are asked for."""
        if pool_uid not in self._permits:
            self._permits[pool_uid] = permit_keys(self.root, pool_uid)
        return self._permits[pool_uid]

    @cached_property
    def lease(self) -> Key:
        """Key of the gateways' own leases."""
        return lease_keys(self.root).current

    @cached_property
    def _permits(self) -> dict[str, KeyRing]:
        return {}


def key_files(folder: Path) -> dict[str, str]:
    """The texts of all keys by id.

    Raises:
        OSError: The folder cannot be read.
    """
    return {path.name: path.read_text("ascii", "replace") for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def parse_keys(texts: Mapping[str, str]) -> GatewayKeys:
    """The keys of an installation, from their texts.

    Raises:
        SpecError: A key is missing, or a text is none.
    """
    keys = {name: read_key(name, text) for name, text in texts.items()}
    targets = keys.pop(TARGETS, None)
    if targets is None or not keys:
        raise SpecError(f"{TARGETS!r} and at least one root key are needed; mount the Secret with the root keys")
    return GatewayKeys(KeyRing.of(*keys.values()), derive(targets, "target"))
