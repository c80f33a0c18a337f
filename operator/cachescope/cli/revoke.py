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
from cachescope.core.scopes import API_KEY, JWT, MTLS, SERVICE_ACCOUNT
from cachescope.core.service_accounts import PREFIX, read_subject
from cachescope.core.spiffe import read_spiffe_id

revoke = typer.Typer(
    no_args_is_help=True, help="Refuse what a tenant, principal or compartment may do, and close what they have open."
)
readmit = typer.Typer(no_args_is_help=True, help="Take every denial of a tenant, principal or compartment back.")

READMIT = {"readmit": True}
PRINCIPALS = ("--api-key SUBJECT", "--jwt ISSUER SUBJECT", "--mtls SPIFFE_ID", "--service-account NAMESPACE:NAME")

Name = Annotated[str, typer.Argument(help="Name of the Tenant.")]
Compartment = Annotated[str, typer.Argument(help="Name of the compartment.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", metavar="SUBJECT", help="Principal of the tenant's API keys.")]
Jwt = Annotated[tuple[str, str] | None, typer.Option("--jwt", metavar="ISSUER SUBJECT", help="`iss` and principal of its tokens.")]
Mtls = Annotated[str | None, typer.Option("--mtls", metavar="SPIFFE_ID", help="Workload with client certificates.")]
Account = Annotated[str | None, typer.Option("--service-account", metavar="NAMESPACE:NAME", help="ServiceAccount of this cluster.")]
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
    exact: bool = False


class Who(NamedTuple):
    """Whom the options name."""

    api_key: str | None
    jwt: tuple[str, str] | None
    mtls: str | None
    service_account: str | None

    @property
    def by_kind(self) -> dict[str, str | None]:
        """Subjects by the kind of credential, of those that have no issuer.

        Raises:
            SpecError: One is a name that no credential has.
        """
        if self.mtls is not None:
            read_spiffe_id(self.mtls)
        account = None if self.service_account is None else PREFIX + self.service_account
        if account is not None:
            read_subject(account)
        return {API_KEY: self.api_key, MTLS: self.mtls, SERVICE_ACCOUNT: account}


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
    _carry_out("revoke", _tenant(name), refused, Asked(reason, incident, namespace, wait, timeout, _exact(issued_before)))


@revoke.command("principal")
def revoke_principal(  # noqa: PLR0913 - one for each option
    tenant: Name,
    *,
    reason: Reason,
    api_key: ApiKey = None,
    jwt: Jwt = None,
    mtls: Mtls = None,
    service_account: Account = None,
    issued_before: IssuedBefore = None,
    rotate: Rotate = False,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Refuse all credentials that speak for one principal of a tenant, and say when that is true everywhere."""
    refused = _refused(issued_before, rotate=rotate, now=datetime.now(UTC))
    asked = Asked(reason, incident, namespace, wait, timeout, _exact(issued_before))
    _carry_out("revoke", _principal(tenant, Who(api_key, jwt, mtls, service_account)), refused, asked)


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
    asked = Asked(reason, incident, namespace, wait, timeout, _exact(issued_before))
    _carry_out("revoke", _compartment(tenant, compartment), refused, asked)


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
def readmit_principal(  # noqa: PLR0913 - one for each option
    tenant: Name,
    *,
    reason: Reason,
    api_key: ApiKey = None,
    jwt: Jwt = None,
    mtls: Mtls = None,
    service_account: Account = None,
    incident: IncidentId = None,
    namespace: Namespace = None,
    wait: Wait = True,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take every denial of a principal back."""
    _carry_out(
        "readmit",
        _principal(tenant, Who(api_key, jwt, mtls, service_account)),
        READMIT,
        Asked(reason, incident, namespace, wait, timeout),
    )


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


def _principal(tenant: str, who: Who) -> dict[str, Any]:
    """The principal that is named: exactly one, in a form that some credential can have."""
    named = [{"kind": kind, "subject": subject} for kind, subject in who.by_kind.items() if subject is not None]
    if who.jwt:
        named.append({"kind": JWT, "issuer": who.jwt[0], "subject": who.jwt[1]})
    if len(named) != 1:
        raise SpecError(f"name one principal: {', '.join(PRINCIPALS[:-1])}, or {PRINCIPALS[-1]}")
    return {"kind": "Principal", "name": tenant, "principal": named[0]}


def _refused(issued_before: str | None, *, rotate: bool, now: datetime) -> dict[str, Any]:
    """What is refused: everybody, those whose credentials are older, or nobody."""
    if rotate and issued_before:
        raise SpecError("--rotate refuses nobody, and --issued-before does; use one of them")
    if issued_before:
        return {"credentialsIssuedBefore": moment(issued_before, now)}
    return {} if rotate else {"deny": True}


def _exact(issued_before: str | None) -> bool:
    """Whether a moment was named; `now` is that of the first time when the command is repeated."""
    return issued_before not in (None, "now")


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
    carry_out(verb, wanted, wait=asked.wait, timeout=asked.timeout, exact=asked.exact)
