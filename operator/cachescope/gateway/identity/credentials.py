"""What a verified credential says, and the ways in which one is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from cachescope.core.errors import CacheScopeError, ClusterError
from cachescope.core.probes import Prober
from cachescope.core.scopes import MTLS, Credential


class Unauthenticated(CacheScopeError):  # noqa: N818 - named as the HTTP status
    """No credential, or one that does not verify; a 401. The message is safe to show and never holds the credential."""


class Forbidden(CacheScopeError):  # noqa: N818 - named as the HTTP status
    """A credential that verifies, and that no single active tenant may use; a 403. The message names no tenant."""


class KeysUnavailable(ClusterError):  # noqa: N818 - says what is missing
    """An identity provider's keys are not at hand, so that nobody knows whether the credential is good; a 503."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks.

    Attributes:
        tenant_uid: UID of the one tenant that the credential belongs to.
        credential: Whom it speaks for within the tenant.
        issued_at: When the very credential was issued, in whole seconds since 1970; `None` when it does not say.
        key_id: Id of the API key; empty for others.
        compartments: The compartments that the token says it is authorized for.
        sender: The workload that sends the request, by its client certificate, where another credential says who asks.
        prober: Of the operator's probe: which process it asks, and what becomes of its salt.

    Two identities are equal when they are of one tenant and principal: what is derived from those is remembered by them, and is the
    same for every credential. So all else is judged of the identity of this request, never of a remembered one.
    """

    tenant_uid: str
    credential: Credential
    issued_at: int | None = field(default=None, compare=False)
    key_id: str = field(default="", compare=False)
    compartments: frozenset[str] = field(default=frozenset(), compare=False)
    sender: Identity | None = field(default=None, compare=False)
    prober: Prober | None = field(default=None, compare=False)

    @property
    def speakers(self) -> tuple[Identity, ...]:
        """Everybody who may be revoked: the principal, and the workload that sends its request."""
        return (self,) if self.sender is None else (self, self.sender)

    @property
    def credentials(self) -> frozenset[Credential]:
        """The credentials of all of them."""
        return frozenset(one.credential for one in self.speakers)

    @property
    def workload(self) -> str:
        """SPIFFE id of the verified certificate, be it the credential or beside it; empty without one."""
        return next((one.credential.subject for one in self.speakers if one.credential.kind == MTLS), "")
