"""What would be reused, counted while a pool is at stage `Observe` and nothing is.

Rules:

- a prompt is cut into chunks of bytes, each digested together with all before it, so that a conversation that goes on finds what it
  began with; what comes beside the prompt (tools, the kind of route) is part of the first;
- the digests are keyed by the salt that the request would have: what would have another one, of another tenant, epoch, policy or
  model, is never compared with it, and nobody can tell anything from what is kept;
- what is kept is bounded, and so is what is looked at of one prompt;
- bytes are not tokens, and a chunk is no block of the engine: it is an estimate.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import orjson
from prometheus_client import CollectorRegistry, Counter

from cachescope.core.keys import Key
from cachescope.core.record import IdentityRecord
from cachescope.core.salts import salt
from cachescope.core.types import ScopeClass
from cachescope.gateway.binding import Asker
from cachescope.gateway.bodies import Sanitized

CHUNK_BYTES: Final = 256
MOST_CHUNKS: Final = 256
"""Of one prompt: what comes after 64 KiB is not looked at."""
MOST_KEPT: Final = 100_000
"""Digests of all pools; the least lately seen go first. With what Python needs for each they take some 12 MiB."""
_PROMPTS: Final = ("messages", "prompt", "input")
_DIGEST_BYTES: Final = 16


class WouldBeHits:
    """Counts for one gateway.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["pool_namespace", "pool", "scope_class"]
        self._seen = Counter(
            "cachescope_observed_prompt_bytes", "Bytes of prompts that were looked at, at stage Observe.", labels, registry=registry
        )
        self._found = Counter(
            "cachescope_observed_reusable_bytes",
            "Of these, bytes that an earlier request of the scope began with.",
            labels,
            registry=registry,
        )
        self._kept: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """Digests that are kept."""
        return len(self._kept)

    def count(self, key: Key, asker: Asker, record: IdentityRecord, cleaned: Sanitized) -> None:
        """Count a request, unless its class never reuses or its route reaches no cache.

        Args:
            key: The salt key.
            asker: Who asks, of which pool.
            record: The request's identity.
            cleaned: Its body.
        """
        if asker.pool.spec.sharing.stage != "Observe" or record.scope is ScopeClass.REQUEST or not cleaned.route.cached:
            return
        digests = list(_digests(salt(key, record).encode(), cleaned))
        labels = (asker.pool.namespace, asker.pool.name, record.scope.value)
        self._seen.labels(*labels).inc(CHUNK_BYTES * len(digests))
        self._found.labels(*labels).inc(CHUNK_BYTES * self._leading(digests))
        self._keep(digests)

    def _leading(self, digests: list[bytes]) -> int:
        """How many chunks are known from the beginning on: an engine reuses no more than a prefix."""
        return next((number for number, digest in enumerate(digests) if digest not in self._kept), len(digests))

    def _keep(self, digests: list[bytes]) -> None:
        for digest in digests:
            self._kept[digest] = None
            self._kept.move_to_end(digest)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def _digests(secret: bytes, cleaned: Sanitized) -> Iterator[bytes]:
    """A digest of each whole chunk and all before it."""
    name = next((item for item in _PROMPTS if item in cleaned.content), "")
    beside = {field: value for field, value in cleaned.content.items() if field != name}
    # Without its end: a list that goes on begins with the same bytes.
    prompt = orjson.dumps(cleaned.content.get(name))[:-1]
    chained = hashlib.blake2b(
        orjson.dumps([cleaned.route.dialect.value, beside], option=orjson.OPT_SORT_KEYS), key=secret, digest_size=_DIGEST_BYTES
    )
    for start in range(0, min(len(prompt) // CHUNK_BYTES, MOST_CHUNKS) * CHUNK_BYTES, CHUNK_BYTES):
        chained.update(prompt[start : start + CHUNK_BYTES])
        yield chained.copy().digest()
