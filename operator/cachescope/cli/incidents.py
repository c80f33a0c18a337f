"""The CacheEpochs that the commands of an incident make: pure, from what was asked.

Rules:

- one incident id is one name: a command that is run again with its id finds what it made, and rolls nothing again;
- an id that one command made for several targets has a name for each: the second and later names also carry a digest of the target;
- a command that is run again adds what is asked in addition, and cuts what still drains where it asks for no drain; it takes
  nothing back, and says so where it asks for less.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from cachescope.api.documents import API_VERSION, faults
from cachescope.api.epochs import CacheEpoch, CacheEpochSpec
from cachescope.core.errors import SpecError

Document = dict[str, Any]

_NO_NAME = re.compile(r"[^a-z0-9-]+")
_OF_PEOPLE = ("deny", "readmit", "credentialsIssuedBefore")
_OF_POOLS = ("stopPublicSharing", "bypassReuse")


def new_id(moment: datetime) -> str:
    """An incident id: the time in UTC, and four random digits."""
    return f"{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def cache_epoch(namespace: str, spec: Mapping[str, Any]) -> Document:
    """A CacheEpoch without a name.

    Raises:
        SpecError: What was asked is not valid; every fault is named.
    """
    try:
        CacheEpochSpec.model_validate(spec)
    except ValidationError as error:
        raise SpecError(f"this cannot be declared ({faults(error)}); correct the options") from error
    metadata = {"namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": CacheEpoch.KIND, "metadata": metadata, "spec": dict(spec)}


def named(document: Document, name: str) -> Document:
    """The same under a name."""
    return {**document, "metadata": {**document["metadata"], "name": name}}


def names(verb: str, document: Document) -> Iterator[str]:
    """Names for it, the one to try first first; the second is taken by nothing that is about another target."""
    incident = document["spec"]["incident"]["id"]
    plain = _NO_NAME.sub("-", incident.lower()).strip("-")
    first = f"{verb}-{plain}" if plain == incident else f"{verb}-{plain}-{_short(incident)}"
    yield first
    yield f"{first}-{_short(json.dumps(document['spec']['target'], sort_keys=True))}"


def same(found: Document, wanted: Document) -> bool:
    """Whether a CacheEpoch that is there is about the same target and incident."""
    one, other = (CacheEpochSpec.model_validate(item["spec"]) for item in (found, wanted))
    return one.target == other.target and one.incident is not None and one.incident.id == wanted["spec"]["incident"]["id"]


def lacking(found: Document, wanted: Document) -> Document:
    """What a CacheEpoch that is there lacks of what is asked, as a merge patch of it; empty for nothing."""
    there, asked = found["spec"], wanted["spec"]
    people = {name: asked[name] for name in _OF_PEOPLE if asked.get(name) and not there.get(name)}
    incident: Document = {
        name: asked["incident"][name] for name in _OF_POOLS if asked["incident"].get(name) and not there["incident"].get(name)
    }
    if _drain(there) and not _drain(asked):
        incident["inFlight"] = None  # they are cut, as without it
    spec = {**people, **({"incident": incident} if incident else {})}
    return {"spec": spec} if spec else {}


def staying(found: Document, wanted: Document) -> Iterator[str]:
    """What a CacheEpoch that is there declares otherwise than it is asked, and goes on declaring."""
    there, asked = found["spec"], wanted["spec"]
    if _drain(asked) and _drain(asked) != _drain(there):
        yield f"answers may end for {_drain(there)} s as declared before" if _drain(there) else "answers under way are cut already"
    if moved(found, wanted):
        stands = there["credentialsIssuedBefore"]
        yield f"it refuses credentials issued before {stands}; to refuse others, name another incident: --incident"


def moved(found: Document, wanted: Document) -> bool:
    """Whether a CacheEpoch that is there refuses credentials of before another moment than is asked."""
    there, asked = (CacheEpochSpec.model_validate(item["spec"]).issued_before for item in (found, wanted))
    return bool(there and asked) and there != asked


def _drain(spec: Document) -> int:
    return int((spec["incident"].get("inFlight") or {}).get("drainSeconds", 0))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
