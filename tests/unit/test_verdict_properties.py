"""No pool is `Enforced` that the facts do not support: the rules stated a second time, and held against pools made at random."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import InvalidVersion, Version

from cachescope.engines.facts import EngineType
from tests.unit.judged_pools import ENFORCED, judged

# What was read, written down a second time: (first release, last release) in which a salt is kept apart.
ENGINES = {"vLLM": ("0.31.0", "0.33.0"), "SGLang": ("0.5.20", "0.5.23")}
ROUTES: dict[str, dict[str, str]] = {
    "vLLM": {
        "/v1/chat/completions": "0.9.0",
        "/v1/completions": "0.10.0",
        "/v1/responses": "0.10.0",
        "/v1/chat/completions/batch": "0.25.0",
        "/v1/messages": "0.27.0",
        **dict.fromkeys(("/v1/embeddings", "/pooling", "/classify"), "0.16.0"),
        **dict.fromkeys(("/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"), "0.25.0"),
        "/generative_scoring": "0.32.0",
        "/inference/v1/generate": "0.12.0",
    },
    "SGLang": {
        **dict.fromkeys(("/v1/chat/completions", "/v1/completions"), "0.5.3"),
        **dict.fromkeys(("/v1/responses", "/generate"), "0.5.18"),
    },
}
CONNECTORS: dict[str, dict[str, tuple[str, tuple[str, str] | None]]] = {
    "vLLM": {
        **dict.fromkeys(("OffloadingConnector", "SimpleCPUOffloadConnector", "MooncakeStoreConnector"), ("0.31.0", None)),
        "UMBPConnector": ("0.33.0", None),
        "LMCacheMPConnector": ("0.20.0", ("0.4.5", "0.5.6")),
    },
    "SGLang": {
        **dict.fromkeys(("HiCache", "HiCache/file", "HiCache/mooncake", "HiCache/nixl"), ("0.5.20", None)),
        "LMCache": ("0.5.21", ("0.5.6", "0.5.6")),
    },
}
HASHES: dict[str, set[str | None]] = {"vLLM": {None, "sha256", "sha256_cbor"}, "SGLang": {None}}
BAD_CONNECTORS = ("LMCacheConnectorV1", "HF3FSKVConnector", "ExampleConnector", "NixlConnector", "FlexKV", "HiCache/hf3fs", "x", "")

GOOD = {"vLLM": ["0.31.0", "0.31.2", "0.32.0", "0.32.0.post1", "0.33.0"], "SGLang": ["0.5.20", "0.5.20.post1", "0.5.21", "0.5.23"]}
NUMBERS = st.integers(0, 40)
RELEASES = st.one_of(st.builds("0.{}.{}".format, NUMBERS, st.integers(0, 25)), st.builds("0.5.{}".format, st.integers(0, 30)))
ENDINGS = st.sampled_from([".post1", ".dev1", "rc1", "a2", "+cpu", "+g12345", ".dev1+cu130", "@sha256:00", "-rc"])
NO_RELEASES = st.sampled_from(["latest", "", "nightly", "1!0.32.0", "v0.32.0+cpu"])
PACKAGES = st.sampled_from(
    [None, "0.4.3", "0.4.4", "0.4.5", "0.5.5", "0.5.6", "0.5.6", "0.5.7", "0.5.6+cu130", "0.5.6rc1", "latest"]
)
Uses = list[tuple[str, str | None]]


@dataclass(frozen=True)
class Pool:
    """What a pool says, and what its engine says."""

    engine: str
    version: str
    uses: Uses
    hashed: str | None
    reported: str | None


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Pools of which each part is good more often than not, so that each part alone decides often enough."""
    engine = draw(st.sampled_from(["vLLM", "SGLang"] * 4 + [engine.value for engine in EngineType]))
    good = st.sampled_from(GOOD.get(engine, ["1.0.0"]))
    versions = st.one_of(good, good, good, good, st.builds(str.__add__, good, ENDINGS), RELEASES, NO_RELEASES)
    names = st.sampled_from([*CONNECTORS.get(engine, ("x",)), *CONNECTORS.get(engine, ("x",)), *BAD_CONNECTORS])
    version = draw(versions)
    return Pool(
        engine=engine,
        version=version,
        uses=draw(st.one_of(st.just([]), st.lists(st.tuples(names, PACKAGES), min_size=1, max_size=2))),
        hashed=draw(st.sampled_from([None, None, None, "sha256", "sha256_cbor", "xxhash", "md5"])),
        reported=draw(st.one_of(st.none(), st.just(version), st.none(), versions)),
    )


def _between(version: str | None, first: str, last: str) -> bool:
    try:
        found = Version(version or "")
    except InvalidVersion:
        return False
    plain = found.pre is None and found.dev is None and found.local is None and found.epoch == 0
    return plain and Version(first) <= found <= Version(last)


def _supported(pool: Pool, path: str) -> bool:
    """Whether what was read says that the salt is kept apart."""
    first, last = ENGINES.get(pool.engine, ("1", "0"))
    if not _between(pool.version, first, last) or pool.hashed not in HASHES[pool.engine]:
        return False
    if pool.reported is not None and not _same(pool.version, pool.reported):
        return False
    since = ROUTES[pool.engine].get(path)
    good = all(_holds(pool.engine, pool.version, use) for use in pool.uses)
    return good and since is not None and _between(pool.version, since, last)


def _holds(engine: str, version: str, use: tuple[str, str | None]) -> bool:
    known = CONNECTORS[engine].get(use[0])
    if known is None or not _between(version, known[0], ENGINES[engine][1]):
        return False
    return known[1] is None or _between(use[1], *known[1])


def _written(use: tuple[str, str | None]) -> str:
    return use[0] if use[1] is None else f"{use[0]}@{use[1]}"


@settings(max_examples=400, deadline=None)
@given(pools())
def test_no_pool_is_enforced_that_the_facts_do_not_support(pool: Pool) -> None:
    paths = tuple({*ROUTES["vLLM"], *ROUTES["SGLang"], "/v2/chat", "/v1/nobodys"})
    found = judged(
        pool.engine,
        pool.version,
        connectors=tuple(map(_written, pool.uses)),
        hashed=pool.hashed,
        routes=paths,
        reported=pool.reported,
    )
    assert {route.path for route in found.routes if route.capability is ENFORCED} == {
        path for path in paths if _supported(pool, path)
    }


def _same(declared: str, reported: str) -> bool:
    if declared == reported:
        return True
    try:
        return Version(declared) == Version(reported)
    except InvalidVersion:
        return False
