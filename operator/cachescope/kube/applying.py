"""Server-side apply of one object, and only when it has to be.

Rules:

- an object that is as we want it costs no request;
- an object is created only where there is none: the API server compares, not we;
- an object of that name that is not ours is never taken over;
- what somebody else added goes as well: the foreign fields become ours, and applying without them removes them (`ownership`);
- what cannot be changed is deleted, by its UID, and made anew;
- an object that differs from what we want even after our own write (a webhook, a normalised value) is remembered as it is, and
  written again only when it, or what we want, changes.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cachescope.core.errors import SpecError
from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.drift import Manifest, as_applied, drifted, foreign, unchangeable
from cachescope.kube.kinds import path_of
from cachescope.kube.ownership import owned_fields, taken_over
from cachescope.kube.rest import ConflictError, Document, Rest

log = logging.getLogger(__name__)

_ONLY_IF_ABSENT: Final = "1"
"""A version that no object has: applying with it creates, or is a conflict."""
_ATTEMPTS: Final = 4
"""An object without any record of owners gets one by the first write and is cleaned by the second; the others are for conflicts."""
_REMEMBERED: Final = 10_000


@dataclass(frozen=True)
class Outcome:
    """What applying did.

    Attributes:
        change: What happened to the object.
        live: The object now.
    """

    change: Literal["Created", "Changed", "Unchanged"]
    live: Document


class Applier:
    """Applies objects under one field manager.

    Args:
        rest: The API.
        field_manager: Our name in `managedFields`.
    """

    def __init__(self, rest: Rest, field_manager: str = FIELD_MANAGER) -> None:
        self._rest = rest
        self._manager = field_manager
        self._settled: dict[str, str] = {}

    async def apply(self, desired: Manifest, live: Document | None) -> Outcome:
        """Make an object what we want, if it is not.

        Args:
            desired: The manifest, with its namespace.
            live: The object as last seen, with its `managedFields`; `None` when it is not known.

        Raises:
            SpecError: There is an object of that name that is not ours.
            ConflictError: It changes faster than it can be written, or was made anew; the next event brings it.
            NotFoundError: It was deleted in between; the next event brings that.
            ApiError: The API server refused, or did not answer.
        """
        if live is None:
            return await self._create(desired)
        _must_be_ours(live, desired, self._manager)
        # What is being deleted is made anew by the event that says it is gone.
        if "deletionTimestamp" in live["metadata"] or not self._to_be_written(live, desired):
            return Outcome("Unchanged", live)
        if unchangeable(live, desired):
            await self._rest.delete(path_of(desired), uid=live["metadata"]["uid"])
            return Outcome("Changed", (await self._create(desired)).live)
        written = self._settle(await self._write(live, desired), desired)
        return Outcome("Changed" if _version(written) != _version(live) else "Unchanged", written)

    async def _create(self, desired: Manifest) -> Outcome:
        path = path_of(desired)
        try:
            live = await self._apply(desired, None, resourceVersion=_ONLY_IF_ABSENT)
        except ConflictError:
            return await self.apply(desired, await self._rest.get(path))
        return Outcome("Created", self._settle(live, desired))

    async def _write(self, live: Document, desired: Manifest) -> Document:
        for attempt in range(_ATTEMPTS):
            before = _version(live)
            try:
                if foreign(live, self._manager, desired):
                    live = await self._take_over(live, desired)
                live = await self._apply(desired, live, uid=live["metadata"]["uid"])
            except ConflictError:
                # Its controller writes the status at any moment.
                seen, live = live, await self._rest.get(path_of(desired))
                if attempt == _ATTEMPTS - 1 or live["metadata"]["uid"] != seen["metadata"]["uid"]:
                    raise
                _must_be_ours(live, desired, self._manager)
            if not drifted(live, desired, self._manager) or _version(live) == before:
                break
        return live

    async def _take_over(self, live: Document, desired: Manifest) -> Document:
        """Move foreign fields into our set, if nobody wrote in between; the object itself stays as it is."""
        fields = taken_over(live, self._manager, as_applied(live, desired, self._manager))
        patch = {"metadata": {"resourceVersion": _version(live), "managedFields": fields}}
        return await self._rest.merge(path_of(desired), patch, fieldManager=self._manager)

    async def _apply(self, desired: Manifest, live: Document | None, **conditions: str) -> Document:
        wanted = as_applied(live, desired, self._manager)
        wanted["metadata"] = {**wanted["metadata"], **conditions}
        return await self._rest.apply(path_of(desired), wanted, self._manager)

    def _to_be_written(self, live: Document, desired: Manifest) -> bool:
        if drifted(live, desired, self._manager):
            return self._settled.get(path_of(desired)) != _state(live, desired)
        self._settled.pop(path_of(desired), None)
        return False

    def _settle(self, written: Document, desired: Manifest) -> Document:
        if drifted(written, desired, self._manager):
            path = path_of(desired)
            log.warning("object stays different from what was applied", extra={"object": path})
            self._settled.pop(path, None)
            self._settled[path] = _state(written, desired)
            if len(self._settled) > _REMEMBERED:
                del self._settled[next(iter(self._settled))]
        return written


def _must_be_ours(live: Document, desired: Manifest, manager: str) -> None:
    owner, found = _controller(desired), _controller(live)
    # An object without a controller that we applied is one that lost its owner reference: by an edit, or as an orphan.
    if owner is None or (found and found["uid"] == owner["uid"]) or (found is None and owned_fields(live, manager)):
        return
    name = f"the {desired['kind']} {desired['metadata']['namespace']}/{desired['metadata']['name']}"
    if found and (found["kind"], found["name"]) == (owner["kind"], owner["name"]):
        raise ConflictError(409, f"{name} belongs to a deleted {owner['kind']} of that name and is about to go; wait for that")
    raise SpecError(
        f"{name} is in the way: it exists and does not belong to the {owner['kind']} {owner['name']}; "
        f"delete or rename it, or choose another name for the {owner['kind']}"
    )


def _controller(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners = document["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _version(live: Document) -> str:
    return str(live["metadata"]["resourceVersion"])


def _state(live: Document, desired: Manifest) -> str:
    """Digest of what drift is found from; the version is not in it, since each change of the status raises that."""
    meta = live["metadata"]
    owners = [
        (entry.get("manager"), entry.get("operation"), entry.get("fieldsV1"))
        for entry in meta.get("managedFields") or ()
        if "subresource" not in entry
    ]
    seen = {name: meta.get(name) for name in ("uid", "labels", "annotations", "ownerReferences")}
    content = {name: value for name, value in live.items() if name not in ("metadata", "status")}
    return hashlib.sha256(json.dumps([seen, owners, content, desired], sort_keys=True).encode()).hexdigest()
