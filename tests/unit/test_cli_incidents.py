"""The commands of an incident, against an API server in memory whose statuses move on as a script says."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.epochs import CacheEpochSpec
from cachescope.cli import declaring, kubectl, output
from cachescope.cli.declaring import Watching, follow
from cachescope.cli.epochs import Progress, State, progress
from cachescope.cli.incidents import cache_epoch, names, new_id
from cachescope.cli.main import run_app
from cachescope.cli.revoke import PRINCIPALS, moment
from cachescope.core.errors import SpecError
from cachescope.kube import rest
from cachescope.kube.rest import ApiError, ConflictError, NotFoundError

Document = dict[str, Any]
ROOT = "/apis/cachescope.dev/v1alpha1/namespaces/ns"
EPOCHS = f"{ROOT}/cacheepochs"
NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
MOST_READS = 200
RUN = CliRunner(env={"CACHESCOPE_NAMESPACE": "ns", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def condition(kind: ConditionType, status: str, reason: Reason, message: str = "said", generation: int = 1) -> Document:
    stamp = {"lastTransitionTime": "t", "observedGeneration": generation}
    return {"type": kind.value, "status": status, "reason": reason.value, "message": message, **stamp}


ACCEPTED = condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
WAITING = condition(ConditionType.FENCED, "False", Reason.WAITING_FOR_PROCESSES, "waiting for FenceLeases: p.b")


def fencing(acknowledged: int, expired: int = 0, gateways: int = 0) -> Document:
    counts = {"guards": {"total": 3, "acknowledged": acknowledged, "expired": expired}, "gateways": {"total": gateways}}
    return {"epoch": 7, "phase": "Fencing", **counts, "conditions": [ACCEPTED, WAITING]}


def fenced(generation: int = 1, seconds: float = 0.42) -> Document:
    done = condition(ConditionType.FENCED, "True", Reason.ACKNOWLEDGED, "every process acknowledged it", generation)
    accepted = condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, "", generation)
    guards = {"total": 3, "acknowledged": 3, "expired": 0}
    return {"epoch": 7, "phase": "Fenced", "seconds": seconds, "guards": guards, "conditions": [accepted, done]}


def refused(reason: Reason = Reason.LEDGER_UNUSABLE) -> Document:
    return {"conditions": [condition(ConditionType.ACCEPTED, "False", reason, "the ledger cannot be read; restore it")]}


def held() -> Document:
    return {"conditions": [ACCEPTED, condition(ConditionType.HELD, "True", Reason.JUMP_TOO_LARGE, "no number is left")]}


UNCONFIRMED = {"epoch": 2, "conditions": [ACCEPTED, condition(ConditionType.FENCED, "False", Reason.RESTORE_UNCONFIRMED)]}


class Server:
    """An API server in memory; each read of a CacheEpoch shows the next status of the script, and the last one for ever."""

    def __init__(self, script: Sequence[Document | ApiError] = ()) -> None:
        self.script = list(script) or [fenced()]
        self.objects: dict[str, Document] = {}
        self.reads = 0
        self.created: list[str] = []
        self.patches: list[Document] = []
        for plural, name in (("servingpools", "tiny"), ("servingpools", "big"), ("tenants", "red")):
            self.objects[f"{ROOT}/{plural}/{name}"] = {"metadata": {"name": name, "namespace": "ns"}, "spec": {}}

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def get(self, path: str, **query: str) -> Document:
        if "/leases" in path or query:
            return {"items": []}
        if path not in self.objects:
            found = [item for name, item in sorted(self.objects.items()) if name.rpartition("/")[0] in (path, _namespaced(path))]
            if found or path.rpartition("/")[2] in ("cacheepochs", "epochledgers", "servingpools"):
                return {"items": copy.deepcopy(found)}
            raise NotFoundError(404, f"{path} is not there")
        return self._epoch(path) if path.startswith(EPOCHS) else copy.deepcopy(self.objects[path])

    def _epoch(self, path: str) -> Document:
        self.reads += 1
        assert self.reads < MOST_READS, "somebody waits for what never comes"
        status = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(status, ApiError):
            raise status
        return {**copy.deepcopy(self.objects[path]), "status": status}

    async def create(self, path: str, document: Document) -> Document:
        name = document["metadata"]["name"]
        if f"{path}/{name}" in self.objects:
            raise ConflictError(409, "it is there already")
        CacheEpochSpec.model_validate(document["spec"])
        metadata = {**document["metadata"], "generation": 1, "creationTimestamp": "2030-01-01T00:00:00Z"}
        self.objects[f"{path}/{name}"] = {**copy.deepcopy(document), "metadata": metadata}
        self.created.append(name)
        return copy.deepcopy(self.objects[f"{path}/{name}"])

    async def merge(self, path: str, patch: Document) -> Document:
        self.patches.append(patch)
        found = self.objects[path]
        found["spec"] = _merged(found["spec"], patch["spec"])
        CacheEpochSpec.model_validate(found["spec"])
        found["metadata"]["generation"] += 1
        return copy.deepcopy(found)


def _namespaced(path: str) -> str:
    return path.replace("/v1alpha1/", "/v1alpha1/namespaces/ns/")


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    return {**old, **{name: _merged(old.get(name, {}), value) for name, value in patch.items()}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(rest, "Rest", lambda: made)
    monkeypatch.setattr(declaring, "POLL_SECONDS", 0)
    return made


def run(*arguments: str) -> Result:
    return RUN.invoke(kubectl.app, [*arguments])


def spec(server: Server, name: str) -> Document:
    found: Document = server.objects[f"{EPOCHS}/{name}"]["spec"]
    return found


ROLLBACK = ("rollback", "tiny", "--reason", "a leak", "--incident", "inc-1")


def test_a_rollback_ends_with_the_seconds_that_it_took(server: Server) -> None:
    server.script = [{}, fencing(1), fencing(2, 1), fenced()]
    result = run(*ROLLBACK, "--bypass", "--stop-public", "--drain", "20")
    assert (result.exit_code, result.stdout) == (0, "fenced in 0.4 s (epoch 7)\n")
    assert spec(server, "rollback-inc-1") == {
        "target": {"kind": "ServingPool", "name": "tiny"},
        "incident": {
            "id": "inc-1",
            "reason": "a leak",
            "bypassReuse": True,
            "stopPublicSharing": True,
            "inFlight": {"mode": "Drain", "drainSeconds": 20},
        },
    }
    assert "resumeAfter of the pool is inc-1" in result.stderr


def test_progress_is_a_line_for_each_change_where_there_is_no_terminal(server: Server) -> None:
    server.script = [{}, {}, fencing(1), fencing(1), fencing(2, 1), fenced()]
    said = [line.split(" s  ", 1)[1] for line in run(*ROLLBACK).stderr.splitlines() if " s  " in line]
    assert said == [
        "waiting for the operator to look at it",
        "epoch 7: guards 1 acknowledged, 0 expired, 2 left; waiting for FenceLeases: p.b",
        "epoch 7: guards 2 acknowledged, 1 expired, 0 left; waiting for FenceLeases: p.b",
        "epoch 7: guards 3 acknowledged, 0 expired, 0 left; every process acknowledged it",
    ]


def test_on_a_terminal_one_line_is_rewritten(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    line = output.LiveLine()
    line.show(0.1, "one")
    line.show(0.4, "x" * 100)
    line.end()
    assert capsys.readouterr().err == "\r   0.1 s  one\x1b[K\r   0.4 s  " + "x" * 19 + "\x1b[K\n"


def test_gateways_are_counted_where_a_fence_waits_for_them() -> None:
    found = progress({"metadata": {"generation": 1}, "status": fencing(1, gateways=2)})
    assert "; gateways 0 acknowledged, 0 expired, 2 left; " in found.line


def test_running_it_again_makes_nothing_and_shows_the_same(server: Server) -> None:
    first, again = run(*ROLLBACK), run(*ROLLBACK)
    assert (first.exit_code, first.stdout) == (again.exit_code, again.stdout) == (0, "fenced in 0.4 s (epoch 7)\n")
    assert (server.created, server.patches) == (["rollback-inc-1"], [])


def test_what_is_asked_in_addition_is_added_and_nothing_is_taken_back(server: Server) -> None:
    run(*ROLLBACK, "--stop-public", "--drain", "20")
    server.script = [fenced(), fenced(generation=2, seconds=1.0)]
    result = run(*ROLLBACK, "--bypass")
    assert server.patches == [{"spec": {"incident": {"bypassReuse": True}}}]
    assert result.stdout == "fenced in 1.0 s (epoch 7)\n", "a status of the older generation says nothing of what was added"
    incident = spec(server, "rollback-inc-1")["incident"]
    assert (incident["stopPublicSharing"], incident["inFlight"]["drainSeconds"]) == (True, 20)


def test_one_incident_rolls_several_pools(server: Server) -> None:
    run(*ROLLBACK)
    run("rollback", "big", "--reason", "a leak", "--incident", "inc-1")
    run("rollback", "big", "--reason", "a leak", "--incident", "inc-1")
    first, second = server.created
    assert first == "rollback-inc-1"
    assert second.startswith("rollback-inc-1-")
    assert spec(server, second)["target"]["name"] == "big"


def test_a_name_that_is_taken_for_another_incident_is_said(server: Server) -> None:
    run(*ROLLBACK)
    server.objects[f"{EPOCHS}/rollback-inc-1"]["spec"]["incident"]["id"] = "another"
    server.objects |= {
        f"{EPOCHS}/{name}": server.objects[f"{EPOCHS}/rollback-inc-1"]
        for name in names("rollback", cache_epoch("ns", {**spec(server, "rollback-inc-1"), "incident": {"id": "inc-1"}}))
    }
    result = run(*ROLLBACK)
    assert isinstance(result.exception, SpecError)
    assert "--incident" in str(result.exception)


def test_ids_that_differ_have_names_that_differ_and_that_kubernetes_takes() -> None:
    ids = ["inc-1", "INC-1", "inc.1", "inc_1", "x" * 63, "A..b-"]
    made = [next(names("revoke", cache_epoch("ns", {"target": {"name": "t"}, "incident": {"id": item}}))) for item in ids]
    assert len(set(made)) == len(ids)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and name[-1] != "-" for name in made)


def test_without_an_id_one_is_made_and_said(server: Server) -> None:
    result = run("rollback", "tiny", "--reason", "a leak")
    (name,) = server.created
    assert spec(server, name)["incident"]["id"] == name.removeprefix("rollback-")
    assert f"--incident {name.removeprefix('rollback-')}" in result.stderr
    assert new_id(NOW).startswith("20300131-120000-")
    assert new_id(NOW) != new_id(NOW)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ([{}, refused()], 1, "refused (LedgerUnusable): the ledger cannot be read; restore it\n"),
        ([{}, held()], 1, "held (JumpTooLarge): no number is left\n"),
        ([fenced()], 0, "fenced in 0.4 s (epoch 7)\n"),
    ],
)
def test_the_exit_code_says_how_it_ended(server: Server, script: list[Document], code: int, said: str) -> None:
    server.script = list(script)
    result = run(*ROLLBACK)
    assert (result.exit_code, result.stdout) == (code, said)


def test_a_fence_that_takes_longer_ends_the_command_and_goes_on(server: Server) -> None:
    server.script = [fencing(1)]
    result = run(*ROLLBACK, "--timeout", "0")
    assert result.exit_code == declaring.TIMED_OUT == 3
    assert "kubectl get cacheepoch -n ns rollback-inc-1 --watch" in result.stdout


def test_nothing_is_waited_for_unless_it_is_wished(server: Server) -> None:
    server.script = [fencing(1)]
    result = run(*ROLLBACK, "--no-wait")
    assert (result.exit_code, result.stdout) == (0, "cacheepoch/rollback-inc-1 is declared; the operator does the rest\n")


def test_a_pool_that_is_not_there_is_said_before_anything_is_declared(server: Server) -> None:
    result = run("rollback", "tyni", "--reason", "a leak")
    assert "tyni" in str(result.exception)
    assert isinstance(result.exception, SpecError)
    assert server.created == []


def test_what_is_not_valid_is_said_before_anything_is_declared(server: Server) -> None:
    result = run("rollback", "tiny", "--reason", "a leak", "--incident", "no id!")
    assert isinstance(result.exception, SpecError)
    assert "incident.id" in str(result.exception)
    assert server.created == []


def test_an_api_server_that_is_away_for_a_while_is_asked_again(server: Server) -> None:
    server.script = [fencing(1), ApiError(0, "no answer"), ApiError(503, "overloaded"), fenced()]
    assert run(*ROLLBACK).exit_code == 0
    server.script = [fencing(1), ApiError(403, "forbidden")]
    assert isinstance(run(*ROLLBACK).exception, ApiError)


def test_a_cache_epoch_that_was_deleted_meanwhile_is_no_fence(server: Server) -> None:
    server.script = [fencing(1), NotFoundError(404, "gone")]
    result = run(*ROLLBACK)
    assert isinstance(result.exception, SpecError)
    assert "deleted" in str(result.exception)


class Clock:
    """Rises by a second with each pause."""

    def __init__(self) -> None:
        self.now = 0.0

    async def pause(self, _: float) -> None:
        self.now += 1


async def test_without_an_operator_the_wait_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    server, clock = Server([{}]), Clock()
    made = await server.create(EPOCHS, named())
    found = await follow(server, made, Watching(20, lambda: clock.now, clock.pause))
    assert found.state is State.UNSEEN
    assert capsys.readouterr().err.count("no operator has ever worked here") == 1


async def test_with_an_operator_that_looks_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    server, clock = Server([{}, fencing(1)]), Clock()
    found = await follow(server, await server.create(EPOCHS, named()), Watching(20, lambda: clock.now, clock.pause))
    assert (found.state, clock.now) == (State.FENCING, 20)
    assert "operator has" not in capsys.readouterr().err


def named() -> Document:
    found = cache_epoch("ns", {"target": {"name": "tiny"}, "incident": {"id": "inc-1"}})
    return {**found, "metadata": {"name": "rollback-inc-1", "namespace": "ns"}}


def test_a_fence_whose_seconds_nobody_knows_is_one_all_the_same() -> None:
    assert Progress(State.FENCED, "", epoch=3).result == "fenced (epoch 3)"


KEY, TOKEN = ("--api-key", "alice"), ("--jwt", "https://issuer.example", "bob")
WHO = {"kind": "api-key", "subject": "alice"}
REVOCATIONS: list[tuple[tuple[str, ...], Document, Document]] = [
    (("revoke", "tenant", "red"), {"kind": "Tenant"}, {"deny": True}),
    (("revoke", "tenant", "red", "--rotate"), {"kind": "Tenant"}, {}),
    (
        ("revoke", "tenant", "red", "--issued-before", "2030-01-31T13:00:00+01:00"),
        {"kind": "Tenant"},
        {"credentialsIssuedBefore": "2030-01-31T12:00:00Z"},
    ),
    (("revoke", "principal", "red", *KEY), {"kind": "Principal", "principal": WHO}, {"deny": True}),
    (
        ("revoke", "principal", "red", *TOKEN),
        {"kind": "Principal", "principal": {"kind": "jwt", "issuer": "https://issuer.example", "subject": "bob"}},
        {"deny": True},
    ),
    (("revoke", "compartment", "red", "m1"), {"kind": "Compartment", "compartment": "m1"}, {"deny": True}),
    (("readmit", "compartment", "red", "m1"), {"kind": "Compartment", "compartment": "m1"}, {"readmit": True}),
    (
        ("revoke", "principal", "red", "--mtls", "spiffe://corp/ns/a/sa/b"),
        {"kind": "Principal", "principal": {"kind": "mtls", "subject": "spiffe://corp/ns/a/sa/b"}},
        {"deny": True},
    ),
    (
        ("revoke", "principal", "red", "--service-account", "jobs:nightly"),
        {"kind": "Principal", "principal": {"kind": "service-account", "subject": "system:serviceaccount:jobs:nightly"}},
        {"deny": True},
    ),
    (("readmit", "tenant", "red"), {"kind": "Tenant"}, {"readmit": True}),
    (("readmit", "principal", "red", *KEY), {"kind": "Principal", "principal": WHO}, {"readmit": True}),
]


@pytest.mark.parametrize(("arguments", "target", "more"), REVOCATIONS, ids=[" ".join(item[0]) for item in REVOCATIONS])
def test_a_revocation_declares_what_is_refused(
    server: Server, arguments: tuple[str, ...], target: Document, more: Document
) -> None:
    result = run(*arguments, "--reason", "stolen", "--incident", "inc-2")
    assert (result.exit_code, result.stdout) == (0, "fenced in 0.4 s (epoch 7)\n")
    incident = {"id": "inc-2", "reason": "stolen"}
    assert spec(server, f"{arguments[0]}-inc-2") == {"target": {**target, "name": "red"}, "incident": incident, **more}


def test_a_rotation_becomes_a_denial_when_that_is_asked_of_the_same_incident(server: Server) -> None:
    revoke = ("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2")
    run(*revoke, "--rotate")
    server.script = [fenced(generation=2)]
    assert run(*revoke).exit_code == 0
    assert server.patches == [{"spec": {"deny": True}}]


def test_a_moment_that_was_declared_stays_when_the_command_is_repeated(server: Server) -> None:
    revoke = ("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2", "--issued-before")
    run(*revoke, "2030-01-31T12:00:00Z")
    run(*revoke, "now")
    assert server.patches == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("principal", "red"),
        ("principal", "red", *KEY, *TOKEN),
        ("tenant", "red", "--rotate", "--issued-before", "now"),
        ("tenant", "red", "--issued-before", "yesterday"),
        ("tenant", "red", "--issued-before", "2030-01-31T12:00:00"),
        ("tenant", "blue"),
        ("compartment", "red", ""),
        ("compartment", "blue", "m1"),
    ],
)
def test_what_cannot_be_revoked_is_said_and_nothing_is_declared(server: Server, arguments: tuple[str, ...]) -> None:
    result = run("revoke", *arguments, "--reason", "stolen")
    assert isinstance(result.exception, SpecError)
    assert server.created == []


def test_now_is_the_end_of_this_second() -> None:
    assert moment("now", NOW.replace(microsecond=1)) == "2030-01-31T12:00:01Z"
    assert moment("now", NOW) == "2030-01-31T12:00:00Z"


def test_a_revocation_before_a_restore_is_confirmed_ends_well_and_says_so(server: Server) -> None:
    server.script = [UNCONFIRMED]
    result = run("revoke", "tenant", "red", "--reason", "stolen")
    assert result.exit_code == 0
    assert "fenced in" not in result.stdout
    assert "the ledger has it" in result.stdout


def head(restored: int, confirmed: int) -> Document:
    spec = {"restored": restored, "confirmed": confirmed, "lineage": {"generation": 7}}
    return {"metadata": {"name": "authorization.head", "namespace": "ns"}, "spec": spec}


def test_a_restore_is_declared_and_what_to_do_is_said(server: Server) -> None:
    server.script = [UNCONFIRMED]
    result = run("restored", "-n", "ns", "--incident", "r-1")
    assert result.exit_code == 0
    assert spec(server, "restored-r-1")["restored"] == {"confirmed": False}
    assert "all caches are cold" in result.stdout
    assert "kubectl cachescope restored --confirm -n ns" in result.stdout


def test_a_restore_of_all_namespaces_is_declared_in_those_with_pools_or_ledgers(server: Server) -> None:
    server.script = [UNCONFIRMED]
    server.objects[f"{ROOT}/epochledgers/authorization.head"] = head(0, 0)
    result = run("restored", "--all-namespaces")
    assert (result.exit_code, len(server.created)) == (0, 1)
    assert "restored --confirm --all-namespaces" in result.stdout


def test_the_newest_revocation_that_survived_is_named(server: Server) -> None:
    run("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2")
    server.script = [UNCONFIRMED]
    assert "2030-01-01T00:00:00Z (revoke-inc-2)" in run("restored").stdout


def test_confirming_confirms_what_is_not_confirmed(server: Server) -> None:
    server.script = [UNCONFIRMED]
    run("restored", "--incident", "r-1")
    server.script = [fenced(generation=2)]
    result = run("restored", "--confirm")
    assert isinstance(result.exception, SpecError), "the operator has not looked at it: nobody knows what would be confirmed"
    assert server.patches == []
    server.objects[f"{ROOT}/epochledgers/authorization.head"] = head(1, 0)
    for _ in range(2):
        result = run("restored", "--confirm")
        assert (result.exit_code, result.stdout) == (0, "fenced in 0.4 s (epoch 7)\n")
    assert server.patches == [{"spec": {"restored": {"confirmed": True, "lineage": 7}}}]
    assert len(server.created) == 1


def test_confirming_also_confirms_what_the_operator_found_out_by_itself(server: Server) -> None:
    server.objects[f"{ROOT}/epochledgers/authorization.head"] = head(1, 0)
    assert run("restored", "--confirm", "--incident", "r-2").exit_code == 0
    assert spec(server, "restored-r-2")["restored"] == {"confirmed": True, "lineage": 7}


def test_nothing_is_confirmed_where_nothing_was_restored(server: Server) -> None:
    server.objects[f"{ROOT}/epochledgers/authorization.head"] = head(1, 1)
    result = run("restored", "--confirm")
    assert (result.exit_code, server.created) == (0, [])
    assert "nothing is to be confirmed" in result.stderr


def test_a_namespace_without_pools_and_ledgers_is_no_place_for_a_restore(server: Server) -> None:
    server.objects.clear()
    result = run("restored", "-n", "ns")
    assert isinstance(result.exception, SpecError)
    assert server.created == []


def test_status_shows_each_open_epoch_once(server: Server) -> None:
    server.script = [fencing(1)]
    run(*ROLLBACK, "--no-wait")
    for name in ("tiny", "big"):
        server.objects[f"{ROOT}/servingpools/{name}"]["spec"] = {"replicas": 1}
    run("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2", "--no-wait")
    shown = run("status").stdout
    assert [shown.count(name) for name in ("rollback-inc-1", "revoke-inc-2")] == [1, 1]
    assert "rollback-inc-1" not in run("status", "big").stdout


def test_status_shows_pools_to_those_who_may_not_see_epochs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = server.get

    async def get(path: str, **query: str) -> Document:
        if path == EPOCHS:
            raise ApiError(403, "forbidden")
        return await allowed(path, **query)

    monkeypatch.setattr(server, "get", get)
    result = run("status")
    assert (result.exit_code, "tiny" in result.stdout) == (0, True)
    assert "open CacheEpochs could not be seen" in result.stderr


def test_a_fault_is_one_line_that_says_what_to_do(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl", "revoke", "principal", "red", "--reason", "stolen"])
    with pytest.raises(SystemExit, match="1"):
        run_app(kubectl.app, "kubectl cachescope")
    assert capsys.readouterr().err == f"kubectl cachescope: name one principal: {', '.join(PRINCIPALS[:-1])}, or {PRINCIPALS[-1]}\n"
    assert server.created == []


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (("--mtls", "corp/ns/a/sa/b"), "this is no SPIFFE id"),
        (("--service-account", "nightly"), "this names no ServiceAccount"),
        ((*KEY, "--mtls", "spiffe://corp/a"), "name one principal"),
        ((*KEY, *TOKEN), "name one principal"),
    ],
)
def test_a_name_that_no_credential_has_is_refused_before_anything_is_declared(
    server: Server, named: tuple[str, ...], message: str
) -> None:
    result = run("revoke", "principal", "red", *named, "--reason", "stolen")
    assert isinstance(result.exception, SpecError)
    assert message in str(result.exception)
    assert server.created == []
