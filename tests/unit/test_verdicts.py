"""Each fact of the catalogue, as a pool that rests on it and the verdict that it must get.

The expected verdicts are written by hand from what was read of the engines, never computed from the data files.
"""

from __future__ import annotations

import pytest

from cachescope.engines.routes import Capability
from tests.unit.judged_pools import BROKEN, CHAT, ENFORCED, UNKNOWN, UNSUPPORTED, capability, judged

# Engine, version, path, verdict. Versions stand around each floor, above the last one that was read, and beside what is a release.
VERSIONS = [
    # vLLM as a whole: salts are typed since 0.31.0, and 0.33.0 is the last that was read.
    ("vLLM", "0.8.5", CHAT, UNSUPPORTED),
    ("vLLM", "0.9.0", CHAT, BROKEN),
    ("vLLM", "0.10.2", CHAT, BROKEN),
    ("vLLM", "0.30.0", CHAT, BROKEN),
    ("vLLM", "0.30.9", CHAT, BROKEN),
    ("vLLM", "0.30.0.post1", CHAT, BROKEN),
    ("vLLM", "0.31.0.dev0", CHAT, UNKNOWN),
    ("vLLM", "0.31.0a1", CHAT, UNKNOWN),
    ("vLLM", "0.31.0rc1", CHAT, UNKNOWN),
    ("vLLM", "0.31.0", CHAT, ENFORCED),
    ("vLLM", "0.31", CHAT, ENFORCED),
    ("vLLM", "v0.31.0", CHAT, ENFORCED),
    ("vLLM", "0.31.0.post1", CHAT, ENFORCED),
    ("vLLM", "0.31.1", CHAT, ENFORCED),
    ("vLLM", "0.32.0", CHAT, ENFORCED),
    ("vLLM", "0.32.0+cpu", CHAT, UNKNOWN),
    ("vLLM", "0.32.1.dev3+g1234567", CHAT, UNKNOWN),
    ("vLLM", "0.33.0", CHAT, ENFORCED),
    ("vLLM", "0.33.0.post1", CHAT, UNKNOWN),
    ("vLLM", "0.33.1", CHAT, UNKNOWN),
    ("vLLM", "0.34.0", CHAT, UNKNOWN),
    ("vLLM", "1.0.0", CHAT, UNKNOWN),
    ("vLLM", "1!0.32.0", CHAT, UNKNOWN),
    ("vLLM", "latest", CHAT, UNKNOWN),
    ("vLLM", "nightly", CHAT, UNKNOWN),
    ("vLLM", "", CHAT, UNKNOWN),
    ("vLLM", "sha256:" + "0" * 64, CHAT, UNKNOWN),
    ("vLLM", "0.32.0@sha256:" + "0" * 64, CHAT, UNKNOWN),
    ("vLLM", "0.32.x", CHAT, UNKNOWN),
    # vLLM by route, at releases of whatever age.
    ("vLLM", "0.9.0", "/v1/completions", UNSUPPORTED),
    ("vLLM", "0.10.0", "/v1/completions", BROKEN),
    ("vLLM", "0.31.0", "/v1/completions", ENFORCED),
    ("vLLM", "0.9.2", "/v1/responses", UNSUPPORTED),
    ("vLLM", "0.10.0", "/v1/responses", BROKEN),
    ("vLLM", "0.32.0", "/v1/responses", ENFORCED),
    ("vLLM", "0.18.0", "/v1/chat/completions/batch", UNSUPPORTED),
    ("vLLM", "0.24.0", "/v1/chat/completions/batch", UNSUPPORTED),
    ("vLLM", "0.25.0", "/v1/chat/completions/batch", BROKEN),
    ("vLLM", "0.31.0", "/v1/chat/completions/batch", ENFORCED),
    ("vLLM", "0.11.0", "/v1/messages", UNSUPPORTED),
    # Seen by the conformance suite; as a whole it is broken by adapters, which the suite does not try.
    *[("vLLM", "0.12.0", path, BROKEN) for path in (CHAT, "/v1/completions", "/v1/responses")],
    ("vLLM", "0.12.0", "/v1/messages", UNSUPPORTED),
    ("vLLM", "0.26.0", "/v1/messages", UNSUPPORTED),
    ("vLLM", "0.27.0", "/v1/messages", BROKEN),
    ("vLLM", "0.31.0", "/v1/messages", ENFORCED),
    *[("vLLM", "0.15.0", path, UNSUPPORTED) for path in ("/v1/embeddings", "/pooling", "/classify", "/score", "/rerank")],
    *[("vLLM", "0.16.0", path, BROKEN) for path in ("/v1/embeddings", "/pooling", "/classify", "/score", "/rerank")],
    *[("vLLM", "0.24.0", path, BROKEN) for path in ("/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank")],
    *[("vLLM", "0.31.0", path, ENFORCED) for path in ("/v1/embeddings", "/pooling", "/classify", "/score", "/v2/rerank")],
    ("vLLM", "0.31.0", "/generative_scoring", UNSUPPORTED),
    ("vLLM", "0.31.9", "/generative_scoring", UNSUPPORTED),
    ("vLLM", "0.32.0", "/generative_scoring", ENFORCED),
    ("vLLM", "0.11.9", "/inference/v1/generate", UNSUPPORTED),
    ("vLLM", "0.12.0", "/inference/v1/generate", BROKEN),
    ("vLLM", "0.31.0", "/inference/v1/generate", ENFORCED),
    *[("vLLM", "0.33.0", path, UNSUPPORTED) for path in ("/v2/chat", "/v2/embed", "/v1/audio/transcriptions", "/v1/realtime")],
    ("vLLM", "latest", "/v2/chat", UNSUPPORTED),
    # SGLang: pairs are kept apart since 0.5.18, storage since 0.5.20; 0.5.23 is the last that was read.
    ("SGLang", "0.5.2", CHAT, UNSUPPORTED),
    ("SGLang", "0.5.3", CHAT, BROKEN),
    ("SGLang", "0.5.17", CHAT, BROKEN),
    ("SGLang", "0.5.18", CHAT, BROKEN),
    ("SGLang", "0.5.19", CHAT, BROKEN),
    ("SGLang", "0.5.19.post9", CHAT, BROKEN),
    ("SGLang", "0.5.20rc2", CHAT, UNKNOWN),
    ("SGLang", "0.5.20.dev7", CHAT, UNKNOWN),
    ("SGLang", "0.5.20", CHAT, ENFORCED),
    ("SGLang", "0.5.20.post1", CHAT, ENFORCED),
    ("SGLang", "0.5.20+cu130", CHAT, UNKNOWN),
    ("SGLang", "0.5.23", CHAT, ENFORCED),
    ("SGLang", "0.5.23.post1", CHAT, UNKNOWN),
    ("SGLang", "0.5.24", CHAT, UNKNOWN),
    ("SGLang", "0.6.0", CHAT, UNKNOWN),
    ("SGLang", "latest", CHAT, UNKNOWN),
    ("SGLang", "0.5.2", "/v1/completions", UNSUPPORTED),
    ("SGLang", "0.5.3", "/v1/completions", BROKEN),
    ("SGLang", "0.5.20", "/v1/completions", ENFORCED),
    *[("SGLang", "0.5.17", path, UNSUPPORTED) for path in ("/v1/responses", "/generate")],
    *[("SGLang", "0.5.18", path, BROKEN) for path in ("/v1/responses", "/generate")],
    *[("SGLang", "0.5.23", path, ENFORCED) for path in ("/v1/responses", "/generate")],
    *[
        ("SGLang", "0.5.23", path, UNSUPPORTED)
        for path in (
            *("/v1/messages", "/v1/embeddings", "/classify", "/v1/score", "/v1/rerank", "/v1/decisions", "/v1/systemone"),
            *("/api/chat", "/api/generate", "/v1/audio/transcriptions", "/vertex_generate"),
        )
    ],
    ("SGLang", "0.5.23", "/v1/tokenize", UNKNOWN),
    # TensorRT-LLM: chat alone takes a salt, on a branch of which no release was read.
    *[("TensorRT-LLM", version, CHAT, UNKNOWN) for version in ("1.0.0", "1.1.0", "1.2.1", "1.4.0rc4", "latest")],
    *[("TensorRT-LLM", "1.2.1", path, UNSUPPORTED) for path in ("/v1/completions", "/v1/responses", "/v1/messages")],
    # These have no salt in anything that was read.
    *[("llama.cpp", version, CHAT, UNSUPPORTED) for version in ("2026.10.11549", "b11549", "latest", "1.0.0.dev0")],
    ("llama.cpp", "b11549", "/completion", UNSUPPORTED),
    ("llama.cpp", "b11549", "/v1/embeddings", UNSUPPORTED),
    *[("TGI", version, CHAT, UNSUPPORTED) for version in ("2.3.1", "3.3.6", "latest", "3.3.6-dev0")],
    ("TGI", "3.3.6", "/generate", UNSUPPORTED),
    *[("LMDeploy", version, CHAT, UNSUPPORTED) for version in ("0.17.0", "0.18.0", "0.19.0", "nightly")],
    ("LMDeploy", "0.18.0", "/v1/messages", UNSUPPORTED),
]


