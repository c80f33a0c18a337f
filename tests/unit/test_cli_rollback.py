"""`rollback`: what it declares, once for each incident, and what it says while it waits."""

from __future__ import annotations

import pytest

from cachescope.cli import output
from cachescope.cli.epochs import progress
from cachescope.cli.incidents import cache_epoch, names, new_id
from cachescope.core.errors import SpecError
from tests.unit.incident_server import EPOCHS, NOW, ROLLBACK, Server, fenced, fencing, run, served, spec


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return served(monkeypatch)


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
    result = run(*ROLLBACK, "--bypass", "--drain", "20")
    assert server.patches == [{"spec": {"incident": {"bypassReuse": True}}}]
    assert result.stdout == "fenced in 1.0 s (epoch 7)\n", "a status of the older generation says nothing of what was added"
    incident = spec(server, "rollback-inc-1")["incident"]
    assert (incident["stopPublicSharing"], incident["inFlight"]["drainSeconds"]) == (True, 20)


def test_repeated_without_its_drain_it_cuts_what_still_drains(server: Server) -> None:
    run(*ROLLBACK, "--drain", "300", "--no-wait")
    server.script = [fencing(1), fenced(generation=2)]
    assert run(*ROLLBACK).exit_code == 0
    assert server.patches == [{"spec": {"incident": {"inFlight": None}}}]
    assert "inFlight" not in spec(server, "rollback-inc-1")["incident"]


@pytest.mark.parametrize(
    ("first", "said"),
    [((), "answers under way are cut already"), (("--drain", "20"), "answers may end for 20 s as declared before")],
)
def test_what_cannot_be_given_again_is_said(server: Server, first: tuple[str, ...], said: str) -> None:
    run(*ROLLBACK, *first)
    result = run(*ROLLBACK, "--drain", "300")
    assert said in result.stderr
    assert server.patches == []
    assert "as declared before" not in run(*ROLLBACK, *first).stderr, "control: the same again is nothing to speak of"


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
