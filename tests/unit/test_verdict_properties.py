"""No pool is `Enforced` that the facts do not support: the rules stated a second time, and held against pools made at random."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import InvalidVersion, Version

from cachescope.engines.facts import EngineType
from tests.unit.pools_of_engines import ENFORCED, judged

# What was read, written down a second time: (first release, last release) in which a salt is kept apart.
ENGINES = {"vLLM": ("0.31.0", "0.33.0"), "SGLang": ("0.5.20", "0.5.23")}
ROUTES = {
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
CONNECTORS = {
    "vLLM": {
        **dict.fromkeys(("OffloadingConnector", "SimpleCPUOffloadConnector", "MooncakeStoreConnector"), ("0.32.0", None)),
        "UMBPConnector": ("0.33.0", None),
        "LMCacheMPConnector": ("0.20.0", ("0.4.5", "0.5.6")),
    },
    "SGLang": {
        **dict.fromkeys(("HiCache", "HiCache/file", "HiCache/mooncake", "HiCache/nixl"), ("0.5.20", None)),
        "LMCache": ("0.5.21", ("0.5.6", "0.5.6")),
    },
}
HASHES = {"vLLM": {None, "sha256", "sha256_cbor"}, "SGLang": {None}}
BAD_CONNECTORS = ("LMCacheConnectorV1", "HF3FSConnector", "ExampleConnector", "NixlConnector", "FlexKV", "HiCache/hf3fs", "x", "")

NUMBERS = st.integers(0, 40)
RELEASES = st.one_of(
    st.builds("0.{}.{}".format, NUMBERS, st.integers(0, 25)),
    st.builds("0.5.{}".format, st.integers(0, 30)),
    st.sampled_from(["0.31.0", "0.32.0", "0.33.0", "0.5.20", "0.5.23", "0.4.5", "0.5.6", "1.2.1"]),
)
ENDINGS = st.sampled_from(
    ["", "", "", "", "", ".post1", ".dev1", "rc1", "a2", "+cpu", "+g12345", ".dev1+cu130", "@sha256:00", "-rc"]
)
VERSIONS = st.one_of(st.builds(str.__add__, RELEASES, ENDINGS), st.sampled_from(["latest", "", "nightly", "v0.32.0", "1!0.32.0"]))
NAMES = st.sampled_from([*CONNECTORS["vLLM"], *CONNECTORS["SGLang"], *BAD_CONNECTORS])
USES = st.lists(st.tuples(NAMES, st.one_of(st.none(), VERSIONS)), max_size=2)


def _between(version: str | None, first: str, last: str) -> bool:
    try:
        found = Version(version or "")
    except InvalidVersion:
        return False
    plain = not (found.pre or found.dev or found.local or found.epoch) and found.dev is None
    return plain and Version(first) <= found <= Version(last)


def _supported(engine: str, version: str, path: str, uses: list[tuple[str, str | None]], hashed: str | None) -> bool:
    """Whether what was read says that the salt is kept apart."""
    first, last = ENGINES.get(engine, ("1", "0"))
    if not _between(version, first, last) or hashed not in HASHES[engine]:
        return False
    since = ROUTES[engine].get(path)
    return since is not None and _between(version, since, last) and all(_holds(engine, version, use) for use in uses)


def _holds(engine: str, version: str, use: tuple[str, str | None]) -> bool:
    known = CONNECTORS[engine].get(use[0])
    if known is None or not _between(version, known[0], ENGINES[engine][1]):
        return False
    return known[1] is None or _between(use[1], *known[1])


def _written(use: tuple[str, str | None]) -> str:
    return use[0] if use[1] is None else f"{use[0]}@{use[1]}"


@settings(max_examples=400, deadline=None)
@given(
    engine=st.sampled_from([engine.value for engine in EngineType]),
    version=VERSIONS,
    uses=USES,
    hashed=st.sampled_from([None, None, "sha256", "sha256_cbor", "xxhash", "md5"]),
    reported=st.one_of(st.none(), st.none(), VERSIONS),
)
def test_no_pool_is_enforced_that_the_facts_do_not_support(
    engine: str, version: str, uses: list[tuple[str, str | None]], hashed: str | None, reported: str | None
) -> None:
    paths = tuple({*ROUTES["vLLM"], *ROUTES["SGLang"], "/v2/chat", "/v1/nobodys"})
    found = judged(engine, version, connectors=tuple(map(_written, uses)), hashed=hashed, routes=paths, reported=reported)
    differs = reported is not None and not _same(version, reported)
    assert (found.mismatch is not None) is differs
    supported = {path for path in paths if not differs and _supported(engine, version, path, uses, hashed)}
    assert {route.path for route in found.routes if route.capability is ENFORCED} == supported


def _same(declared: str, reported: str) -> bool:
    if declared == reported:
        return True
    try:
        return Version(declared) == Version(reported)
    except InvalidVersion:
        return False
