"""`status`: CacheEpochs that are not fenced."""

from __future__ import annotations

import pytest

from cachescope.kube.rest import ApiError
from tests.unit.incident_server import EPOCHS, ROLLBACK, ROOT, Document, Server, fenced, fencing, run, served


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return served(monkeypatch)


def test_status_shows_each_open_epoch_once(server: Server) -> None:
    server.script = [fencing(1)]
    run(*ROLLBACK, "--no-wait")
    for name in ("tiny", "big"):
        server.objects[f"{ROOT}/servingpools/{name}"]["spec"] = {"replicas": 1}
    run("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2", "--no-wait")
    shown = run("status").stdout
    assert [shown.count(name) for name in ("rollback-inc-1", "revoke-inc-2")] == [1, 1]
    assert "rollback-inc-1" not in run("status", "big").stdout


def test_status_shows_open_epochs_where_there_is_no_pool(server: Server) -> None:
    run("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2", "--no-wait")
    for name in ("tiny", "big"):
        del server.objects[f"{ROOT}/servingpools/{name}"]
    assert "revoke-inc-2" in run("status").stdout
    server.objects[f"{EPOCHS}/revoke-inc-2"]["status"] = fenced()
    assert "revoke-inc-2" not in run("status").stdout, "control: it is fenced"


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
