"""What the probe has shown, as gateways use it: before a proof nothing is reused, and who probes is nobody's and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from cachescope.core.caches import Caching
from cachescope.core.ledgers import Flags
from cachescope.core.permits import PERMIT_HEADER, read_permit
from cachescope.core.probes import Pair, Prober, probe_keys, several, tenant_uid, tenant_uids, write_credential
from cachescope.core.record import EngineDigests
from cachescope.core.statements import Statement
from cachescope.core.types import Epoch, Reuse, ScopeClass
from cachescope.engines.vllm import ROUTES
from cachescope.gateway.audit import Audit
from cachescope.gateway.bodies import Sanitized
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Answer, Forward
from cachescope.gateway.policy import Declared, Policy
from cachescope.gateway.proofs import NO_PROOFS, Proofs, read_proofs
from cachescope.gateway.readings import KnownPool, read_pool
from cachescope.gateway.would_be_hits import WouldBeHits
from tests.unit.core_strategies import digest_of
from tests.unit.pools import UID, pool
from tests.unit.single_tenant_path import SingleTenantPath, pool_of
from tests.unit.whole_path import CHAT, NAMESPACE, POOL, POOL_UID, WholePath, path, prompt

__all__ = ["path"]

TRIES = 20
COMPLETIONS = "/v1/completions"
BOOT = "b" * 32
WHOSE = {"poolName": "t", "poolUid": "uid-of-template", "tenantName": "red", "tenantUid": "uid-of-red"}
SIMILAR = [pair for pair in Pair if pair is not Pair.TENANTS]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["isolation", "proofs", "routes", "boots", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def status(*proofs: object) -> dict[str, object]:
    return {"isolation": {"proofs": list(proofs)}}


def proof(boots: object = (BOOT,), routes: object = (CHAT,)) -> dict[str, object]:
    return {name: list(item) if isinstance(item, tuple) else item for name, item in {"boots": boots, "routes": routes}.items()}


def test_proofs_are_read_by_process() -> None:
    read = read_proofs(status(proof(), proof(("c",), (CHAT, "/a")), proof((BOOT, "d"), ("/b",))))
    assert read.routes == {BOOT: {CHAT, "/b"}, "c": {CHAT, "/a"}, "d": {"/b"}}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(None, id="no status"),
        pytest.param("isolation", id="text"),
        pytest.param([status(proof())], id="a list"),
        pytest.param({}, id="empty"),
        pytest.param({"isolation": None}, id="nothing"),
        pytest.param({"isolation": [proof()]}, id="no object"),
        pytest.param({"isolation": {"proofs": {"0": proof()}}}, id="no list"),
    ],
)
def test_a_status_that_cannot_be_read_proves_nothing(said: object) -> None:
    assert read_proofs(status(proof())).routes
    assert read_proofs(said) == NO_PROOFS


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(None, id="nothing"),
        pytest.param("x", id="text"),
        pytest.param([proof()], id="a list"),
        pytest.param(proof(routes=CHAT), id="a text of routes"),
        pytest.param(proof(routes={CHAT: True}), id="an object of routes"),
        pytest.param(proof(routes=(7, None, [CHAT])), id="routes of other kinds"),
        pytest.param({"boots": [BOOT]}, id="no routes"),
        pytest.param({"routes": [CHAT]}, id="no processes"),
        pytest.param(proof(boots=BOOT), id="a text of processes"),
        pytest.param(proof(boots=(7, None, {BOOT: 1})), id="processes of other kinds"),
    ],
)
def test_a_proof_that_cannot_be_read_proves_nothing_and_spoils_none(broken: object) -> None:
    assert not any(read_proofs(status(broken)).routes.values())
    assert read_proofs(status(broken, proof())).routes[BOOT] == {CHAT}


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_whatever_a_status_holds_is_read(said: object) -> None:
    for boot, paths in read_proofs(said).routes.items():
        assert isinstance(boot, str)
        assert all(isinstance(item, str) for item in paths)


def statement(boot_id: str = BOOT, **changes: Any) -> Statement:
    engine = EngineDigests(digest_of("1"), digest_of("2"), digest_of("3"))
    return Statement("n", POOL_UID, "pod", boot_id, 1, engine, "l", 1, "a", 1, 60_000, "0.1.0", **changes)


@pytest.mark.parametrize("caching", ["", Caching.ONE_CACHE.value, Caching.OFF.value])
def test_only_a_process_that_needs_salts_needs_a_proof(caching: str) -> None:
    proofs = Proofs({BOOT: frozenset({CHAT})})
    assert proofs.cover(statement(caching=caching), asked(CHAT))
    assert proofs.know(statement(caching=caching))
    unproven = [
        proofs.cover(statement(caching=caching), asked(COMPLETIONS)),
        proofs.cover(statement("c", caching=caching), asked(CHAT)),
        proofs.know(statement("c", caching=caching)),
        NO_PROOFS.cover(statement(caching=caching), asked(CHAT)),
    ]
    assert unproven == [bool(caching)] * 4


@pytest.mark.parametrize(
    ("fields", "covered"),
    [({}, [True, False]), ({"n": None}, [True, False]), ({"n": 1}, [True, False]), ({"n": 2}, [False, True]),
     ({"use_beam_search": True}, [False, False]), ({"use_beam_search": False}, [True, False])],
)  # fmt: skip
def test_several_answers_are_proven_apart_and_beams_never(fields: dict[str, Any], covered: list[bool]) -> None:
    known = (Proofs({BOOT: frozenset({way})}) for way in (CHAT, several(CHAT)))
    assert [proofs.cover(statement(), asked(CHAT, **fields)) for proofs in known] == covered


def asked(path: str, **fields: Any) -> Sanitized:
    return Sanitized(ROUTES["POST", path], fields, (), {}, [], "tiny", stream=False)


def test_who_leaked_is_proven_by_nothing() -> None:
    read = read_proofs({"isolation": {"proofs": [proof((BOOT, "c"))], "leaked": [BOOT, 7]}})
    assert read.routes == {"c": {CHAT}}
    assert read.leaked == {BOOT}


def test_a_pool_is_read_with_what_was_proven_of_it() -> None:
    document = {"metadata": {"name": "tiny", "namespace": "models", "uid": UID}, "spec": pool().spec.model_dump(by_alias=True)}
    read = [read_pool({**document, "status": said}).value for said in (status(proof()), {"isolation": 7})]
    assert [known.proofs for known in read if known] == [Proofs({BOOT: frozenset({CHAT})}), NO_PROOFS]


def red(world: WholePath) -> str:
    return f"Bearer {world.credentials.api_keys['red-alice']}"


def credential(world: WholePath, who: int = 0, pair: Pair = Pair.TENANTS, *, boot: str = "", uid: str = POOL_UID) -> str:
    prober = Prober(uid, boot or world.process.boot_id, pair, who)
    return write_credential(probe_keys(world.snapshot().keys.root).current, prober, until=int(world.seconds) + 60)


async def decided(world: WholePath, header: str, *, route: str = CHAT, text: str = "hello", model: str = POOL) -> Forward | Answer:
    asked = {"messages": [{"role": "user", "content": text}]} if route == CHAT else {"prompt": text}
    return await world.decide(None, json.dumps({"model": model, **asked}).encode(), route, authorization=header)


async def outcome(world: WholePath, header: str, *, route: str = CHAT, model: str = POOL) -> Reuse | str:
    """What the permit says, or the code of the refusal."""
    found = await decided(world, header, route=route, model=model)
    if isinstance(found, Answer):
        return found.reason
    return read_permit(world.snapshot().permits[POOL_UID], found.set_headers[PERMIT_HEADER]).reuse


async def cached(world: WholePath, header: str, text: str) -> int:
    """How much the engine finds of a prompt."""
    forward = await decided(world, header, text=text)
    assert isinstance(forward, Forward), forward
    server = await world.send(forward)
    assert server.status == 200, server.body
    return int(json.loads(server.body)["usage"]["prompt_tokens_details"]["cached_tokens"])


def unproven(world: WholePath) -> None:
    """As before the probe was there."""
    world.edit("ServingPool", POOL, lambda item: item.update(status={}))


async def test_nothing_is_reused_before_it_is_proven_and_then_it_is(path: WholePath) -> None:
    unproven(path)
    text = prompt()
    assert [await cached(path, red(path), text) for _ in range(TRIES)] == [0] * TRIES
    assert await outcome(path, red(path)) is Reuse.FRESH
    path.prove_isolation()
    assert await outcome(path, red(path)) is Reuse.SALTED
    assert await cached(path, red(path), text) == 0, "what was fresh is found by nobody"
    assert await cached(path, red(path), text) > 0


async def test_a_proof_of_another_process_counts_for_nothing(path: WholePath) -> None:
    other = {"isolation": {"proofs": [{"routes": [CHAT], "boots": ["b" * 32]}]}}
    path.edit("ServingPool", POOL, lambda item: item.update(status=other))
    assert await outcome(path, red(path)) is Reuse.FRESH
    path.prove_isolation(CHAT)
    assert await outcome(path, red(path)) is Reuse.SALTED


async def test_a_proof_of_another_route_counts_for_nothing(path: WholePath) -> None:
    path.prove_isolation(COMPLETIONS)
    assert [await outcome(path, red(path), route=route) for route in (CHAT, COMPLETIONS)] == [Reuse.FRESH, Reuse.SALTED]
    path.prove_isolation(CHAT)
    assert [await outcome(path, red(path), route=route) for route in (CHAT, COMPLETIONS)] == [Reuse.SALTED, Reuse.FRESH]


@pytest.mark.parametrize("pair", list(Pair), ids=lambda pair: pair.name)
async def test_who_probes_finds_its_own_and_not_the_others_before_any_proof(path: WholePath, pair: Pair) -> None:
    unproven(path)
    for _ in range(TRIES):
        text = prompt()
        assert await cached(path, credential(path, 0, pair), text) == 0
        assert await cached(path, credential(path, 1, pair), text) == 0
        assert await cached(path, credential(path, 0, pair), text) > 0, "the control: its own"
    assert await outcome(path, red(path)) is Reuse.FRESH


@pytest.mark.parametrize("pair", SIMILAR, ids=lambda pair: pair.name)
async def test_probers_with_similar_salts_differ_in_nothing_else(path: WholePath, pair: Pair) -> None:
    for who in (0, 1):
        await cached(path, credential(path, who, pair), "hello")
    first, second = (str(body["cache_salt"]) for body in path.engine.seen[-2:])
    places = [index for index in range(43) if first[index] != second[index]]
    expected = {Pair.FIRST: [0], Pair.LAST: [42], Pair.CASE: [index for index in range(43) if first[index].isalpha()]}
    assert places == expected[pair]


async def test_what_a_tenant_sent_is_found_by_no_prober(path: WholePath) -> None:
    for _ in range(TRIES):
        text = prompt()
        assert await cached(path, red(path), text) == 0
        assert {await cached(path, credential(path, who), text) for who in (0, 1)} == {0}
        assert await cached(path, red(path), text) > 0


@pytest.mark.parametrize("state", ["observe", "bypassed", "no right"])
async def test_who_probes_finds_its_own_also_where_nobody_else_finds_anything(path: WholePath, state: str) -> None:
    if state == "observe":
        path.edit("ServingPool", POOL, lambda item: item["spec"].update(sharing={"stage": "Observe"}))
    elif state == "bypassed":
        path.advance_pool(flags=Flags(bypassed=Epoch(1)))
        path.round()
        await path.prove()
    else:
        path.fresh_only = True
    text = prompt()
    assert [await cached(path, red(path), text) for _ in range(TRIES)] == [0] * TRIES
    assert [await cached(path, credential(path, who), text) for who in (0, 1)] == [0, 0]
    assert await cached(path, credential(path), text) > 0


async def test_who_leaked_serves_nobody(path: WholePath) -> None:
    assert await outcome(path, red(path)) is Reuse.SALTED
    leaked = {"isolation": {"leaked": [path.process.boot_id], "proofs": [proof((path.process.boot_id,))]}}
    path.edit("ServingPool", POOL, lambda item: item.update(status=leaked))
    assert [await outcome(path, header) for header in (red(path), credential(path))] == ["no_endpoint", "no_endpoint"]
    assert "does not keep tenants apart" in str(
        path.fleet.states(f"{NAMESPACE}/{POOL}", path.snapshot().trusts[f"{NAMESPACE}/{POOL}"])
    )


async def test_a_pool_that_refuses_serves_nobody_before_a_proof_but_who_probes(path: WholePath) -> None:
    unproven(path)
    assert await outcome(path, red(path)) is Reuse.FRESH, "the control: by default it serves"
    path.edit("ServingPool", POOL, lambda item: item["spec"].update(isolation={"unverified": "Refuse"}))
    assert [await outcome(path, header) for header in (red(path), credential(path))] == ["no_endpoint", Reuse.FRESH]
    path.prove_isolation(COMPLETIONS)
    assert [await outcome(path, red(path), route=route) for route in (CHAT, COMPLETIONS)] == [Reuse.FRESH, Reuse.SALTED]


async def test_who_probes_one_process_reaches_no_other(path: WholePath) -> None:
    assert await outcome(path, credential(path)) is Reuse.FRESH
    found = await decided(path, credential(path, boot="b" * 32))
    assert isinstance(found, Answer)
    assert (found.status, found.reason) == (503, "no_endpoint")
    assert await outcome(path, credential(path)) is Reuse.FRESH, "whom it asked before is not remembered of it"


async def test_who_probes_one_pool_reaches_no_other(path: WholePath) -> None:
    path.cluster.apply(
        {"kind": "ServingPool", "metadata": {"name": "other", "uid": "uid-of-other"}, "spec": another("other")}, NAMESPACE
    )
    path.take_over()
    assert await outcome(path, red(path), model="other") == "no_endpoint", "the control: it is there, and has no engine yet"
    assert await outcome(path, credential(path), model="other") == "model_not_found"
    assert await outcome(path, credential(path, uid="uid-of-other")) == "model_not_found"
    assert await outcome(path, credential(path, uid="uid-of-other"), model="other") == "no_endpoint"
    assert await outcome(path, credential(path, uid="uid-of-none")) == "authentication_required"


def another(model: str) -> dict[str, Any]:
    spec = pool().spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return {**spec, "model": {**spec["model"], "name": model}}


async def test_a_pool_that_is_not_the_first_of_its_name_is_probed_all_the_same(path: WholePath) -> None:
    """The probe is of the pool, whoever reaches it: a tenant may only be let into the younger one."""
    path.cluster.apply(
        {"kind": "ServingPool", "metadata": {"name": "younger", "uid": "uid-of-younger"}, "spec": another(POOL)}, NAMESPACE
    )
    path.take_over()
    policy = path.snapshot().policy
    served = {uid: policy.models(tenant_uid(uid, Pair.TENANTS, 0))[POOL].pool.uid for uid in (POOL_UID, "uid-of-younger")}
    assert served == {POOL_UID: POOL_UID, "uid-of-younger": "uid-of-younger"}


async def test_no_scope_of_the_namespace_says_anything_of_who_probes(path: WholePath) -> None:
    scope = {"class": "Request", "pools": [POOL], "tenants": ["red"]}
    path.cluster.apply({"kind": "CacheScope", "metadata": {"name": "red"}, "spec": scope}, NAMESPACE)
    path.take_over()
    assert [await outcome(path, header) for header in (red(path), credential(path))] == [Reuse.FRESH, Reuse.FRESH]
    path.edit("CacheScope", "red", lambda item: item["spec"].update({"class": "Nonsense"}))
    blue = f"Bearer {path.credentials.api_keys['blue-carol']}"
    assert [await outcome(path, header) for header in (blue, credential(path))] == [Reuse.FRESH, Reuse.FRESH]
    text = prompt()
    assert [await cached(path, credential(path), text) > 0 for _ in range(2)] == [False, True]
    assert path.snapshot().policy.scope(tenant_uid(POOL_UID, Pair.CASE, 1), pool()).scope_class is ScopeClass.TENANT


@pytest.mark.parametrize("probes", [True, False], ids=["prober", "tenant"])
async def test_what_probers_would_reuse_is_not_counted(path: WholePath, probes: bool) -> None:
    path.edit("ServingPool", POOL, lambda item: item["spec"].update(sharing={"stage": "Observe"}))
    hits = WouldBeHits(CollectorRegistry())
    path.gate = Decision(path.in_force, path.fleet, Audit(CollectorRegistry()), lambda: path.seconds, observed=hits.count)
    await cached(path, credential(path) if probes else red(path), "what is asked " * 100)
    assert (len(hits) == 0) == probes


async def test_who_probes_is_told_of_one_model_and_of_no_tenant(path: WholePath) -> None:
    policy = path.snapshot().policy
    assert policy.probed == {POOL_UID}
    for uid in tenant_uids(POOL_UID):
        assert set(policy.models(uid)) == {POOL}
        assert (policy.tenants[uid].name, policy.tenants[uid].held) == ("", ())
    assert not {tenant.uid for tenant in policy.tenants.values() if tenant.name} & tenant_uids(POOL_UID)


@pytest.mark.parametrize(
    ("known", "probed"),
    [
        pytest.param(KnownPool(pool()), True, id="shared"),
        pytest.param(KnownPool(pool(), template=True), False, id="template"),
        pytest.param(KnownPool(pool(), readable=False), False, id="unreadable"),
        pytest.param(KnownPool(pool({"dedicatedTo": WHOSE})), False, id="one tenant's"),
    ],
)
def test_only_pools_that_are_shared_have_probers(known: KnownPool, probed: bool) -> None:
    policy = Policy(Declared(pools=[known], tenants=[], scopes=[], home="models"))
    assert policy.probed == ({UID} if probed else set())
    assert tenant_uids(UID) & policy.tenants.keys() == (tenant_uids(UID) if probed else set())


async def test_a_pool_of_one_tenant_needs_no_proof_and_takes_no_prober(tmp_path: Path) -> None:
    world = SingleTenantPath(tmp_path)
    await world.prove()
    text, blue = prompt(), world.credentials.api_keys["blue-carol"]
    assert await world.outcome(blue, text) == 0
    assert await world.outcome(blue, text) != 0
    boot = world.pod("blue").process.boot_id
    for uid in (POOL_UID, f"uid-of-{pool_of('blue')}"):
        assert await outcome(world, credential(world, boot=boot, uid=uid)) == "authentication_required"


@pytest.mark.parametrize(
    ("said", "needs_none"),
    [(Caching.ONE_CACHE.value, True), (Caching.OFF.value, True), ("", False), ("Salted", False), ("Any", False)],
)
def test_only_an_engine_that_keeps_requests_apart_by_what_it_is_needs_no_proof(said: str, needs_none: bool) -> None:
    assert NO_PROOFS.know(statement(caching=said)) is needs_none
