"""The loop that probes: what is due, how often, and what a leak sets off, whatever the cluster does meanwhile."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import generate_latest

from cachescope.api.statuses import IsolationStatus
from cachescope.controller import isolation_probes, isolation_runs, leak_closing
from cachescope.controller.isolation_probes import AT_A_TIME, LAST_DELAY, OF_A_NAMESPACE, PATIENCE, IsolationProbes
from cachescope.controller.isolation_records import proven
from cachescope.controller.isolation_runs import IsolationRuns
from cachescope.controller.isolation_targets import shared_pool
from cachescope.controller.leak_incidents import declare, incident_of, leak_incident
from cachescope.controller.lease_book import Life
from cachescope.controller.metrics import Metrics
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Key, Store
from cachescope.core.errors import ClusterError
from cachescope.core.probes import SCHEME, Pair, Prober, probe_keys, read_credential
from cachescope.kube.rest import Document
from cachescope.probe.cases import Identity
from cachescope.probe.live import Shown
from cachescope.probe.running import Ask
from tests.unit.controller_bench import HeardApi
from tests.unit.observed import guard, pod
from tests.unit.shown_isolation import COMPLETIONS, FAILS, NOTHING, leaks, proves

Made = Callable[..., Awaitable[Any]]
VERIFY = 90
WALL = datetime(2026, 11, 30, tzinfo=UTC).timestamp()
TURNS = 40
EVERYTHING = {""}
"""How every path ends."""
Answer = Shown | Exception
POOL: Document = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "ServingPool",
    "metadata": {"name": "tiny", "namespace": "models", "uid": "uid-of-pool", "generation": 1},
    "spec": {
        "model": {"name": "tiny", "source": {"imagePath": "/models/tiny"}},
        "engine": {"version": "0.32.0", "image": "registry.example/vllm:0.32.0"},
        "isolation": {"verifySeconds": VERIFY},
    },
}


OTHER: Document = {**POOL, "metadata": {**POOL["metadata"], "namespace": "others", "uid": "uid-of-other"}}


class Guards:
    """The book, as far as the probes read it."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def guards(self, pool_uid: str) -> list[Any]:
        return [_guard(name, pool_uid) for name, uid in self.found.items() if uid == pool_uid]

    def guards_by_pool(self) -> dict[str, list[Any]]:
        return {uid: self.guards(uid) for uid in self.found.values()}


def _guard(name: str, pool_uid: str) -> Any:
    process = guard(name, Life.LIVE)
    assert process.statement is not None
    return replace(process, statement=replace(process.statement, pool_uid=pool_uid, boot_id=boot_of(name)))


def boot_of(name: str) -> str:
    return f"boot-{name}"


