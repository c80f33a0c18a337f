"""The identity record: the full tuple that a cached prefix is bound to.

Everything that can change the token sequence or the attention is in it. It is compared whole; its digest travels in permits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cachescope.core.digests import Plain, digest
from cachescope.core.epochs import EpochVector
from cachescope.core.types import Digest, Namespace, ScopeClass

ABSENT = Digest("")
"""The digest of something that this request does not have."""


@dataclass(frozen=True)
class EngineDigests:
    """What the process that will serve the request really loaded, as its guard computed it.

    Attributes:
        model: Weights and their configuration.
        tokenizer: Tokenizer files and chat template.
        runtime: Engine, version, hash algorithm and the arguments that change tokens or attention.
        adapter: LoRA adapter, or empty.
    """

    model: Digest
    tokenizer: Digest
    runtime: Digest
    adapter: Digest = ABSENT


@dataclass(frozen=True)
class Loaded:
    """What one engine process loaded, once for all requests.

    Attributes:
        engine: Its model, tokenizer and runtime.
        adapters: Digest of each adapter that it serves, by the name that requests ask for.
        version: The version that the engine itself says it has; empty where it is not asked.
    """

    engine: EngineDigests
    adapters: Mapping[str, Digest] = field(default_factory=dict)
    version: str = ""

    def serving(self, adapter: str = "") -> EngineDigests:
        """What serves a request for an adapter, or without a name for the model itself.

        Raises:
            KeyError: It did not load that adapter.
        """
        return replace(self.engine, adapter=self.adapters[adapter]) if adapter else self.engine


@dataclass(frozen=True)
class IdentityRecord:
    """One request's identity as a cache sees it.

    Attributes:
        cache_object: What is cached: `kv` for prefix blocks of a pool.
        pool_uid: UID of the pool whose engines hold the blocks.
        scope: The class.
        namespace: Whom the scope separates, hashed.
        content_digest: Digest of what the request says; it is not part of the salt, so that prefixes meet.
        engine: What the chosen endpoint loaded.
        prompt_bundle_digest: Approved prompt bundle of the scope, or empty.
        toolset_digest: Tool schemas of the request, or empty.
        policy_revision: Revision of this scope's own policy.
        lineages: Ids of the histories of the pool's ledger and of the authorization ledger.
        epochs: Epochs of every target at or above the class.
        sources: Ids and epochs of what a trusted application says the texts were taken from; no part of the salt.
    """

    cache_object: str
    pool_uid: str
    scope: ScopeClass
    namespace: Namespace
    content_digest: Digest
    engine: EngineDigests
    prompt_bundle_digest: Digest
    toolset_digest: Digest
    policy_revision: int
    lineages: tuple[str, str]
    epochs: EpochVector
    sources: tuple[tuple[str, int | None], ...] = ()

    def fields(self) -> dict[str, Plain]:
        """Every field as a plain value."""
        return {**vars(self), "scope": self.scope.value, "engine": vars(self.engine), "epochs": self.epochs.entries}

    def digest(self) -> Digest:
        """Digest of the whole record over canonical JSON."""
        return digest(self.fields())
