"""What is mounted into the gateway: the installation's settings and the root keys, reloaded in place.

Folders below the root: `config/settings.yaml`, `root-keys/` (one file a key, and `targets`), `secrets/<name>/` (key sets of
identity providers; their readers look after those themselves). What has a fault is not taken over: the last good one stays, and the
fault is said; settings and keys do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from cachescope.api.settings import SERVICE_ACCOUNTS_PROVIDER, Settings, read_settings
from cachescope.core.errors import CacheScopeError
from cachescope.gateway.identity.jwt_tokens import check_algorithms
from cachescope.gateway.keys import GatewayKeys, key_files, parse_keys

Raw = TypeVar("Raw")
Good = TypeVar("Good")


@dataclass(frozen=True)
class Mounted:
    """Settings and keys in force."""

    settings: Settings
    keys: GatewayKeys


class LastGood(Generic[Raw, Good]):
    """Something that is read again and again.

    Args:
        read: Reads it.
        parse: Understands it.

    Attributes:
        value: The last good one.
        fault: What is wrong with the newest, or empty.
    """

    def __init__(self, read: Callable[[], Raw], parse: Callable[[Raw], Good]) -> None:
        self._read = read
        self._parse = parse
        self._seen: Raw | None = None
        self.value: Good | None = None
        self.fault = ""

    def refresh(self) -> Good | None:
        """Read it; the same object while nothing changed."""
        try:
            raw = self._read()
            if raw != self._seen:
                self._seen = raw
                self.value, self.fault = self._parse(raw), ""
        except (OSError, UnicodeDecodeError) as error:
            # A file that vanished while it was replaced, or is no text: what is there next time is read anew.
            self._seen, self.fault = None, str(error)
        except (CacheScopeError, ValueError, RecursionError) as error:
            self.fault = str(error)
        return self.value


class MountedFolder:
    """The mounted folder.

    Args:
        root: Its path.
    """

    def __init__(self, root: Path) -> None:
        settings = root / "config" / "settings.yaml"
        self._settings = LastGood(settings.read_text, lambda text: _checked(read_settings(text, settings.name)))
        self._keys = LastGood(partial(key_files, root / "root-keys"), parse_keys)
        self._current: Mounted | None = None

    @property
    def fault(self) -> str:
        """What is wrong, or empty."""
        return "; ".join(filter(None, (self._settings.fault, self._keys.fault)))

    def refresh(self) -> Mounted | None:
        """Read what changed; the same object while nothing did, `None` before both were good once."""
        settings, keys, last = self._settings.refresh(), self._keys.refresh(), self._current
        if settings and keys and not (last and last.settings is settings and last.keys is keys):
            self._current = Mounted(settings, keys)
        return self._current


def _checked(settings: Settings) -> Settings:
    for provider in settings.identity_providers:
        check_algorithms(provider.name, provider.algorithms)
    if settings.service_accounts:
        check_algorithms(SERVICE_ACCOUNTS_PROVIDER, settings.service_accounts.algorithms)
    return settings