class World:
    """An operator's probes beside an API in memory; what runs show is the test's.

    Attributes:
        now: The operator's clock, in seconds.
        shows: What the next runs of a process show, by the name of its pod; the last one of them holds on.
        asked: Pods in the order in which they were probed.
        held: Holds runs until the test lets them end.
        reconciled: Pools that were to be reconciled.
    """

    def __init__(self, *pods: str) -> None:
        self.now = 1000.0
        self.store = Store()
        self.api = HeardApi(self.store)
        self.keys = RootKeys(self.api, "cachescope-system")
        self.book = Guards()
        self.shows: dict[str, list[Answer]] = {}
        self.asked: list[str] = []
        self.held: asyncio.Event | None = None
        self.under_way = self.most = 0
        self.reconciled: list[Key] = []
        self.identities: Callable[[Pair], tuple[Identity, Identity]] | None = None
        self.start()
        self.put(POOL)
        for name in pods:
            self.serve(name)

    def start(self) -> None:
        """A process of the operator that knows nothing yet."""
        self.metrics = Metrics()
        self.runs = IsolationRuns(self.keys, "http://gateway", lambda: WALL)
        self.probes = IsolationProbes(
            self.api,
            self.store,
            self.book,  # type: ignore[arg-type]
            self.runs,
            self.metrics.isolation,
            self.reconciled.append,
            clock=lambda: self.now,
        )

    def put(self, document: Document, **changes: Any) -> None:
        """An object is as it is now."""
        document = {**copy.deepcopy(document), **changes}
        document["metadata"] = {**document["metadata"], "resourceVersion": self.version()}
        self.store.put(document.get("kind", "Pod"), document)

    def remove_pool(self) -> None:
        """Somebody deletes it."""
        self.store.remove("ServingPool", {"metadata": {**POOL["metadata"], "resourceVersion": self.version()}})

    def version(self) -> str:
        """One that is later than any."""
        self.api._version += 1
        return str(self.api._version)

    def serve(self, name: str, uid: str = "uid-of-pool") -> None:
        """A process more of a pool."""
        self.put(pod(name))
        self.book.found[name] = uid
        self.shows.setdefault(name, [proves()])

    @property
    def pool(self) -> Document:
        found = self.store.get("ServingPool", "models", "tiny")
        assert found is not None
        return found

    def write_status(self, **status: Any) -> None:
        """What reconciling the pool does with it."""
        record = self.probes.record(self.pool)
        isolation = {"isolation": record.model_dump(mode="json", by_alias=True)} if record else {}
        self.put(self.pool, status={**isolation, **status})

    @property
    def record(self) -> IsolationStatus:
        found = self.probes.record(self.pool)
        assert found is not None
        return found

    @property
    def proven(self) -> set[str]:
        """Pods whose processes are proven."""
        return {boot.removeprefix("boot-") for boot in proven(self.record)}

    @property
    def incidents(self) -> list[Document]:
        return [item for path, item in self.api.objects.items() if "/cacheepochs/" in path]

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"cachescope_operator_{name}", labels) or 0.0

    async def examine(self, ask: Ask, routes: object, identities: Callable[[Pair], tuple[Identity, Identity]], **_: str) -> Shown:
        """In the place of `live.examine`."""
        del ask, routes
        self.identities = identities
        name = boot_of_prober(self, identities).removeprefix("boot-")
        self.asked.append(name)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        if self.held:
            await self.held.wait()
        self.under_way -= 1
        shown = self.shows[name].pop(0) if len(self.shows[name]) > 1 else self.shows[name][0]
        if isinstance(shown, Exception):
            raise shown
        return shown

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The loop runs meanwhile."""
        task = asyncio.ensure_future(self.probes.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not holds():  # noqa: ASYNC110 - the loop has pauses of its own; the wait has a deadline
                await asyncio.sleep(0)

    async def rounds(self, seconds: float = 0.0) -> list[str]:
        """Let time pass, and the loop go round often enough for all that is due; whom it asked."""
        before = len(self.asked)
        self.now += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return self.asked[before:]


def boot_of_prober(world: World, identities: Callable[[Pair], tuple[Identity, Identity]]) -> str:
    text = identities(Pair.TENANTS)[0].headers["authorization"].removeprefix(f"{SCHEME} ")
    return read_credential(probe_keys(world.keys.ring), text, now=WALL).boot_id


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes worlds whose pauses take no time."""

    async def world(*pods: str) -> World:
        found = World(*pods)
        await found.keys.refresh(datetime(2026, 11, 30, tzinfo=UTC))
        monkeypatch.setattr(isolation_runs, "examine", found.examine)
        return found

    monkeypatch.setattr(isolation_probes, "PERIOD_SECONDS", 0)
    monkeypatch.setattr(leak_closing, "DECLARE_SECONDS", 0)
    return world


async def test_a_process_that_nothing_is_known_of_is_probed_at_once_and_then_from_time_to_time(made: Made) -> None:
    world: World = await made("p")
    async with world.running():
        assert await world.rounds() == ["p"]
        assert (world.proven, world.reconciled) == ({"p"}, [Key("ServingPool", "models", "tiny")])
        assert await world.rounds(VERIFY - 1) == []
        assert await world.rounds(1) == ["p"]
        world.serve("q")
        assert await world.rounds() == ["q"]
    assert world.proven == {"p", "q"}
    assert (world.metric("isolation_probes_total", result="Verified"), world.metric("unproven_engines")) == (3, 0)


