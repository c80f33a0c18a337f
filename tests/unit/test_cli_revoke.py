"""`revoke` and `readmit`: what they declare, and what cannot be asked."""

from __future__ import annotations

import pytest

from cachescope.cli.revoke import moment
from cachescope.core.errors import SpecError
from tests.unit.incident_server import NOW, Document, Server, fenced, run, served, spec


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return served(monkeypatch)


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


BEFORE = ("revoke", "tenant", "red", "--reason", "stolen", "--incident", "inc-2", "--issued-before")


def test_a_moment_that_was_declared_stays_when_the_command_is_repeated(server: Server) -> None:
    run(*BEFORE, "2030-01-31T12:00:00Z")
    result = run(*BEFORE, "now")
    assert (result.exit_code, server.patches) == (0, [])
    assert "it refuses credentials issued before 2030-01-31T12:00:00Z; to refuse others, name another incident" in result.stderr
    again = run(*BEFORE, "2030-01-31T13:00:00+01:00")
    assert (again.exit_code, "another incident" in again.stderr) == (0, False), "control: it is the same moment"


def test_another_moment_of_the_same_incident_is_a_fault_and_no_fence(server: Server) -> None:
    run(*BEFORE, "2030-01-31T12:00:00Z")
    result = run(*BEFORE, "2030-02-01T12:00:00Z")
    assert isinstance(result.exception, SpecError)
    assert "nothing was changed" in str(result.exception)
    assert "--incident" in str(result.exception)
    assert ("fenced in" in result.stdout, server.patches) == (False, [])


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
