"""An engine's process with the plugin in its injected folder: the files that a pod mounts, and the variables that it has."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cachescope.core.approvals import Contents, PrefixDigests, write_table
from cachescope.core.digests import sha256
from cachescope.core.encodings import encode
from cachescope.core.keys import Key
from cachescope.core.ledgers import Lineage, Mark
from cachescope.core.segments import Segment, SegmentedSalt, approval_set, write_segmented
from cachescope.core.types import Digest, ScopeClass
from cachescope.guard.engine_digests import tokenizer_digest
from cachescope.guard.engine_plugin.reports import Report, boot_ms, read_reports
from tests.conformance.engines import venvs
from tests.conformance.engines.catalogue import ENGINES, ROOT

ENGINE = next(engine for engine in ENGINES if engine.name == "vLLM")
PLUGIN = "cachescope"
POOL = "pool-uid"
KEY = Key("2026-11-30", bytes(range(32)))
SET = approval_set("scope-uid")
UNIT = 16
_INJECTED = ("__init__.py", "core", "guard", "leases")


def salt(*names: tuple[ScopeClass, str]) -> str:
    """A segmented salt of these subjects."""
    segments = tuple(Segment(scope, encode(bytes.fromhex(sha256(name.encode())[7:39]))) for scope, name in names)
    return write_segmented(SegmentedSalt(SET, segments))


def of_tenant(name: str) -> str:
    """The salt of a tenant behind what everybody may share."""
    return salt((ScopeClass.PUBLIC, "everybody"), (ScopeClass.TENANT, name))


def of_principal(tenant: str, name: str) -> str:
    """The salt of one of a tenant's principals."""
    named = ((ScopeClass.TENANT, tenant), (ScopeClass.PRINCIPAL, f"{tenant}/{name}"))
    return salt((ScopeClass.PUBLIC, "everybody"), *named)


@dataclass(frozen=True)
class Place:
    """One process's files.

    Attributes:
        folder: Where they are.
        python: The engine's interpreter.
        model: The tiny model.
    """

    folder: Path
    python: Path
    model: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the process: those of the conformance suite's engines, the guard's, and the plugin's name."""
        own = {
            "APPROVALS_FILE": self.folder / "approvals",
            "PERMIT_KEYS_DIR": self.folder / "keys",
            "MODEL_PATH": self.model,
            "STATE_DIR": self.folder / "state",
            "POOL_UID": POOL,
        }
        named = {f"CACHESCOPE_{name}": str(value) for name, value in own.items()}
        return {**venvs.environment(ENGINE), **named, "VLLM_PLUGINS": PLUGIN, "PYTHONPATH": str(self.folder / "injected")}

    def reports(self) -> tuple[Report, ...]:
        """What its processes say now."""
        return read_reports(self.folder / "state", boot_ms())

    def approve(self, approved: Mapping[ScopeClass, Sequence[Sequence[int]]], *, sequence: int, unit: int = UNIT) -> Mark:
        """Mount a table that approves these token sequences, and return its version."""
        tokenizer = tokenizer_digest(self.model, [])
        mark = Mark(Lineage(1, "0" * 32), sequence, Digest("sha256:" + "a" * 64))
        digests = PrefixDigests(KEY, tokenizer, unit)
        named = {f"{scope.value}-{at}": tokens for scope, many in approved.items() for at, tokens in enumerate(many)}
        prefixes = {name: digests.prefix(tokens) for name, tokens in named.items()}
        classes = {scope: [f"{scope.value}-{at}" for at in range(len(many))] for scope, many in approved.items()}
        text = write_table(KEY, Contents(POOL, mark, tokenizer, unit, prefixes, {SET: classes}))
        written = self.folder / "written"
        written.write_text(text)
        written.rename(self.folder / "approvals")
        return mark


def place(folder: Path) -> Place:
    """A place in a folder that is empty: vLLM's environment and the tiny model are made if they are not there."""
    for name in ("keys", "state", "injected/cachescope"):
        (folder / name).mkdir(parents=True)
    (folder / "keys" / KEY.id).write_text(KEY.secret.hex())
    for name in _INJECTED:
        source, target = ROOT / "operator" / "cachescope" / name, folder / "injected" / "cachescope" / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    shutil.copytree(ROOT / "images" / "guard" / "plugin", folder / "injected", dirs_exist_ok=True)
    python = venvs.ready(ENGINE)
    return Place(folder, python, venvs.model(ENGINE, python))
