"""A retrieval cache and an answer cache of an application, separated as the engine's cache is: by the keys that the gateway gives.

They need the standard library alone. The application must be listed in a CacheScope of its tenant (`applications`).
"""

from __future__ import annotations

import hashlib
import json
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

ROUTE = "/v1/chat/completions"
Keys = Mapping[str, str]


def ask_gateway(base_url: str, api_key: str, body: Mapping[str, Any], context: Mapping[str, Any]) -> Keys:
    """The keys of all caches for one request, by the request that would be sent and the context that it would have."""
    headers = {
        "authorization": f"Bearer {api_key}",
        "content-type": "application/json",
        "x-cachescope-context": json.dumps(context),
    }
    data = json.dumps({"path": ROUTE, "body": body}).encode()
    request = urllib.request.Request(f"{base_url}/cachescope/v1/cache-keys", data, headers)  # noqa: S310 - the gateway's address
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the same
        keys: Keys = json.load(answer)
    return keys


def retrieved(store: dict[str, str], keys: Keys, query: str, retrieve: Callable[[str], str]) -> str:
    """Passages for a query: `retrieval_scope` separates, a digest of the query finds."""
    if keys["reuse"] != "Salted":
        return retrieve(query)  # nothing of this request is kept: its keys are never given again
    place = f"{keys['retrieval_scope']}/{hashlib.sha256(query.encode()).hexdigest()}"
    if place not in store:
        store[place] = retrieve(query)
    return store[place]


def answered(store: dict[str, str], keys: Keys, generate: Callable[[], str]) -> str:
    """The answer to a request: `response_scope` is its whole key, since it holds every word of the request."""
    if keys["reuse"] != "Salted":
        return generate()  # as above
    place = keys["response_scope"]
    if place not in store:
        store[place] = generate()
    return store[place]
