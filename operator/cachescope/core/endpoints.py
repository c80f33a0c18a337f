"""Endpoints and the choice between them: bounded-load rendezvous.

Rules:

- the same key prefers the same endpoint, so that a prefix is warm where its next request goes; there is no index of prompts, which
  could be observed;
- nobody gets more than 1.25 times the mean number of requests in flight: the next endpoint of the key's own order takes over
  (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016; Thaler, Ravishankar: rendezvous, 1998);
- an endpoint that leaves moves only the keys that preferred it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LOAD_FACTOR_PERCENT = 125


@dataclass(frozen=True)
class Endpoint:
    """One ready engine.

    Attributes:
        pool: Namespace and name of the pool (`pool_key`).
        pod_uid: UID of its pod.
        address: `address:port` of its guard.
    """

    pool: str
    pod_uid: str
    address: str


def pool_key(namespace: str, name: str) -> str:
    """How a pool is named among those of all namespaces."""
    return f"{namespace}/{name}"


def ranked(key: bytes, candidates: Sequence[Endpoint]) -> list[Endpoint]:
    """The order in which a key prefers endpoints; at most 64 bytes of the key count."""
    return sorted(candidates, key=lambda endpoint: _score(key, endpoint), reverse=True)


def choose(key: bytes, candidates: Sequence[Endpoint], in_flight: Mapping[str, int]) -> Endpoint | None:
    """Choose the endpoint of a request.

    Args:
        key: What must meet: bytes made from the request's namespace.
        candidates: Routable endpoints.
        in_flight: Requests in flight by address.

    Returns:
        The first endpoint in the key's order that is below its bound, or `None` without candidates.
    """
    if not candidates:
        return None
    total = sum(in_flight.get(endpoint.address, 0) for endpoint in candidates) + 1
    bound = -(-total * LOAD_FACTOR_PERCENT // (100 * len(candidates)))
    order = ranked(key, candidates)
    return next((endpoint for endpoint in order if in_flight.get(endpoint.address, 0) < bound), order[0])


def _score(key: bytes, endpoint: Endpoint) -> bytes:
    return hashlib.blake2b(endpoint.pod_uid.encode(), key=key[:64], digest_size=16).digest()
