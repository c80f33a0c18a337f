"""From a request's head to who asks: exactly one credential, verified.

Rules:

- a request carries one credential, in one header, once: of two, the proxy, the gateway and the log could each believe another;
- a token that begins with `cs-` is an API key and nothing else; every other one is a signed token and nothing else;
- without any of these a client certificate is the credential; beside one it says which workload sends the request, and both are of
  one tenant (`certificates`);
- the operator's probe has a scheme of its own, and nobody else's credential has it (`probes`);
- a credential of a suspended tenant is refused after it verified, so that only its owner learns of it, and never
  falls to another tenant.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.identity.api_keys import PREFIX, ApiKeys
from cachescope.gateway.identity.certificates import Certificates, Workload
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.identity.jwt_tokens import JwtTokens
from cachescope.gateway.identity.probes import ProbeCredentials

KEY_HEADERS = ("api-key", "x-api-key")
"""Headers that may carry an API key, as some clients of OpenAI's API send it."""

CREDENTIAL_HEADERS = ("authorization", *KEY_HEADERS)
"""Every header that may carry a credential; none of them goes upstream."""

_BEARER = re.compile(r"bearer +([^\s,]+)", re.IGNORECASE | re.ASCII)


class Authenticator:
    """Verifies credentials for one state of keys, providers and tenants; make a new one when any of them changes."""

    def __init__(
        self,
        api_keys: ApiKeys,
        tokens: JwtTokens,
        suspended: Collection[str] = (),
        *,
        certificates: Certificates | None = None,
        probes: ProbeCredentials | None = None,
    ) -> None:
        """Take the ways to verify.

        Args:
            api_keys: All API keys.
            tokens: The verifier of signed tokens.
            suspended: UIDs of the tenants that are refused: they are suspended, or cannot be read.
            certificates: Understands client certificates; without it each of them is refused.
            probes: Understands the operator's probe; without it each of its credentials is refused.
        """
        self._api_keys = api_keys
        self._tokens = tokens
        self._suspended = frozenset(suspended)
        self._certificates = certificates
        self._probes = probes

    async def authenticate(self, head: RequestHead) -> Identity:
        """Who asks.

        Raises:
            Unauthenticated: There is no credential, more than one, or one that does not verify.
            Forbidden: It verifies, and its tenant is suspended, or there is none; or the certificate beside it is another tenant's.
            KeysUnavailable: The keys to verify it are not at hand.
        """
        workload = self._workload(head)
        found = _only_credential(head)
        if found is not None:
            identity = await self._by_header(*found)
            identity = workload.sends(identity) if workload else identity
        elif workload is not None:
            identity = workload.identity()
        else:
            raise Unauthenticated("there is no credential; send `Authorization: Bearer <API key or token>`")
        if identity.tenant_uid in self._suspended:
            raise Forbidden("the tenant is suspended, or its Tenant resource is at fault; ask the platform team")
        return identity

    def _workload(self, head: RequestHead) -> Workload | None:
        if head.peer is None:
            return None
        if self._certificates is None:
            raise Unauthenticated("client certificates are not accepted here; connect without one")
        return self._certificates.workload(head.peer)

    async def _by_header(self, name: str, value: str) -> Identity:
        prober = self._probes.authenticate(value) if self._probes and name == "authorization" else None
        if prober is not None:
            return prober
        token = value if name in KEY_HEADERS else _bearer(value)
        if token.startswith(PREFIX):
            return self._api_keys.authenticate(token)
        if name in KEY_HEADERS:
            raise Unauthenticated(f"the header {name} takes API keys only; send a token as `Authorization: Bearer <token>`")
        return await self._tokens.authenticate(token)


def _only_credential(head: RequestHead) -> tuple[str, str] | None:
    found = [(name, value) for name, value in head.headers if name in CREDENTIAL_HEADERS]
    if len(found) > 1:
        raise Unauthenticated("there is more than one credential; send one header with one of them")
    return found[0] if found else None


def _bearer(value: str) -> str:
    match = _BEARER.fullmatch(value)
    if match is None:
        raise Unauthenticated("the authorization header is not `Bearer` with one token; send `Authorization: Bearer <token>`")
    return match[1]
