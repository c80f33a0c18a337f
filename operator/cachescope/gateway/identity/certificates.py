"""Client certificates: from what the proxy verified to the workload that it names, and the tenant that claims it.

Rules:

- a certificate names a workload by exactly one URI, which is a SPIFFE id of a trust domain that the settings list; one that does
  not is refused, whatever else the request carries: it is a credential that does not verify;
- it has not ended, also on a connection that began before it did;
- of several tenants that claim a workload the one whose claim was accepted first has it;
- alone, it is the credential, and speaks for its workload. Beside another credential it says which workload sends the request; a
  workload that another tenant claims may not, since a request is of one tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from cachescope.core.errors import SpecError
from cachescope.core.scopes import MTLS, Credential
from cachescope.core.spiffe import SpiffeId, read_spiffe_id
from cachescope.gateway.exchange import Peer
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload that a certificate names.

    Attributes:
        spiffe_id: Its name.
        tenant_uid: UID of the tenant that claims it; `None` where nobody does.
        issued_at: When its certificate became valid, in seconds since 1970.
    """

    spiffe_id: str
    tenant_uid: str | None
    issued_at: int

    def identity(self) -> Identity:
        """Who asks, where the certificate is the credential.

        Raises:
            Forbidden: No tenant claims it.
        """
        if self.tenant_uid is None:
            raise Forbidden("the certificate belongs to no tenant; ask the platform team to add its SPIFFE id to a Tenant")
        return self._of(self.tenant_uid)

    def sends(self, identity: Identity) -> Identity:
        """Who asks, where another credential says it.

        Raises:
            Forbidden: Another tenant claims the workload.
        """
        if self.tenant_uid not in {None, identity.tenant_uid}:
            raise Forbidden("the certificate and the credential belong to different tenants; send those of one tenant")
        return replace(identity, sender=self._of(identity.tenant_uid))

    def _of(self, tenant_uid: str) -> Identity:
        return Identity(tenant_uid, Credential(MTLS, "", self.spiffe_id), self.issued_at)


class Certificates:
    """Understands verified certificates, for one state of settings and tenants.

    Args:
        trust_domains: Those that the settings list.
        holders: UIDs of tenants by the SPIFFE id that they hold.
        now: The time of day in seconds.
    """

    def __init__(self, trust_domains: Collection[str], holders: Mapping[SpiffeId, str], now: Callable[[], float]) -> None:
        self._trust_domains = frozenset(trust_domains)
        self._holders = holders
        self._now = now

    def workload(self, peer: Peer) -> Workload:
        """The workload that a certificate names.

        Raises:
            Unauthenticated: It names none that is known here.
        """
        if self._now() >= peer.expires:
            raise Unauthenticated("the client certificate has expired; connect with a new one")
        try:
            found = read_spiffe_id(peer.uris)
        except SpecError:
            raise Unauthenticated("the client certificate names no workload; use one whose only URI is a SPIFFE id") from None
        if found.trust_domain not in self._trust_domains:
            raise Unauthenticated("the client certificate is of a trust domain that is not accepted here; use another, or none")
        return Workload(str(found), self._holders.get(found), peer.issued)
