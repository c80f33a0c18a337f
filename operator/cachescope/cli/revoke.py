"""`revoke` and `readmit`: what a tenant, a principal or a compartment was allowed holds no longer, or again."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer

from cachescope.cli.contexts import current_namespace
from cachescope.cli.declaring import carry_out
from cachescope.cli.incident_options import DEFAULT_TIMEOUT, IncidentId, Namespace, Reason, Timeout, Wait
from cachescope.cli.incidents import cache_epoch, new_id
from cachescope.core.errors import SpecError

revoke = typer.Typer(
    no_args_is_help=True, help="Refuse what a tenant, principal or compartment may do, and close what they have open."
)
readmit = typer.Typer(no_args_is_help=True, help="Take every denial of a tenant, principal or compartment back.")

READMIT = {"readmit": True}

Name = Annotated[str, typer.Argument(help="Name of the Tenant.")]
Compartment = Annotated[str, typer.Argument(help="Name of the compartment.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", metavar="SUBJECT", help="Principal of the tenant's API keys.")]
Jwt = Annotated[tuple[str, str] | None, typer.Option("--jwt", metavar="ISSUER SUBJECT", help="`iss` and principal of its tokens.")]
IssuedBefore = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Refuse only credentials issued before: `now`, or a time such as 2030-01-31T12:00:00Z. Never taken back.",
    ),
]
Rotate = Annotated[bool, typer.Option("--rotate", help="Refuse nobody: only what was cached and is open is cut off.")]


class Asked(NamedTuple):
    """What all of these commands are told beside what they are about."""

    reason: str
    incident: str | None
    namespace: str | None
    wait: bool
    timeout: float


@revoke.command("tenant")
def revoke_tenant(
    name: Name,
    *,
    reason: Reason,
    issued_before: IssuedBefore = None,
    rotate: Rotate = False,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Refuse all credentials of a tenant, and say when that is true everywhere."""
    refused = _refused(issued_before, rotate=rotate, now=datetime.now(UTC))
    _carry_out("revoke", _tenant(name), refused, Asked(reason, incident, namespace, wait, timeout))


@revoke.command("principal")
def revoke_principal(  # noqa: PLR0913 - one for each option
    tenant: Name,
    *,
    reason: Reason,
    api_key: ApiKey = None,
    jwt: Jwt = None,
    issued_before: IssuedBefore = None,
    rotate: Rotate = False,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Refuse all credentials that speak for one principal of a tenant, and say when that is true everywhere."""
    refused = _refused(issued_before, rotate=rotate, now=datetime.now(UTC))
    _carry_out("revoke", _principal(tenant, api_key, jwt), refused, Asked(reason, incident, namespace, wait, timeout))


@revoke.command("compartment")
def revoke_compartment(  # noqa: PLR0913 - one for each option
    tenant: Name,
    compartment: Compartment,
    *,
    reason: Reason,
    issued_before: IssuedBefore = None,
    rotate: Rotate = False,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Refuse all requests of one compartment of a tenant, and say when that is true everywhere."""
    refused = _refused(issued_before, rotate=rotate, now=datetime.now(UTC))
    _carry_out("revoke", _compartment(tenant, compartment), refused, Asked(reason, incident, namespace, wait, timeout))


@readmit.command("tenant")
def readmit_tenant(
    name: Name,
    *,
    reason: Reason,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take every denial of a tenant back."""
    _carry_out("readmit", _tenant(name), READMIT, Asked(reason, incident, namespace, wait, timeout))


@readmit.command("principal")
def readmit_principal(
    tenant: Name,
    *,
    reason: Reason,
    api_key: ApiKey = None,
    jwt: Jwt = None,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take every denial of a principal back."""
    _carry_out("readmit", _principal(tenant, api_key, jwt), READMIT, Asked(reason, incident, namespace, wait, timeout))


@readmit.command("compartment")
def readmit_compartment(
    tenant: Name,
    compartment: Compartment,
    *,
    reason: Reason,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take every denial of a compartment back."""
    _carry_out("readmit", _compartment(tenant, compartment), READMIT, Asked(reason, incident, namespace, wait, timeout))


def _tenant(name: str) -> dict[str, Any]:
    return {"kind": "Tenant", "name": name}


def _compartment(tenant: str, name: str) -> dict[str, Any]:
    return {"kind": "Compartment", "name": tenant, "compartment": name}


def _principal(tenant: str, api_key: str | None, jwt: tuple[str, str] | None) -> dict[str, Any]:
    if (api_key is None) == (jwt is None):
        raise SpecError("name one principal: --api-key SUBJECT, or --jwt ISSUER SUBJECT")
    who = {"kind": "jwt", "issuer": jwt[0], "subject": jwt[1]} if jwt else {"kind": "api-key", "subject": api_key}
    return {"kind": "Principal", "name": tenant, "principal": who}


def _refused(issued_before: str | None, *, rotate: bool, now: datetime) -> dict[str, Any]:
    """What is refused: everybody, those whose credentials are older, or nobody."""
    if rotate and issued_before:
        raise SpecError("--rotate refuses nobody, and --issued-before does; use one of them")
    if issued_before:
        return {"credentialsIssuedBefore": moment(issued_before, now)}
    return {} if rotate else {"deny": True}


def moment(text: str, now: datetime) -> str:
    """A moment in whole seconds; `now` is rounded up, so that no credential of this very second is let through.

    Raises:
        SpecError: It is no time with a zone.
    """
    try:
        found = now if text == "now" else datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(f"{text!r} is no time; write `now`, or one such as 2030-01-31T12:00:00Z") from error
    if found.tzinfo is None:
        raise SpecError(f"{text!r} names no zone; write Z or an offset behind it, such as 2030-01-31T12:00:00Z")
    return datetime.fromtimestamp(math.ceil(found.timestamp()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _carry_out(verb: str, target: dict[str, Any], more: dict[str, Any], asked: Asked) -> None:
    incident = {"id": asked.incident or new_id(datetime.now(UTC)), "reason": asked.reason}
    wanted = cache_epoch(asked.namespace or current_namespace(), {"target": target, "incident": incident, **more})
    carry_out(verb, wanted, wait=asked.wait, timeout=asked.timeout)
