"""Routes that the gateway answers itself: what it would decide of a request, told without sending it to an engine.

| route | who | what |
| --- | --- | --- |
| `GET /v1/models` | every tenant | the models that it may use |
| `POST /cachescope/v1/handles` | every tenant | a handle for a request, to be presented with the same request later |
| `POST /cachescope/v1/cache-keys` | listed applications | the keys of all caches that hold something of a request |

Both take `{"path": …, "body": {…}}`, the request as it would be sent, and the headers that it would have. They are decided as it
would be, by the same code, and spend nothing: no permit is made and no engine is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

import orjson

from cachescope.core.identity import CacheKeys
from cachescope.core.types import Reuse, ScopeClass
from cachescope.engines.routes import Route
from cachescope.engines.tables import KNOWN
from cachescope.gateway.bodies import BadBody
from cachescope.gateway.exchange import Answer
from cachescope.gateway.strict_json import Json, shown

HANDLE_SECONDS: Final = 3600
MOST_HANDLE_SECONDS: Final = 7 * 24 * 3600


class Purpose(Enum):
    """What is wanted of a request."""

    ENGINE = "engine"
    HANDLE = "handle"
    CACHE_KEYS = "cache-keys"


OWN: Final[Mapping[tuple[str, str], Purpose]] = MappingProxyType(
    {("POST", "/cachescope/v1/handles"): Purpose.HANDLE, ("POST", "/cachescope/v1/cache-keys"): Purpose.CACHE_KEYS}
)
"""By method and path."""
MODELS: Final = ("GET", "/v1/models")

_FIELDS: Final[Mapping[Purpose, frozenset[str]]] = {
    Purpose.HANDLE: frozenset({"path", "body", "ttl_seconds"}),
    Purpose.CACHE_KEYS: frozenset({"path", "body"}),
}


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A request, and for how long a handle of it is to last, should one be asked for.

    Attributes:
        path: Where it would be sent.
        fields: Its body.
        ttl_seconds: For how long a handle is to last.
    """

    path: str
    fields: dict[str, Json]
    ttl_seconds: int = HANDLE_SECONDS


def enclosed(purpose: Purpose, fields: dict[str, Json]) -> Enclosed:
    """Read the request that a body encloses.

    Raises:
        BadBody: It encloses none; `param` names the field at fault.
    """
    for name in sorted(fields.keys() - _FIELDS[purpose]):
        raise BadBody(f"{shown(name)} is not supported; remove it", shown(name), code="unsupported_parameter")
    path, inner, seconds = fields.get("path"), fields.get("body"), fields.get("ttl_seconds", HANDLE_SECONDS)
    if not isinstance(path, str) or ("POST", path) not in KNOWN:
        raise BadBody("path is none of the routes that engines serve; send the path of a request", "path")
    if not isinstance(inner, dict):
        raise BadBody("body is not an object; send the body of a request", "body", code="invalid_type")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= MOST_HANDLE_SECONDS:
        raise BadBody(f"ttl_seconds is not a whole number of 1 to {MOST_HANDLE_SECONDS}; send one", "ttl_seconds")
    return Enclosed(path, inner, seconds)


def checked_route(purpose: Purpose, route: Route) -> Route:
    """A route of which something can be told.

    Raises:
        BadBody: Its requests never reach a cache.
    """
    if purpose is not Purpose.ENGINE and not route.cached:
        raise BadBody("requests of that path never reach a cache; name another", "path")
    return route


def models_answer(models_of_tenant: Mapping[str, object]) -> Answer:
    """The list of the models that a tenant may use, as OpenAI gives it."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "cachescope"} for name in sorted(models_of_tenant)]
    return Answer(200, orjson.dumps({"object": "list", "data": models}), "models")


def handle_answer(handle: str, expires_at: int) -> Answer:
    """A handle, and until when it is worth anything, in seconds since 1970."""
    document = {"object": "cachescope.handle", "handle": handle, "expires_at": expires_at}
    return Answer(200, orjson.dumps(document), Purpose.HANDLE.value)


def cache_keys_answer(keys: CacheKeys, scope_class: ScopeClass, reuse: Reuse) -> Answer:
    """The keys of all caches, and whether anything may be reused at all."""
    document = {"object": "cachescope.cache_keys", "scope_class": scope_class.value, "reuse": reuse.value, **vars(keys)}
    return Answer(200, orjson.dumps(document), Purpose.CACHE_KEYS.value)
