"""Everything that the checks look at, as it was gathered at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cachescope.cli.doctor.findings import Document, Documents, Unseen

OPERATOR_LEASE = "operator's Lease"
ROOT_KEYS = "root keys"
NOT_ASKED = Unseen("it was not asked for")


@dataclass(frozen=True)
class Observed:
    """An installation.

    Attributes:
        namespace: Its namespace, that of the root keys.
        now: When it was gathered.
        fault: Why the API server cannot be reached; empty when it can.
        kinds: Plural names of the kinds of our group that it serves.
        documents: Objects by plural name: our kinds (in Cluster mode of all namespaces), CRDs, Deployments of operator and gateway,
            pods of engines and gateways, roles and bindings; and `OPERATOR_LEASE` and `ROOT_KEYS`.
        key_secrets: API key Secrets that Tenants name, by namespace and name.
    """

    namespace: str
    now: datetime
    fault: str = ""
    kinds: frozenset[str] | Unseen = NOT_ASKED
    documents: Mapping[str, Documents] = field(default_factory=dict)
    key_secrets: Mapping[tuple[str, str], Documents] = field(default_factory=dict)

    def of(self, name: str) -> Documents:
        """Objects by plural name."""
        return self.documents.get(name, NOT_ASKED)

    def seen(self, name: str) -> list[Document]:
        """The same, and none where they could not be read."""
        found = self.of(name)
        return [] if isinstance(found, Unseen) else found


def label(document: Document, name: str) -> str:
    """A label, or nothing."""
    return str((document["metadata"].get("labels") or {}).get(name, ""))


def title(document: Document) -> str:
    """An object as `namespace/name`."""
    return f"{document['metadata'].get('namespace', '')}/{document['metadata']['name']}".lstrip("/")