async def test_what_fails_is_tried_again_later_each_time(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [FAILS]
    delays = []
    async with world.running():
        await world.rounds()
        for expected in (1, 2, 4, 8, 16, 32, 64, 128, 256, LAST_DELAY, LAST_DELAY, LAST_DELAY):
            assert await world.rounds(expected - 0.5) == []
            assert await world.rounds(0.5) == ["p"], expected
            delays.append(expected)
        assert world.metric("unproven_engines") == 1
        world.shows["p"] = [proves()]
        await world.rounds(LAST_DELAY)
        world.shows["p"] = [FAILS]
        await world.rounds(VERIFY)
        assert await world.rounds(1) == ["p"], "what succeeds begins anew"
    assert world.metric("isolation_probes_total", result="Failed") == len(delays) + 3


async def test_a_pool_says_why_only_once_it_fails_again_and_again(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [FAILS]
    async with world.running():
        for failures in range(PATIENCE):
            await world.rounds(2**failures)
            assert world.record.fault == "", failures
        await world.rounds(2**PATIENCE)
        assert world.record.fault == FAILS.fault
        world.shows["p"] = [proves()]
        await world.rounds(LAST_DELAY)
    assert (world.record.fault, world.proven) == ("", {"p"})


async def test_an_engine_that_shows_nothing_is_asked_again_and_says_so_at_once(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [NOTHING]
    async with world.running():
        await world.rounds()
        assert [item.found for item in world.record.last] == ["NoEvidence"]
        assert (await world.rounds(1), await world.rounds(1), await world.rounds(1)) == (["p"], [], ["p"])
    assert world.proven == set()


@pytest.mark.parametrize("error", [ClusterError("no root keys; wait"), RuntimeError("a fault of ours")])
async def test_a_fault_of_one_run_ends_no_other(made: Made, error: Exception) -> None:
    world: World = await made("p", "q")
    world.shows["p"] = [error, error, proves()]
    async with world.running():
        await world.rounds()
        assert world.proven == {"q"}
        await world.rounds(1)
        await world.rounds(2)
        assert world.proven == {"p", "q"}


async def test_few_processes_are_probed_at_a_time_and_each_by_one_run(made: Made) -> None:
    names = [f"p{number:02}" for number in range(3 * AT_A_TIME)]
    world: World = await made(*names)
    world.held = asyncio.Event()
    async with world.running():
        assert sorted(await world.rounds()) == names[:OF_A_NAMESPACE]
        assert await world.rounds(1) == []
        world.held.set()
        await world.until(lambda: len(world.asked) == len(names))
    assert (sorted(world.asked), world.most) == (names, OF_A_NAMESPACE)


async def test_engines_that_never_answer_hold_up_no_other_namespace(made: Made) -> None:
    world: World = await made(*(f"p{number:02}" for number in range(AT_A_TIME)))
    world.held = asyncio.Event()
    async with world.running():
        assert len(await world.rounds()) == OF_A_NAMESPACE
        world.put(OTHER)
        world.serve("z", "uid-of-other")
        assert await world.rounds(1) == ["z"]


async def test_a_run_that_does_not_end_has_failed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_probes, "RUN_SECONDS", 0.0)
    world: World = await made("p")
    world.held = asyncio.Event()
    async with world.running():
        await world.until(lambda: world.metric("isolation_probes_total", result="Failed"))
        assert world.proven == set()
        monkeypatch.setattr(isolation_probes, "RUN_SECONDS", 60.0)
        world.held.set()
        await world.rounds(LAST_DELAY)
    assert world.proven == {"p"}


async def test_a_prober_asks_the_process_of_the_pool_and_no_other(made: Made) -> None:
    world: World = await made("p")
    async with world.running():
        await world.rounds()
    assert world.identities is not None
    seen = set()
    for pair in Pair:
        for one in world.identities(pair):
            text = one.headers["authorization"].removeprefix(f"{SCHEME} ")
            seen.add(read_credential(probe_keys(world.keys.ring), text, now=WALL))
    assert seen == {Prober("uid-of-pool", "boot-p", pair, who) for pair in Pair for who in range(2)}


async def test_without_root_keys_nothing_is_asked_and_it_is_tried_again(made: Made) -> None:
    world: World = await made("p")
    keys, world.runs.keys = world.keys, RootKeys(world.api, "elsewhere")
    async with world.running():
        assert await world.rounds() == []
        world.runs.keys = keys
        assert await world.rounds(1) == ["p"]
    assert world.proven == {"p"}


async def test_a_leak_is_in_the_status_and_then_it_is_an_incident_however_often_the_cluster_fails(made: Made) -> None:
    world: World = await made("p", "q")
    before: list[IsolationStatus] = []

    async def create(path: str, document: Document, **query: str) -> Document:
        before.append(world.record)
        if len(before) <= 3:
            raise ClusterError("the API server is away; try again")
        return await HeardApi.create(world.api, path, document, **query)

    world.api.create = create  # type: ignore[assignment, method-assign]
    async with world.running():
        await world.rounds()
        assert world.proven == {"p", "q"}
        world.shows["q"] = [leaks(COMPLETIONS, "streamed"), proves()]
        await world.rounds(VERIFY)
        await world.until(lambda: world.incidents)
    (incident,) = world.incidents
    assert incident["metadata"]["name"] == f"tiny-{world.record.incident}"
    assert (incident["spec"]["target"], incident["spec"]["incident"]["bypassReuse"]) == (
        {"kind": "ServingPool", "name": "tiny"},
        True,
    )
    told = [(bool(record.leak), record.incident, record.proofs == ()) for record in before]
    assert told == [(True, "", True)] * 4, "gateways are told whatever the cluster does with incidents"
    assert f"{COMPLETIONS} (streamed) of q" in incident["spec"]["incident"]["reason"]
    assert world.metric("isolation_probes_total", result="Leak") == 1


async def test_who_leaked_is_not_probed_again_and_a_leak_is_over_once_it_is_gone(made: Made) -> None:
    world: World = await made("p", "q")
    world.shows = {"p": [leaks(), proves()], "q": [proves()]}
    async with world.running():
        await world.until(lambda: world.incidents)
        assert await world.rounds(10 * LAST_DELAY) == ["q"]
        assert (world.record.leaked, world.proven, len(world.incidents)) == (("boot-p",), {"q"}, 1)
        assert world.metric("leaking_pools") == 1
        del world.book.found["p"]
        await world.rounds(VERIFY)
        await world.rounds()
        assert (world.record.leak, world.record.incident, world.record.leaked) == ("", "", ())
        assert world.metric("leaking_pools") == 0


async def test_two_leaks_at_once_are_both_kept(made: Made) -> None:
    world: World = await made("p", "q")
    reached, gate = [], asyncio.Event()

    async def create(path: str, document: Document, **query: str) -> Document:
        reached.append(path)
        await gate.wait()
        return await HeardApi.create(world.api, path, document, **query)

    async with world.running():
        await world.rounds()
        assert world.proven == {"p", "q"}
        world.api.create = create  # type: ignore[assignment, method-assign]
        world.shows = {"p": [leaks(), proves()], "q": [leaks(), proves()]}
        await world.rounds(VERIFY)
        await world.until(lambda: len(reached) == 2)
        gate.set()
        await world.until(lambda: len(world.incidents) == 2 and world.record.incident)
        await world.rounds(10 * LAST_DELAY)
    assert (world.record.leaked, world.proven) == (("boot-p", "boot-q"), set())


async def test_once_a_proven_one_leaks_the_others_are_asked_again_at_once(made: Made) -> None:
    world: World = await made("p", "q")
    async with world.running():
        await world.rounds()
        world.serve("r")
        assert await world.rounds(VERIFY - 1) == ["r"]
        world.shows = {"p": [leaks()], "q": [proves()], "r": [proves()]}
        assert sorted(await world.rounds(1)) == ["p", "q", "r"]
    assert (world.record.leaked, world.proven) == (("boot-p",), {"q", "r"})


async def test_processes_that_leak_before_they_served_are_one_incident_while_reuse_is_off(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [leaks()]
    async with world.running():
        await world.until(lambda: world.incidents)
        world.write_status(bypassed=True)
        world.serve("q")
        world.shows["q"] = [leaks()]
        await world.rounds()
        assert (world.record.leaked, len(world.incidents)) == (("boot-p", "boot-q"), 1)
        world.write_status()
        world.serve("r")
        world.shows["r"] = [leaks()]
        await world.until(lambda: len(world.incidents) == 2)
        assert world.record.incident == world.incidents[1]["spec"]["incident"]["id"], "somebody has resumed since"


async def test_one_that_served_is_another_incident_though_reuse_is_off(made: Made) -> None:
    world: World = await made("p", "q")
    world.shows = {"p": [leaks()], "q": [proves(), leaks()]}
    async with world.running():
        await world.until(lambda: world.incidents)
        world.write_status(bypassed=True)
        assert world.proven == {"q"}
        await world.rounds(VERIFY)
        await world.until(lambda: len(world.incidents) == 2)
    assert (world.proven, world.record.leaked) == (set(), ("boot-p", "boot-q"))


async def test_an_engine_that_began_anew_beside_its_guard_is_another_process(made: Made) -> None:
    world: World = await made("p")
    async with world.running():
        await world.rounds()
        assert world.proven == {"p"}
        world.shows["p"] = [FAILS]
        world.put(pod("p", containerStatuses=[{"name": "engine", "restartCount": 1}]))
        assert await world.rounds() == ["p"]
        assert world.proven == set()
        world.shows["p"] = [proves()]
        await world.rounds(LAST_DELAY)
        assert await world.rounds(1) == []
    assert world.proven == {"p"}


async def test_an_operator_that_starts_anew_knows_what_was_shown_by_the_status(made: Made) -> None:
    world: World = await made("p", "q")
    world.shows["q"] = [FAILS]
    async with world.running():
        await world.rounds()
    world.write_status()
    world.start()
    async with world.running():
        assert await world.rounds() == ["q"], "the other one is due when its time has come"
        assert world.proven == {"p"}
        assert "p" in await world.rounds(VERIFY)


async def test_an_engine_that_may_have_begun_anew_while_no_operator_looked_is_asked_at_once(made: Made) -> None:
    world: World = await made("p", "q")
    async with world.running():
        await world.rounds()
    world.write_status()
    world.start()
    world.put(pod("p", containerStatuses=[{"name": "engine", "restartCount": 1}]))
    async with world.running():
        assert await world.rounds() == ["p"]


async def test_an_operator_that_starts_anew_declares_nothing_twice(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [leaks()]
    async with world.running():
        await world.until(lambda: world.incidents)
    world.write_status()
    world.start()
    async with world.running():
        assert await world.rounds(10 * LAST_DELAY) == []
    assert (world.record.leak != "", len(world.incidents)) == (True, 1)


async def test_a_leak_that_an_operator_could_not_declare_is_declared_by_the_next_one(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [leaks()]
    world.api.refused = EVERYTHING
    async with world.running():
        await world.until(lambda: world.record.leak)
    world.write_status()
    assert (world.incidents, world.record.incident) == ([], "")
    world.start()
    world.api.refused = set()
    async with world.running():
        await world.until(lambda: world.record.incident)
        assert await world.rounds(10 * LAST_DELAY) == []
    (incident,) = world.incidents
    assert (world.record.incident, world.record.leaked) == (incident["spec"]["incident"]["id"], ("boot-p",))


async def test_an_operator_that_ended_before_it_told_of_a_leak_asks_again(made: Made) -> None:
    world: World = await made("p")
    async with world.running():
        await world.rounds()
    world.write_status()
    await declare(world.api, leak_incident(Key("ServingPool", "models", "tiny"), "uid-of-pool", incident_of("s"), "what"))
    world.start()
    world.shows["p"] = [leaks()]
    async with world.running():
        assert await world.rounds() == ["p"], "it is not believed that it is proven"
    assert world.record.leaked == ("boot-p",)


async def test_a_pool_that_is_made_anew_under_its_name_begins_with_nothing(made: Made) -> None:
    world: World = await made("p")
    async with world.running():
        await world.rounds()
        assert world.proven == {"p"}
        del world.book.found["p"]
        world.put(POOL, metadata={**POOL["metadata"], "uid": "uid-of-another"})
        await world.rounds()
        assert world.record == IsolationStatus()
        world.serve("q", "uid-of-another")
        assert await world.rounds() == ["q"]
    assert world.proven == {"q"}


@pytest.mark.parametrize("shown", [proves(), leaks(), FAILS], ids=["proves", "leaks", "fails"])
async def test_what_a_run_shows_of_a_pool_that_is_gone_is_dropped(made: Made, shown: Shown) -> None:
    world: World = await made("p")
    world.shows["p"], world.held = [shown], asyncio.Event()
    async with world.running():
        await world.until(lambda: world.asked)
        world.put(POOL, metadata={**POOL["metadata"], "uid": "uid-of-another"})
        world.held.set()
        await world.rounds()
        assert (world.record, world.incidents) == (IsolationStatus(), [])
    assert world.metric("isolation_probes_total", result="Leak") == 0


async def test_an_incident_of_a_pool_that_goes_is_given_up(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [leaks()]
    world.api.refused = EVERYTHING
    async with world.running():
        await world.until(lambda: world.record.leak)
        assert len(world.probes._running) == 1
        world.remove_pool()
        await world.until(lambda: not world.probes._running)


async def test_a_pool_that_shares_no_cache_any_more_has_no_record(made: Made) -> None:
    world: World = await made("p")
    async with world.running():
        await world.rounds()
        assert world.proven == {"p"}
        spec = {**POOL["spec"], "isolation": {"mode": "Disabled"}}
        world.put(POOL, spec=spec, metadata={**POOL["metadata"], "generation": 2})
        assert world.probes.record(world.pool) is None
        assert await world.rounds(VERIFY) == []


async def test_a_process_that_is_gone_takes_its_proof_along(made: Made) -> None:
    world: World = await made("p", "q")
    async with world.running():
        await world.rounds()
        del world.book.found["p"]
        await world.rounds(VERIFY)
    assert world.proven == {"q"}


async def test_what_is_counted_has_no_names(made: Made) -> None:
    world: World = await made("p")
    world.shows["p"] = [leaks()]
    async with world.running():
        await world.until(lambda: world.incidents)
    text = generate_latest(world.metrics.registry).decode()
    assert 'cachescope_operator_isolation_probes_total{result="Leak"} 1.0' in text
    assert not [line for line in text.splitlines() if "isolation_probes" in line and ("tiny" in line or "boot-" in line)]


async def test_a_round_of_many_pools_looks_at_each_thing_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    world: World = await made("p")
    for number in range(20):
        world.put(POOL, metadata={**POOL["metadata"], "name": f"t{number}", "uid": f"uid-of-pool-{number}"})
        world.serve(f"p{number}", f"uid-of-pool-{number}")
    counted: Counter[str] = Counter()
    every, parsed, grouped = world.store.all, shared_pool, world.book.guards_by_pool
    monkeypatch.setattr(world.store, "all", lambda kind, *where: counted.update([kind]) or every(kind, *where))
    monkeypatch.setattr(isolation_probes, "shared_pool", lambda document: counted.update(["parsed"]) or parsed(document))
    monkeypatch.setattr(world.book, "guards_by_pool", lambda: counted.update(["guards"]) or grouped())
    for _ in range(3):
        assert list(world.probes._due())
    assert counted == {"ServingPool": 3, "Pod": 3, "guards": 3, "parsed": 21}