@pytest.mark.parametrize(("engine", "version", "path", "expected"), VERSIONS)
def test_a_version_of_an_engine_on_a_route(engine: str, version: str, path: str, expected: Capability) -> None:
    assert capability(judged(engine, version), path) is expected


# Engine, version, connectors as a pool declares them, verdict on chat.
CONNECTORS = [
    ("vLLM", "0.30.0", ["OffloadingConnector"], BROKEN),
    ("vLLM", "0.31.0", ["OffloadingConnector"], ENFORCED),
    ("vLLM", "0.32.0", ["OffloadingConnector"], ENFORCED),
    ("vLLM", "0.33.0", ["OffloadingConnector"], ENFORCED),
    ("vLLM", "0.34.0", ["OffloadingConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["offloadingconnector"], ENFORCED),
    ("vLLM", "0.31.0", ["SimpleCPUOffloadConnector"], ENFORCED),
    ("vLLM", "0.32.0", ["SimpleCPUOffload"], ENFORCED),
    ("vLLM", "0.31.0", ["MooncakeStoreConnector"], ENFORCED),
    ("vLLM", "0.32.0", ["MooncakeStore"], ENFORCED),
    ("vLLM", "0.32.0", ["UMBP"], UNKNOWN),
    ("vLLM", "0.33.0", ["UMBP"], ENFORCED),
    ("vLLM", "0.32.0", ["LMCacheMPConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["LMCacheMPConnector@0.4.3"], BROKEN),
    ("vLLM", "0.32.0", ["LMCacheMPConnector@0.4.4"], UNKNOWN),
    ("vLLM", "0.32.0", ["LMCacheMPConnector@0.4.5"], ENFORCED),
    ("vLLM", "0.31.0", ["LMCacheMPConnector@0.5.6"], ENFORCED),
    ("vLLM", "0.32.0", ["LMCacheMPConnector@0.5.6.dev1"], UNKNOWN),
    ("vLLM", "0.32.0", ["LMCacheMPConnector@0.5.7"], UNKNOWN),
    ("vLLM", "0.32.0", ["LMCacheMPConnector@latest"], UNKNOWN),
    ("vLLM", "0.19.0", ["LMCacheMPConnector@0.5.6"], BROKEN),
    ("vLLM", "0.32.0", ["LMCacheConnectorV1"], BROKEN),
    ("vLLM", "0.33.0", ["LMCacheConnectorV1@0.5.6"], BROKEN),
    ("vLLM", "latest", ["LMCacheConnectorV1"], BROKEN),
    ("vLLM", "0.32.0", ["HF3FS"], BROKEN),
    ("vLLM", "0.33.0", ["HF3FSKVConnector"], BROKEN),
    ("vLLM", "0.32.0", ["ExampleConnector"], BROKEN),
    ("vLLM", "0.32.0", ["SharedStorageConnector"], BROKEN),
    ("vLLM", "0.32.0", ["AIBrixOffloadingConnector"], BROKEN),
    ("vLLM", "0.32.0", ["FlexKV"], UNKNOWN),
    ("vLLM", "0.32.0", ["NixlConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["NixlPullConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["HiSparseConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["MoRIIOConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["MooncakeConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["MultiConnector", "OffloadingConnector"], UNKNOWN),
    ("vLLM", "0.32.0", ["OffloadingConnector", "LMCacheConnectorV1"], BROKEN),
    ("vLLM", "0.32.0", ["OffloadingConnector", "MooncakeStore"], ENFORCED),
    ("vLLM", "0.32.0", ["NobodysConnector"], UNKNOWN),
    ("vLLM", "0.32.0", [""], UNKNOWN),
    ("SGLang", "0.5.19", ["HiCache"], BROKEN),
    ("SGLang", "0.5.20", ["HiCache"], ENFORCED),
    ("SGLang", "0.5.20", ["HiCache", "HiCache/file"], ENFORCED),
    ("SGLang", "0.5.20", ["HiCache/mooncake"], ENFORCED),
    ("SGLang", "0.5.23", ["HiCache/nixl"], ENFORCED),
    ("SGLang", "0.5.23", ["HiCache/hf3fs"], UNKNOWN),
    ("SGLang", "0.5.23", ["HiCache/aibrix"], UNKNOWN),
    ("SGLang", "0.5.23", ["HiCache/eic"], UNKNOWN),
    ("SGLang", "0.5.20", ["LMCache@0.5.6"], BROKEN),
    ("SGLang", "0.5.21", ["LMCache@0.5.5"], BROKEN),
    ("SGLang", "0.5.21", ["LMCache@0.5.6"], ENFORCED),
    ("SGLang", "0.5.21", ["LMCache"], UNKNOWN),
    ("SGLang", "0.5.21", ["LMCache@0.6.0"], UNKNOWN),
    ("SGLang", "0.5.23", ["FlexKV"], UNKNOWN),
    ("TensorRT-LLM", "1.2.1", ["HostOffload"], UNKNOWN),
    ("llama.cpp", "b11549", ["SlotFiles"], UNSUPPORTED),
    ("LMDeploy", "0.18.0", ["MooncakeStoreConnector"], UNSUPPORTED),
]


@pytest.mark.parametrize(("engine", "version", "connectors", "expected"), CONNECTORS)
def test_a_connector_beside_the_engine(engine: str, version: str, connectors: list[str], expected: Capability) -> None:
    assert capability(judged(engine, version, connectors=tuple(connectors)), CHAT) is expected


# Engine, version, hash as the pool declares it, verdict on chat.
HASHES = [
    ("vLLM", "0.32.0", None, ENFORCED),
    ("vLLM", "0.32.0", "sha256", ENFORCED),
    ("vLLM", "0.32.0", "sha256_cbor", ENFORCED),
    ("vLLM", "0.32.0", "xxhash", BROKEN),
    ("vLLM", "0.32.0", "xxhash_cbor", BROKEN),
    ("vLLM", "0.32.0", "builtin", BROKEN),
    ("vLLM", "0.32.0", "blake3", UNKNOWN),
    ("vLLM", "0.32.0", "SHA256", UNKNOWN),
    ("vLLM", "0.32.0", "", UNKNOWN),
    ("vLLM", "0.30.0", "sha256", BROKEN),
    ("SGLang", "0.5.23", "sha256", UNKNOWN),
    ("llama.cpp", "b11549", "sha256", UNSUPPORTED),
]


@pytest.mark.parametrize(("engine", "version", "hashed", "expected"), HASHES)
def test_a_hash_of_blocks(engine: str, version: str, hashed: str | None, expected: Capability) -> None:
    assert capability(judged(engine, version, hashed=hashed), CHAT) is expected


# Arguments that name a connector or a hash, in every spelling, verdict on chat. Whether they are refused is another question.
LMCACHE = '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'
NESTED = '{"kv_connector":"MultiConnector","kv_connector_extra_config":{"connectors":[{"kv_connector":"HF3FS"}]}}'
SPELLINGS = [
    ("vLLM", ["--kv-transfer-config", LMCACHE], BROKEN),
    ("vLLM", [f"--kv-transfer-config={LMCACHE}"], BROKEN),
    ("vLLM", ["--kv_transfer_config", LMCACHE], BROKEN),
    ("vLLM", ["--kv-transfer-config.kv_connector", "LMCacheConnectorV1"], BROKEN),
    ("vLLM", ["--kv-transfer-config.kv_connector=LMCacheConnectorV1"], BROKEN),
    ("vLLM", ["--kv_transfer_config.kv-connector", "LMCacheConnectorV1"], BROKEN),
    ("vLLM", ["--kv-trans", LMCACHE], BROKEN),
    ("vLLM", ["--kv-transfer-config", NESTED], BROKEN),
    ("vLLM", ["--kv-transfer-config.kv_connector_extra_config.connectors+", '{"kv_connector":"HF3FS"}'], BROKEN),
    ("vLLM", ["--kv-transfer-config", '{"kv_connector":"OffloadingConnector"}'], ENFORCED),
    ("vLLM", ["--kv-transfer-config", '{"kv_connector":"OffloadingConnector","kv_connector_module_path":"x.y"}'], UNKNOWN),
    ("vLLM", ["--kv-transfer-config.kv_connector_module_path", "x.y"], UNKNOWN),
    ("vLLM", ["--kv-transfer-config", '{"kv_connector":7}'], UNKNOWN),
    ("vLLM", ["--kv-transfer-config", "{not json"], UNKNOWN),
    ("vLLM", ["--kv-transfer-config"], UNKNOWN),
    ("vLLM", ["--kv-transfer-config", "{}"], UNKNOWN),
    ("vLLM", ["--kv-transfer-config.kv_role", "kv_both"], ENFORCED),
    ("vLLM", ["--kv-offloading-size", "8"], ENFORCED),
    ("vLLM", ["--kv-offloading-size", "8", "--kv-offloading-backend", "lmcache"], UNKNOWN),
    ("vLLM", ["--prefix-caching-hash-algo", "xxhash"], BROKEN),
    ("vLLM", ["--prefix_caching_hash_algo=xxhash_cbor"], BROKEN),
    ("vLLM", ["--prefix-caching-hash", "xxhash"], BROKEN),
    ("vLLM", ["--prefix-caching-hash-algo", "sha256_cbor"], ENFORCED),
    ("vLLM", ["--prefix-caching-hash-algo", "sha256", "--prefix-caching-hash-algo", "xxhash"], BROKEN),
    ("vLLM", ["--prefix-caching-hash-algo"], UNKNOWN),
    ("vLLM", ["--max-model-len", "8192", "-tp", "2"], ENFORCED),
    ("SGLang", ["--enable-hierarchical-cache"], ENFORCED),
    ("SGLang", ["--enable-hicache", "--hicache-storage-backend", "hf3fs"], UNKNOWN),
    ("SGLang", ["--hicache-storage-backend=hf3fs"], UNKNOWN),
    ("SGLang", ["--hicache-storage-b", "hf3fs"], UNKNOWN),
    ("SGLang", ["--hicache-storage-backend", "file"], ENFORCED),
    ("SGLang", ["--hicache-storage-backend"], UNKNOWN),
    ("SGLang", ["--enable-lmcache"], UNKNOWN),
    ("SGLang", ["--enable-lm"], UNKNOWN),
    ("SGLang", ["--enable-flexkv"], UNKNOWN),
    ("SGLang", ["--radix-cache-backend", "mine"], UNKNOWN),
    ("SGLang", ["--radix-cache-backend", "flexkv"], UNKNOWN),
    ("SGLang", ["--unified-cache-external-linker-backend", "mooncake"], UNKNOWN),
    ("SGLang", ["--tp-size", "2", "--mem-fraction-static", "0.8"], ENFORCED),
]
LAST = {"vLLM": "0.33.0", "SGLang": "0.5.23"}


@pytest.mark.parametrize(("engine", "args", "expected"), SPELLINGS)
def test_a_setting_counts_in_every_spelling(engine: str, args: list[str], expected: Capability) -> None:
    assert capability(judged(engine, LAST[engine], *args), CHAT) is expected
    assert capability(judged(engine, LAST[engine], "serve", "/model", *args, "--port", "1"), CHAT) is expected


def test_there_are_enough_cases() -> None:
    assert len(VERSIONS) + len(CONNECTORS) + len(HASHES) + len(SPELLINGS) >= 120


def test_a_connector_that_is_declared_and_named_by_arguments_counts_once_with_its_version() -> None:
    args = ("--enable-lmcache",)
    assert capability(judged("SGLang", "0.5.21", *args, connectors=("LMCache@0.5.6",)), CHAT) is ENFORCED
    assert capability(judged("SGLang", "0.5.21", *args, connectors=("LMCache@0.5.5",)), CHAT) is BROKEN


def test_whatever_a_custom_engine_says_is_unknown() -> None:
    found = judged("custom", "1.0.0", routes=(CHAT, "/generate"))
    assert [(route.path, route.capability) for route in found.routes] == [(CHAT, UNKNOWN), ("/generate", UNKNOWN)]
    assert judged("custom", "1.0.0").routes == ()
    assert judged("custom", "1.0.0").routable == ()


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "llama.cpp"])
def test_a_route_that_is_not_in_the_catalogue_is_not_enforced(engine: str) -> None:
    found = judged(engine, LAST.get(engine, "b1"), routes=("/v1/nobodys",))
    assert capability(found, "/v1/nobodys") in {UNKNOWN, UNSUPPORTED}
    assert found.routable == ()


def test_what_is_routed_is_enforced_or_reaches_no_cache() -> None:
    found = judged("vLLM", "0.31.0")
    assert CHAT in found.routable
    assert "/generative_scoring" not in found.routable
    assert set(found.without_cache) == {"/v1/messages/count_tokens", "/tokenize", "/detokenize"}
    assert judged("vLLM", "0.31.0", routes=(CHAT, "/tokenize")).routable == (CHAT, "/tokenize")
    assert judged("vLLM", "0.30.0").routable == ("/v1/messages/count_tokens", "/tokenize", "/detokenize")
    assert judged("vLLM", "0.34.0").routable == ()


@pytest.mark.parametrize("reported", ["0.32.0", "0.32", "v0.32.0", None])
def test_an_engine_that_says_what_is_declared_changes_nothing(reported: str | None) -> None:
    found = judged("vLLM", "0.32.0", reported=reported)
    assert found.mismatch is None
    assert capability(found, CHAT) is ENFORCED


@pytest.mark.parametrize("reported", ["0.28.0", "0.33.0", "0.32.0.post1", "0.32.0+cpu", "0.32.1.dev1", "unknown", ""])
def test_an_engine_that_says_otherwise_is_unknown_and_has_a_sentence_of_its_own(reported: str) -> None:
    found = judged("vLLM", "0.32.0", reported=reported)
    assert found.mismatch
    assert "0.32.0 is declared" in found.mismatch
    assert f"that it is {reported}," in found.mismatch
    assert found.routable == ()
    assert {route.capability for route in found.routes} == {UNKNOWN, UNSUPPORTED}
    assert capability(found, CHAT) is UNKNOWN


def test_a_version_that_is_no_version_is_compared_as_it_is() -> None:
    assert judged("llama.cpp", "b11549", reported="b11549").mismatch is None
    assert judged("llama.cpp", "b11549", reported="b11550").mismatch


REMEDIES = [
    ("0.30.0", {}, "LoRA adapter", "use vLLM 0.31.0 or later"),
    ("0.8.5", {}, "takes no salt yet", "use vLLM 0.31.0 or later"),
    ("latest", {}, "names no release", "declare a release from 0.31.0 to 0.33.0"),
    ("0.33.1", {}, "later than what was read", "declare a release from 0.31.0 to 0.33.0"),
    ("0.32.0", {"hashed": "xxhash"}, "the hash xxhash", "use sha256, sha256_cbor"),
    ("0.32.0", {"connectors": ("LMCacheConnectorV1",)}, "tokens alone", "remove it"),
    ("0.32.0", {"connectors": ("UMBP",)}, "was not read", "use vLLM 0.33.0 or later, or remove it"),
    ("0.32.0", {"connectors": ("LMCacheMPConnector",)}, "version of lmcache", "declare it with the connector LMCacheMPConnector"),
    ("0.32.0", {"connectors": ("LMCacheMPConnector@0.4.3",)}, "lmcache 0.4.3", "use lmcache 0.4.5 or later"),
    ("0.32.0", {"connectors": ("LMCacheMPConnector@9.0.0",)}, "was not read", "declare a release from 0.4.5 to 0.5.6"),
    ("0.32.0", {"connectors": ("Nobodys",)}, "connector Nobodys", "remove it"),
]


@pytest.mark.parametrize(("version", "changes", "reason", "remedy"), REMEDIES)
def test_a_sentence_says_why_and_ends_with_the_remedy(version: str, changes: dict[str, str], reason: str, remedy: str) -> None:
    (why,) = (route.why for route in judged("vLLM", version, **changes).routes if route.path == CHAT)  # type: ignore[arg-type]
    assert reason in why
    assert why.endswith(f"; {remedy}")


def test_every_verdict_is_a_sentence_and_all_but_the_good_ones_name_a_remedy() -> None:
    for engine, version in (*LAST.items(), ("vLLM", "0.8.5"), ("SGLang", "latest"), ("llama.cpp", "b1"), ("TensorRT-LLM", "1.2.1")):
        for route in judged(engine, version).routes:
            assert route.why
            assert (route.capability is ENFORCED) or "; " in route.why
