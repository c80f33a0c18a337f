"""The gateway's keys, all derived from the root keys; read from mounted Secrets.

A mounted Secret is a folder with one file a key: the name is the key's id, the content 64 hexadecimal digits. The folder of the
root keys also holds `targets`, the key that names epoch targets: it never rotates, since floors are kept under those names.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing, derive
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

    def permits(self, pool_uids: Iterable[str]) -> Mapping[str, KeyRing]:
        """Permit keys by pool UID."""
        return {uid: permit_keys(self.root, uid) for uid in pool_uids}


def read_keys(folder: Path) -> GatewayKeys:
    """Read the root keys of a mounted Secret.

    Raises:
        SpecError: The folder lacks a key, or a file holds none.
    """
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
    if TARGETS not in names or len(names) < 2:
        raise SpecError(f"{folder} needs the file {TARGETS!r} and at least one root key; mount the Secret with the root keys there")
    keys = {name: _key(folder / name) for name in names}
    naming = derive(keys.pop(TARGETS), "target")
    return GatewayKeys(KeyRing.of(*keys.values()), naming)


def _key(path: Path) -> Key:
    try:
        return Key(path.name, binascii.unhexlify(path.read_text().strip()))
    except (binascii.Error, ValueError) as error:
        raise SpecError(f"{path} is not a key; write 64 hexadecimal digits") from error
