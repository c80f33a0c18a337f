"""The health scripts for Argo CD, run by the Lua of a real Envoy: a script that a reader finds right may still not run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.envoy_fixtures import ENVOY
from tests.integration.operator_process import until
from tests.integration.ports import free_port
from tests.unit.test_argocd import SCRIPTS

Run = Callable[[str, dict[str, Any]], tuple[str, str]]


def condition(type_: str, status: str, reason: str = "R") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": f"{type_} says"}


def seen(*conditions: dict[str, str], generation: int = 2, observed: int = 2) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": observed, "conditions": list(conditions)}}


READY, NOT_READY = condition("Ready", "True", "Routable"), condition("Ready", "False", "NoReadyPod")
ROLLING, ROLLED = condition("Progressing", "True"), condition("Progressing", "False")
BAD, WELL = condition("Degraded", "True"), condition("Degraded", "False")
YES, NO = condition("Accepted", "True"), condition("Accepted", "False", "IdentityTaken")
HELD = condition("Held", "True", "SpecBehindLedger")
FENCING, FENCED = condition("Fenced", "False", "WaitingForProcesses"), condition("Fenced", "True", "Acknowledged")
CASES = [
    ("ServingPool", seen(READY, ROLLED, WELL), ("Healthy", "Ready says")),
    ("ServingPool", seen(READY, ROLLING, WELL), ("Progressing", "Progressing says")),
    ("ServingPool", seen(READY, ROLLED, BAD), ("Degraded", "Degraded says")),
    ("ServingPool", seen(NOT_READY, ROLLING, WELL), ("Progressing", "Progressing says")),
    ("ServingPool", seen(NOT_READY, ROLLED, WELL), ("Degraded", "Ready says")),
    ("ServingPool", seen(condition("Ready", "False", "InvalidSpec")), ("Degraded", "Ready says")),
    ("ServingPool", seen(condition("Ready", "False", "GuardNotProven"), ROLLED, WELL), ("Progressing", "Ready says")),
    ("ServingPool", seen(condition("Ready", "False", "TenantsNotReady"), ROLLED, WELL), ("Progressing", "Ready says")),
    ("ServingPool", seen(condition("Ready", "False", "NoTenants"), ROLLED, WELL), ("Degraded", "Ready says")),
    ("ServingPool", seen(condition("Ready", "False", "GuardWithoutLease"), ROLLED, WELL), ("Progressing", "Ready says")),
    ("ServingPool", seen(condition("Ready", "False", "NoGateway"), ROLLED, WELL), ("Degraded", "Ready says")),
    ("ServingPool", seen(condition("Ready", "Unknown", "RootKeysMissing"), ROLLING, BAD), ("Degraded", "Degraded says")),
    ("ServingPool", seen(condition("Ready", "False", "ScaledToZero"), ROLLED, WELL), ("Healthy", "Ready says")),
    ("Tenant", seen(YES), ("Healthy", "Accepted says")),
    ("Tenant", seen(NO), ("Degraded", "Accepted says")),
    ("Tenant", seen(condition("Accepted", "True", "Suspended")), ("Healthy", "Accepted says")),
    ("CacheScope", seen(YES), ("Healthy", "Accepted says")),
    ("CacheScope", seen(NO), ("Degraded", "Accepted says")),
    ("PublicSource", seen(condition("Usable", "True", "Approved")), ("Healthy", "Usable says")),
    ("PublicSource", seen(condition("Usable", "False", "Withdrawn")), ("Healthy", "Usable says")),
    ("PublicSource", seen(condition("Usable", "False", "NotApproved")), ("Healthy", "Usable says")),
    ("PublicSource", seen(condition("Usable", "False", "InvalidSpec")), ("Degraded", "Usable says")),
    ("CacheEpoch", seen(YES, condition("Held", "False")), ("Healthy", "Accepted says")),
    ("CacheEpoch", seen(YES, HELD), ("Healthy", "Held says")),
    ("CacheEpoch", seen(YES, FENCING), ("Progressing", "Fenced says")),
    ("CacheEpoch", seen(YES, FENCED), ("Healthy", "Accepted says")),
    ("CacheEpoch", seen(YES, HELD, FENCING), ("Healthy", "Held says")),
    ("CacheEpoch", seen(YES, condition("Held", "True", "JumpTooLarge"), FENCING), ("Degraded", "Held says")),
    ("CacheEpoch", seen(YES, condition("Held", "True", "Postponed"), FENCED), ("Degraded", "Held says")),
    ("CacheEpoch", seen(NO, FENCING), ("Degraded", "Accepted says")),
    ("CacheEpoch", seen(NO), ("Degraded", "Accepted says")),
    *((kind, seen(READY, YES, observed=1), ("Progressing", "the operator has not")) for kind in SCRIPTS),
    *((kind, {"metadata": {"generation": 1}}, ("Progressing", "the operator has not")) for kind in SCRIPTS),
    *((kind, seen(), ("Progressing", "the operator has not")) for kind in SCRIPTS),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[str]]]:
    """What each case's script answers, in one process that runs them all when it starts."""
    folder = tmp_path_factory.mktemp("lua")
    port, config, log = free_port(), folder / "envoy.json", folder / "answers"
    config.write_text(json.dumps(bootstrap(port, program(log))))
    command = [str(ENVOY), "-c", str(config), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            texts: list[str] = []
            until(lambda: process.poll() is not None or _written(log, texts))
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            yield [line.split("\t") for line in texts[-1].splitlines()]
        finally:
            process.kill()


def _written(log: Path, texts: list[str]) -> bool:
    """Whether a whole run is in the file; Envoy runs the program once a thread, and each begins it anew."""
    texts.append(log.read_text() if log.exists() else "")
    return texts[-1].endswith("end\n")


def program(log: Path) -> str:
    functions = ", ".join(f"[{json.dumps(kind)}] = function(obj)\n{text}\nend" for kind, text in SCRIPTS.items())
    cases = ", ".join(f"{{{json.dumps(kind)}, {literal(document)}}}" for kind, document, _ in CASES)
    return f"""
local scripts = {{{functions}}}
local out = io.open({json.dumps(str(log))}, "w")
for _, case in ipairs({{{cases}}}) do
  local hs = scripts[case[1]](case[2])
  out:write(hs.status, "\\t", hs.message, "\\n")
end
out:write("end\\n")
out:close()
function envoy_on_request(handle) end
"""


def literal(value: Any) -> str:
    """JSON as Lua has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(name)}] = {literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(literal, value)) + "}"
    return json.dumps(value)


def bootstrap(port: int, code: str) -> dict[str, Any]:
    filters = [
        _filter("lua", "lua.v3.Lua", default_source_code={"inline_string": code}),
        _filter("router", "router.v3.Router"),
    ]
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "lua",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"]}]},
        "http_filters": filters,
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"static_resources": {"listeners": [{"name": "lua", "address": address, "filter_chains": [chain]}]}}


def _filter(name: str, type_: str, **fields: Any) -> dict[str, Any]:
    config = {"@type": f"type.googleapis.com/envoy.extensions.filters.http.{type_}", **fields}
    return {"name": f"envoy.filters.http.{name}", "typed_config": config}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{kind}{number}" for number, (kind, *_) in enumerate(CASES)])
def test_a_script_answers_what_the_page_says(answers: list[list[str]], number: int) -> None:
    status, message = answers[number]
    wanted, said = CASES[number][2]
    assert (status, message[: len(said)]) == (wanted, said)
