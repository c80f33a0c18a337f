"""`restored`: what is declared, what people are told, and what a confirmation confirms."""

from __future__ import annotations

import pytest

from cachescope.api.conditions import Reason
from cachescope.cli.declaring import Watching, watch_over_all
from cachescope.core.errors import SpecError
from tests.unit.incident_server import (
    EPOCHS,
    ROOT,
    UNCONFIRMED,
    Clock,
    Document,
    Server,
    epoch_named,
    fenced,
    fencing,
    refused,
    run,
    served,
    spec,
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return served(monkeypatch)


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


@pytest.mark.parametrize(
    ("status", "options", "code"),
    [({}, ("--timeout", "0"), 3), (refused(Reason.REFERENCE_NOT_FOUND), (), 1), (UNCONFIRMED, ("--no-wait",), 0)],
)
def test_nobody_is_told_that_all_is_refused_before_it_is(
    server: Server, status: Document, options: tuple[str, ...], code: int
) -> None:
    server.script = [status]
    result = run("restored", "--incident", "r-1", *options)
    assert result.exit_code == code
    assert "NOT known to be refused yet: keep clients away, and repeat the command with --incident r-1" in result.stdout
    assert "--confirm" not in result.stdout
    assert "503" not in result.stdout


def test_a_restore_that_is_confirmed_already_is_not_declared_refused(server: Server) -> None:
    run("restored", "--incident", "r-1")
    spec(server, "restored-r-1")["restored"] = {"confirmed": True, "lineage": 7}
    result = run("restored", "--incident", "r-1")
    assert "confirmed already" in result.stdout
    assert "503" not in result.stdout


def test_of_all_namespaces_those_with_nothing_but_ledgers_of_pools_are_left_out(server: Server) -> None:
    found = head(0, 0)
    server.objects = {f"{ROOT}/epochledgers/tiny": {**found, "metadata": {**found["metadata"], "name": "tiny"}}}
    assert isinstance(run("restored", "-A").exception, SpecError)
    assert server.created == []
    server.script = [refused(Reason.REFERENCE_NOT_FOUND)]
    assert run("restored", "-n", "ns").exit_code == 1, "who names it hears it of the operator"


def test_a_namespace_with_an_authorization_head_counts_without_pools(server: Server) -> None:
    server.objects = {f"{ROOT}/epochledgers/authorization.head": head(0, 0)}
    server.script = [UNCONFIRMED]
    assert (run("restored", "-A").exit_code, len(server.created)) == (0, 1)


async def test_several_namespaces_share_one_deadline_and_each_line_names_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    server, clock = Server([fencing(1)]), Clock()
    made = [await server.create(EPOCHS, epoch_named(name)) for name in ("one", "two")]
    assert await watch_over_all(server, made, Watching(5, lambda: clock.now, clock.pause)) == [3, 3]
    assert clock.now == 5
    said = capsys.readouterr()
    assert [line.split(" ", 1)[0] for line in said.out.splitlines()] == ["ns/one:", "ns/two:"]
    assert " s  ns/one: epoch 7" in said.err
    await watch_over_all(server, made[:1], Watching(0, lambda: clock.now, clock.pause))
    assert capsys.readouterr().out.startswith("not fenced"), "control: one alone needs no name"


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
