"""The published test vectors: `python tests/unit/make_vectors.py` writes them, with `--check` it only compares.

It needs the standard library and `cachescope.core` alone, so that every interpreter that may run a guard can compute them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cachescope.core import identity
from cachescope.core.digests import sha256
from cachescope.core.epochs import EpochVector, target_name
from cachescope.core.frames import frame
from cachescope.core.heads import Epochs, Seen
from cachescope.core.keys import Key, derive
from cachescope.core.permits import Permit, write_permit
from cachescope.core.record import EngineDigests, IdentityRecord
from cachescope.core.salts import salt
from cachescope.core.scopes import Credential, Subject, namespace
from cachescope.core.statements import Statement, write_statement
from cachescope.core.types import Digest, Epoch, Reuse, ScopeClass, TargetKind, TargetName

FOLDER = Path(__file__).parents[2] / "docs" / "vectors"
Vectors = Iterator[dict[str, Any]]

ROOT = Key("2026-11-30", bytes(range(32)))
POOL_TARGET = target_name(derive(ROOT, "target"), TargetKind.POOL, "pool-uid")
TENANT_TARGET = target_name(derive(ROOT, "target"), TargetKind.TENANT, "red-uid")
SUBJECTS = {
    "public": Subject(ScopeClass.PUBLIC, "scope-uid", sources=(sha256(b"source"),)),
    "tenant": Subject(ScopeClass.TENANT, "scope-uid", "red-uid"),
    "compartment": Subject(ScopeClass.COMPARTMENT, "scope-uid", "red-uid", "matter"),
    "principal": Subject(ScopeClass.PRINCIPAL, "scope-uid", "red-uid", None, Credential("jwt", "https://one.example", "alice")),
    "request": Subject(ScopeClass.REQUEST, "scope-uid", "red-uid", None, Credential("api-key", "", "alice")),
}
RECORD = IdentityRecord(
    cache_object="kv",
    pool_uid="pool-uid",
    scope=ScopeClass.TENANT,
    namespace=namespace(derive(ROOT, "namespace"), SUBJECTS["tenant"]),
    content_digest=sha256(b"content"),
    engine=EngineDigests(sha256(b"model"), sha256(b"tokenizer"), sha256(b"runtime")),
    prompt_bundle_digest=Digest(""),
    toolset_digest=Digest(""),
    policy_revision=3,
    lineages=("lineage", "authorization-lineage"),
    epochs=EpochVector.of({POOL_TARGET: Epoch(4), TENANT_TARGET: Epoch(2)}),
)
PERMIT = Permit(
    id="00112233445566778899aabbccddeeff",
    pool_uid="pool-uid",
    pod_uid="pod-uid",
    boot_id="ffeeddccbbaa99887766554433221100",
    tick=123456,
    method="POST",
    path="/v1/chat/completions",
    body_digest=sha256(b"{}"),
    record_digest=RECORD.digest(),
    runtime_digest=RECORD.engine.runtime,
    scope=RECORD.scope,
    epochs=Epochs(EpochVector.of({POOL_TARGET: Epoch(4)}), EpochVector.of({TENANT_TARGET: Epoch(2)})),
    seen=Seen("lineage", 17, "authorization-lineage", 5),
    reuse=Reuse.SALTED,
)
STATEMENT = Statement(
    nonce="abcdefghijklmnopqrstuv",
    pool_uid="pool-uid",
    pod_uid="pod-uid",
    boot_id=PERMIT.boot_id,
    tick=PERMIT.tick,
    engine=RECORD.engine,
    lineage="lineage",
    sequence=17,
    authorization_lineage="authorization-lineage",
    authorization_sequence=5,
    right_ms=41_000,
    version="0.1.0",
)


def frames() -> Vectors:
    """Frames; bytes are written as `{"hex": ...}`."""
    for fields in ([], [""], ["a", "b"], ["ab"], ["a", ["b"]], [7, -7], [None], ["é"], [["a"], []]):
        yield {"fields": fields, "frame": frame(*fields).hex()}
    yield {"fields": [{"hex": "00ff"}], "frame": frame(b"\x00\xff").hex()}


def keys() -> Vectors:
    """Keys derived from the root."""
    alone = ("salt", "namespace", "target", "cache-key", "handle")
    for purpose, context in (("permit", ["pool-uid"]), ("permit", ["other-uid"]), *((purpose, list[str]()) for purpose in alone)):
        derived = derive(ROOT, purpose, *context).secret.hex()
        yield {"root": ROOT.secret.hex(), "id": ROOT.id, "purpose": purpose, "context": context, "key": derived}


def namespaces() -> Vectors:
    """Namespaces, with the key of purpose `namespace`."""
    for name, subject in SUBJECTS.items():
        yield {"name": name, "subject": _plain(subject), "namespace": namespace(derive(ROOT, "namespace"), subject)}


def targets() -> Vectors:
    """Target names, with the key of purpose `target`."""
    identities = {TargetKind.PRINCIPAL: ("red-uid", "jwt", "https://one.example", "alice")}
    for kind in TargetKind:
        identity = identities.get(kind, ("some-uid",))
        yield {"kind": kind.value, "identity": list(identity), "target": target_name(derive(ROOT, "target"), kind, *identity)}


def records() -> Vectors:
    """Digests of identity records."""
    for record in _records():
        yield {"record": _plain(record), "digest": record.digest()}


def salts() -> Vectors:
    """Salts, with the key of purpose `salt`."""
    for record in _records():
        nonce = bytes(range(16)) if record.scope is ScopeClass.REQUEST else None
        yield {
            "record": _plain(record),
            "nonce": nonce.hex() if nonce else None,
            "salt": salt(derive(ROOT, "salt"), record, nonce),
        }


def cache_keys() -> Vectors:
    """Keys of caches, with the key of purpose `cache-key`."""
    for record in _records():
        nonce = bytes(range(16)) if record.scope is ScopeClass.REQUEST else None
        found = identity.cache_keys(derive(ROOT, "cache-key"), record, request=sha256(b"request"), nonce=nonce)
        yield {
            "record": _plain(record),
            "request": sha256(b"request"),
            "nonce": nonce.hex() if nonce else None,
            "keys": _plain(found),
        }


def permits() -> Vectors:
    """Permits, with the key of purpose `permit` and the pool's UID as context."""
    fresh = replace(PERMIT, path="/v1/a%20b?c=d", reuse=Reuse.FRESH, tick=0)
    for permit in (PERMIT, fresh, replace(PERMIT, adapter_digest=sha256(b"adapter"))):
        yield {"permit": _plain(permit), "header": write_permit(derive(ROOT, "permit", permit.pool_uid), permit)}


