"""Waiting for what was declared: how it ends, and faults on the way."""

from __future__ import annotations

import pytest

from cachescope.cli import declaring, kubectl
from cachescope.cli.declaring import Watching, follow
from cachescope.cli.epochs import Progress, State
from cachescope.cli.main import run_app
from cachescope.cli.revoke import PRINCIPALS
from cachescope.core.errors import SpecError
from cachescope.kube.rest import ApiError, NotFoundError
from tests.unit.incident_server import (
    EPOCHS,
    ROLLBACK,
    Clock,
    Document,
    Server,
    epoch_named,
    fenced,
    fencing,
    held,
    refused,
    run,
    served,
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return served(monkeypatch)


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


async def test_without_an_operator_the_wait_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    server, clock = Server([{}]), Clock()
    made = await server.create(EPOCHS, epoch_named("rollback-inc-1"))
    found = await follow(server, made, Watching(20, lambda: clock.now, clock.pause))
    assert found.state is State.UNSEEN
    assert capsys.readouterr().err.count("no operator has ever worked here") == 1


async def test_with_an_operator_that_looks_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    server, clock = Server([{}, fencing(1)]), Clock()
    found = await follow(
        server, await server.create(EPOCHS, epoch_named("rollback-inc-1")), Watching(20, lambda: clock.now, clock.pause)
    )
    assert (found.state, clock.now) == (State.FENCING, 20)
    assert "operator has" not in capsys.readouterr().err


def test_a_fence_whose_seconds_nobody_knows_is_one_all_the_same() -> None:
    assert Progress(State.FENCED, "", epoch=3).result == "fenced (epoch 3)"


def test_a_fault_is_one_line_that_says_what_to_do(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl", "revoke", "principal", "red", "--reason", "stolen"])
    with pytest.raises(SystemExit, match="1"):
        run_app(kubectl.app, "kubectl cachescope")
    assert capsys.readouterr().err == f"kubectl cachescope: name one principal: {', '.join(PRINCIPALS[:-1])}, or {PRINCIPALS[-1]}\n"
    assert server.created == []
