"""Placing a request: what it says, what it sends and what is declared, put before the rules of `core.classes`; and their refusals.

A refusal says what the sender may do, and nothing of what others may: an unknown compartment and one that
others are authorized for get the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cachescope.api.pools import ServingPool
from cachescope.core.classes import Asked, Circumstances, Placement, Refusal, place
from cachescope.core.types import Digest, ScopeClass
from cachescope.gateway.context import Said
from cachescope.gateway.envoy import COMPARTMENT_HEADER, CONTEXT_HEADER
from cachescope.gateway.errors import ErrorName, answer
from cachescope.gateway.exchange import Answer
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.readings import KnownTenant
from cachescope.gateway.snapshot import Snapshot

_ANSWERS: Final[Mapping[Refusal, tuple[ErrorName, str]]] = {
    Refusal.APPLICATION_NOT_LISTED: (
        "permission_denied",
        f"This credential may not send {CONTEXT_HEADER}. Leave the header out, or ask the platform team to list the application.",
    ),
    Refusal.COMPARTMENT_NOT_AUTHORIZED: (
        "permission_denied",
        f"This credential is not authorized for the compartment in {COMPARTMENT_HEADER}. Name another, or ask for access.",
    ),
    Refusal.OTHER_TOOLSET: (
        "invalid_request",
        f"The toolset in {CONTEXT_HEADER} is not the digest of the tools that are sent. Send both of one version.",
    ),
}


NO_REQUESTS: Final = (
    "The engines of this model keep tenants, compartments and principals apart, and no single requests. Ask the platform team for "
    "a pool whose engine enforces salts, or whose isolation is Disabled."
)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request brings.

    Attributes:
        said: What its headers say.
        texts: Digests of its texts; `None` when it sends anything else, or when nobody asked.
        toolset: Digest of its tools, or empty.
    """

    said: Said
    texts: frozenset[Digest] | None
    toolset: Digest


def placement_of(snapshot: Snapshot, identity: Identity, pool: ServingPool, sent: Sent, *, now: float) -> Placement | Answer:
    """Where a request belongs, or why it is refused.

    Args:
        snapshot: The configuration in force.
        identity: Who asks.
        pool: Which pool; one of `snapshot.states`.
        sent: What the request brings.
        now: Seconds since 1970.
    """
    tenant = snapshot.policy.tenants[identity.tenant_uid]
    around = Circumstances(
        now,
        public_stage=pool.spec.sharing.stage == "Public",
        public_stopped=snapshot.states[pool.uid].pool.flags.stops_public,
        high=tenant.high,
        own_engines=pool.spec.dedicated_to is not None,
    )
    asked = Asked(
        speakers=identity.credentials,
        context=sent.said.context,
        compartment=sent.said.compartment,
        authorized=authorized(tenant, identity),
        texts=sent.texts,
        toolset=sent.toolset,
    )
    found = place(snapshot.askers.scope(identity, pool).rule, asked, around)
    if isinstance(found, Refusal):
        name, message = _ANSWERS[found]
        return answer(name, message)
    if around.own_engines and found.scope_class is ScopeClass.REQUEST:
        return answer("permission_denied", NO_REQUESTS)
    if found.compartment is not None and snapshot.revocations.revoked(identity, found.compartment):
        return answer("revoked")
    return found


def authorized(tenant: KnownTenant, identity: Identity) -> frozenset[str]:
    """The compartments that a credential is authorized for: by its token, or by the Tenant's list."""
    return identity.compartments | tenant.compartments.members.get(identity.credential, frozenset())
