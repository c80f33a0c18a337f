"""What the headers of a request decide alone: who asks, whether the route is one, and whether its body is worth reading."""

from __future__ import annotations

from dataclasses import dataclass

from cachescope.engines.tables import KNOWN
from cachescope.gateway.context import Said
from cachescope.gateway.errors import answer
from cachescope.gateway.exchange import Answer, RequestHead
from cachescope.gateway.identity.credentials import Forbidden, Identity, KeysUnavailable, Unauthenticated
from cachescope.gateway.own_routes import MODELS, OWN, Purpose
from cachescope.gateway.snapshot import Snapshot
from cachescope.gateway.standing import InForce


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request whose headers were accepted: its body is worth reading. Nothing here decides once the body is there.

    By the tenant it is guessed which engine the body is for, so that it is read once; what decides is looked up again.
    """

    head: RequestHead
    purpose: Purpose
    said: Said
    tenant_uid: str


async def let_in(found: InForce, head: RequestHead) -> Identity | Answer:
    """Who asks, or why he is refused."""
    identity = await authenticated(found.snapshot, head)
    if isinstance(identity, Answer):
        return identity
    refusal = found.snapshot.revocations.refusal(identity)
    if refusal is not None:
        return answer(refusal)
    high = found.snapshot.policy.tenants[identity.tenant_uid].high
    return answer("gateway_not_ready") if high and found.fresh_only else identity


async def authenticated(snapshot: Snapshot, head: RequestHead) -> Identity | Answer:
    """Whose credential it is, or the refusal."""
    try:
        return await snapshot.authenticator.authenticate(head)
    except Unauthenticated as error:
        return answer("authentication_required", str(error))
    except Forbidden as error:
        return answer("permission_denied", str(error))
    except KeysUnavailable as error:
        return answer("gateway_not_ready", str(error))


def is_known(head: RequestHead) -> bool:
    """Whether a method and a path are served here; any other path may hold anything."""
    return (asked := (head.method, head.path)) in KNOWN or asked in OWN or asked == MODELS


def unacceptable_form(head: RequestHead) -> Answer | None:
    """Refuse a body that could be read in two ways: encoded, or not declared as JSON in UTF-8."""
    if head.values("content-encoding") not in ([], ["identity"]):
        return answer("unsupported_media_type")
    kind, _, parameters = (head.one("content-type") or "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    known = kind.strip().lower() == "application/json" and charset in {"", "charset=utf-8"}
    return None if known else answer("unsupported_media_type")


def model_not_found(*, alone: bool) -> Answer:
    """The answer where no pool serves a model; for a tenant that shares none (`alone`) the same whether or not others have one."""
    message = "No pool that serves this tenant alone has the model. List its models at `/v1/models`, or ask the platform team."
    return answer("model_not_found", message if alone else None, param="model")