def statements() -> Vectors:
    """Statements, with the same key as permits."""
    for statement in (STATEMENT, replace(STATEMENT, adapters={"an-adapter": sha256(b"adapter")})):
        yield {"statement": _plain(statement), "header": write_statement(derive(ROOT, "permit", "pool-uid"), statement)}


MAKERS: tuple[Callable[[], Vectors], ...] = (frames, keys, namespaces, targets, records, salts, cache_keys, permits, statements)


def documents() -> dict[str, str]:
    """Every file's name and text."""
    made = {f"{maker.__name__}.json": {"about": maker.__doc__, "vectors": list(maker())} for maker in MAKERS}
    return {name: json.dumps(document, indent=2, ensure_ascii=False) + "\n" for name, document in made.items()}


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` say which differ."""
    different = [
        name for name, text in documents().items() if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != text
    ]
    if "--check" in arguments:
        sys.stderr.writelines(f"{name} differs; run python tests/unit/make_vectors.py\n" for name in different)
        return 1 if different else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


def _records() -> Iterator[IdentityRecord]:
    yield RECORD
    yield replace(RECORD, engine=replace(RECORD.engine, adapter=sha256(b"adapter")), toolset_digest=sha256(b"tools"))
    yield replace(RECORD, epochs=EpochVector.of({POOL_TARGET: Epoch(5), TENANT_TARGET: Epoch(2)}))
    request = namespace(derive(ROOT, "namespace"), SUBJECTS["request"])
    yield replace(RECORD, scope=ScopeClass.REQUEST, namespace=request)
    yield replace(RECORD, sources=(("memory", 3),))


def _plain(value: Any) -> Any:
    fields = asdict(value)
    if isinstance(value, IdentityRecord):
        fields["epochs"] = _pairs(value.epochs)
    elif isinstance(value, Permit):
        fields["epochs"] = {"cache": _pairs(value.epochs.cache), "authorization": _pairs(value.epochs.authorization)}
    return fields


def _pairs(vector: EpochVector) -> list[list[TargetName | Epoch]]:
    return [[target, epoch] for target, epoch in vector.entries]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
