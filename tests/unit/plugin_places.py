"""A process in which the plugin can load: a vLLM of fakes that is the expected one, and the files that the plugin reads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.approvals import Contents, Expected, write_table
from cachescope.core.keys import Key
from cachescope.guard.engine_plugin import entry, internals
from cachescope.guard.engine_plugin.reports import Report
from cachescope.guard.engine_plugin.tables import Tables
from tests.unit.approval_tables import POOL, TOKENIZER
from tests.unit.core_strategies import KEY
from tests.unit.vllm_fakes import Hash, Short, hash_block_tokens, installed

PARTS = ("core.kv_cache_utils:hash_block_tokens", "core.block_pool:BlockPool", "core.kv_cache_manager:KVCacheManager")


@dataclass
class Place:
    """One process.

    Attributes:
        modules: Its vLLM.
        folder: Its files.
        reports: What it was asked to keep reporting.
    """

    modules: Any
    folder: Path
    reports: list[Callable[[], Report]]

    @property
    def problem(self) -> str:
        """Why it shares no segments, as it says itself."""
        (report,) = self.reports
        return report().problem

    def write_key(self, key: Key = KEY) -> None:
        (self.folder / "keys" / key.id).write_text(key.secret.hex())

    def approve(self, made: Contents, key: Key = KEY) -> None:
        """Mount a table for this process's tokenizer; digests of `made` are of the tests' own."""
        (self.folder / "approvals").write_text(write_table(key, made))

    def tables(self) -> Tables:
        return Tables(self.folder / "approvals", self.folder / "keys", lambda: Expected(POOL, TOKENIZER))


def place_of(monkeypatch: pytest.MonkeyPatch, folder: Path, *functions: Hash) -> Place:
    """A place whose vLLM hashes with these functions beside SHA-256."""
    place = Place(installed(monkeypatch), folder, [])
    for name in ("keys", "state", "model"):
        (folder / name).mkdir()
    (folder / "model" / "tokenizer.json").write_text("{}")
    for variable, name in (
        ("APPROVALS_FILE", "approvals"),
        ("PERMIT_KEYS_DIR", "keys"),
        ("MODEL_PATH", "model"),
        ("STATE_DIR", "state"),
    ):
        monkeypatch.setenv(f"CACHESCOPE_{variable}", str(folder / name))
    monkeypatch.setenv("CACHESCOPE_POOL_UID", POOL)
    monkeypatch.setattr(sys, "argv", ["vllm"])
    monkeypatch.setattr(entry, "engine_version", lambda: "vllm 0.32.0+cu129")
    monkeypatch.setattr(entry, "tokenizer_digest", lambda _model, _args: TOKENIZER)
    monkeypatch.setattr(entry, "keep_reporting", lambda _folder, report: place.reports.append(report))
    names = [f"vllm.v1.{part}" for part in PARTS]
    monkeypatch.setattr(internals, "SOURCES", {"0.32.0": {name: internals.source_digest(name) for name in names}})
    known = {item.__name__: hash_block_tokens(item, bytes(32), range(16), internals._KEYS).hex() for item in functions}
    monkeypatch.setattr(internals, "KNOWN", {**internals.KNOWN, **known})
    serialize = internals.ALGORITHMS["sha256"][0]
    monkeypatch.setattr(internals, "ALGORITHMS", {**internals.ALGORITHMS, "short_hash": (serialize, Short)})
    place.write_key()
    return place
