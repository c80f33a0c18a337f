"""The installation's root keys: made once, kept for ever, never replaced.

Rules:

- the Secret is created when there is none, and never written again: keys rotate by adding one under a greater id, and one that was
  added under another id is said;
- a Secret whose keys are lost or damaged is said and left alone: new keys would change every salt behind people's backs;
- a Secret that is deleted comes back with the same keys while a process knows them; only one that knows none makes new ones;
- it has no owner, so that it stays when everything else is uninstalled.
"""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.keys import KEY_BYTES, Key, KeyRing, passed_over, read_key, root_ring, target_key
from cachescope.core.labels import MANAGED_BY_LABEL, PART_OF_LABEL, ROOT_KEYS_SECRET
from cachescope.kube.rest import ConflictError, NotFoundError, Rest, collection

log = logging.getLogger(__name__)

TARGETS = "targets"


class RootKeys:
    """The root keys in force.

    Args:
        rest: The API.
        namespace: The installation's namespace.
    """

    def __init__(self, rest: Rest, namespace: str) -> None:
        self._rest = rest
        self._path = collection("v1", "secrets", namespace)
        self._texts: Mapping[str, str] | None = None
        self.fault = "the root keys have not been read yet; wait for the operator to start"

    @property
    def ring(self) -> KeyRing:
        """The keys.

        Raises:
            ClusterError: There are none.
        """
        return root_ring(self._known())

    @property
    def targets(self) -> Key:
        """The key that names targets.

        Raises:
            ClusterError: There is none.
        """
        return target_key(self._known())

    async def refresh(self, now: datetime) -> bool:
        """Read the Secret, or create it; whether the keys in force changed. What is damaged leaves the last good ones in force."""
        try:
            texts = read_texts(await self._read_or_create(now))
        except ClusterError as error:
            if str(error) != self.fault:
                log.error("root keys not read", extra={"fault": str(error)})
            self.fault = str(error)
            return False
        self._tell_added(texts)
        changed, self._texts, self.fault = texts != self._texts, texts, ""
        return changed

    def _tell_added(self, texts: Mapping[str, str]) -> None:
        """A key that was added and is not the latest rotates nothing; nobody would see why."""
        added = texts.keys() - self._texts.keys() if self._texts is not None else ()
        if why := passed_over(added, texts):
            log.warning("root key added and not in force", extra={"fault": why})

    async def _read_or_create(self, now: datetime) -> Mapping[str, Any]:
        try:
            return await self._rest.get(f"{self._path}/{ROOT_KEYS_SECRET}")
        except NotFoundError:
            # A Secret that somebody deleted while we hold its keys comes back as it was.
            texts = self._texts or new_texts(now)
        try:
            created = await self._rest.create(self._path, secret(texts))
        except ConflictError:
            return await self._rest.get(f"{self._path}/{ROOT_KEYS_SECRET}")
        log.info("root keys created", extra={"secret": ROOT_KEYS_SECRET, "keys": sorted(texts)})
        return created

    def _known(self) -> Mapping[str, str]:
        if self._texts is None:
            raise ClusterError(self.fault)
        return self._texts


def new_texts(now: datetime) -> dict[str, str]:
    """New keys: a root key whose id sorts by its age, and the key that names targets."""
    return {now.strftime("k%Y%m%dT%H%M%SZ"): secrets.token_hex(KEY_BYTES), TARGETS: secrets.token_hex(KEY_BYTES)}


def secret(texts: Mapping[str, str]) -> dict[str, Any]:
    """The Secret that holds keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": ROOT_KEYS_SECRET, "labels": {PART_OF_LABEL: "cachescope", MANAGED_BY_LABEL: "cachescope"}},
        "type": "Opaque",
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()},
    }


def read_texts(document: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a Secret.

    Raises:
        ClusterError: A key is missing or damaged.
    """
    try:
        texts = {name: base64.b64decode(value).decode().strip() for name, value in (document.get("data") or {}).items()}
    except (binascii.Error, ValueError) as error:
        raise ClusterError(
            f"the Secret {ROOT_KEYS_SECRET} cannot be read ({type(error).__name__}); restore your copy of it"
        ) from error
    damaged = sorted(name for name, text in texts.items() if not _is_key(name, text))
    if damaged or TARGETS not in texts or len(texts) < 2:
        what = f"damaged keys: {', '.join(damaged)}" if damaged else f"it needs {TARGETS!r} and at least one root key"
        raise ClusterError(f"the Secret {ROOT_KEYS_SECRET} is not whole ({what}); restore your copy of it")
    return texts


def _is_key(name: str, text: str) -> bool:
    try:
        read_key(name, text)
    except SpecError:
        return False
    return True
