"""What a verified credential says, and the ways in which one is refused."""

from __future__ import annotations

from dataclasses import dataclass

from cachescope.core.errors import CacheScopeError, ClusterError
from cachescope.core.scopes import Credential


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
    """

    tenant_uid: str
    credential: Credential
