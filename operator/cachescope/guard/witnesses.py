"""Witnesses: copies of the heads that a guard read, which show the operator what stood before a restore of the cluster.

Rules:

- a copy is what was read, as it was read: the operator verifies its seal, and the guard cannot;
- it is given up for a later state of its history alone. A state that does not follow from it is what a restore leaves behind, and
  then the copy is what counts;
- copies are kept in a file of the pod, so that a new process publishes from its first lease what the one before had read;
- they are never used as heads: what they say may be of a lineage that is over. But a head that lacks something of one gives no
  right: somebody restored the cluster, and the operator has not merged it yet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cachescope.core.errors import SpecError
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledger_seals import witness
from cachescope.core.ledgers import Ledger, LedgerFork
from cachescope.core.lineages import taken

_LOG = logging.getLogger(__name__)
_FILE = "witnesses.json"


class Witnesses:
    """The witnesses of one process.

    Args:
        folder: Where they are kept, or `None` to keep none.

    Attributes:
        published: The copies, by what leases name the ledgers by.
    """

    def __init__(self, folder: Path | None) -> None:
        self.published: dict[str, Mapping[str, Any]] = {}
        self._path = folder / _FILE if folder is not None else None
        self._ledgers: dict[str, Ledger] = {}
        self._kept: dict[str, Ledger] = {}  # of an earlier process, until this one read what follows
        self._saved: dict[str, Mapping[str, Any]] = {}

    @property
    def unsaved(self) -> bool:
        """Whether something is published that the file has not."""
        return self._path is not None and self._saved != self.published

    def load(self) -> None:
        """Read what an earlier process of this pod kept; what cannot be read is as good as nothing, and is said."""
        if self._path is None:
            return
        try:
            kept = dict(json.loads(self._path.read_bytes()))
            found = {name: parse_ledger(spec) for name, spec in kept.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, RecursionError, SpecError) as error:
            _LOG.warning("the witnesses of before cannot be read; this pod has none", extra={"problem": type(error).__name__})
            return
        self._ledgers, self._kept, self.published, self._saved = found, dict(found), kept, dict(kept)

    def take(self, name: str, ledger: Ledger, spec: Mapping[str, Any]) -> None:
        """Publish a copy of what was read, unless the one that is published is of a later state, or of another history.

        Args:
            name: By what leases name the ledger.
            ledger: What was read.
            spec: What it was read from.
        """
        known = self._ledgers.get(name)
        if known is not None and (known.mark == ledger.mark or not _follows(known, ledger)):
            return
        self._kept.pop(name, None)
        self._ledgers[name] = ledger
        self.published[name] = witness(spec)

    def hold(self, name: str, ledger: Ledger) -> None:
        """Hold what was read against what an earlier process of this pod had read; the reader knows what this one did.

        Raises:
            LedgerFork: It does not follow from that, or lacks something of it.
        """
        taken(self._kept.get(name), ledger)

    def save(self) -> None:
        """Keep what is published; a file that cannot be written is said, and harms nothing but that."""
        if self._path is None:
            return
        saving = dict(self.published)
        try:
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(saving))
            beside.replace(self._path)
        except OSError as error:
            _LOG.warning("the witnesses cannot be kept; mount a writable folder", extra={"problem": type(error).__name__})
        self._saved = saving


def _follows(known: Ledger, ledger: Ledger) -> bool:
    try:
        taken(known, ledger)
    except LedgerFork:
        return False
    return True
