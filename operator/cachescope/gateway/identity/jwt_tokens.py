"""JSON Web Tokens (RFC 7519, with the cautions of RFC 8725): from a token to the tenant that it belongs to.

Rules, in their order:

1. the token has three canonical parts and at most 16 KiB; header and payload are JSON with one meaning;
2. `iss` picks the provider, by exact comparison, the cluster's own issuer before all others; the provider's settings alone say
   which algorithms are allowed;
3. the key comes from the provider's own set, by `kid`, which is a name and nothing else; what a token says of keys (`jku`, `jwk`,
   `x5u`, `x5c`) is not read, and what it declares critical (`crit`) is refused, for none of it is understood here;
4. the signature verifies; `exp` is there and not past; `nbf` and `iat` are not in the future; `aud` names an audience of a tenant;
5. a tenant matches provider, audience and claims, each with one value unless the provider's settings say otherwise, and of several
   tenants the one whose claim was accepted first; the principal is a text that is not empty;
6. a claim that lists compartments is a text or a list of texts, or authorizes for none.

A verified token is remembered until it ends, at most 60 seconds, and only while the key set that verified it is unchanged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jwt

from cachescope.api.claims import AUDIENCE
from cachescope.core.errors import SpecError
from cachescope.core.scopes import JWT, Credential
from cachescope.gateway.identity.claimants import Claimants, JwtIdentity
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.identity.jwks import ALGORITHMS, KeySet
from cachescope.gateway.strict_json import Json, NotStrictJson, parse_object

MAX_TOKEN_BYTES = 16 * 1024
MAX_REMEMBERED = 10_000
MAX_COMPARTMENT = 253
REMEMBER_SECONDS = 60.0

_TOKEN = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_SIGNATURES = jwt.PyJWS(algorithms=sorted(ALGORITHMS))

Now = Callable[[], float]
"""The time of day in seconds since 1970, as `exp` counts it."""


@dataclass(frozen=True)
class Provider:
    """An issuer of tokens; a setting of the installation.

    Attributes:
        name: By which a Tenant picks it.
        issuer: The exact `iss` of its tokens.
        algorithms: Signature algorithms that are allowed; all asymmetric.
        keys: Its public keys.
        leeway_seconds: By how much its clock and ours may differ.
        list_claims: Claims of its tokens that may have several values.
    """

    name: str
    issuer: str
    algorithms: Sequence[str]
    keys: KeySet
    leeway_seconds: float = 30.0
    list_claims: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse what would verify nothing, or anything."""
        check_algorithms(self.name, self.algorithms)
        if not self.name or not self.issuer:
            raise SpecError("an identity provider needs a name and an issuer; set both")


def check_algorithms(name: str, algorithms: Sequence[str]) -> None:
    """Check which algorithms a provider allows.

    Raises:
        SpecError: None, or one that is not asymmetric.
    """
    wrong = sorted(set(algorithms) - ALGORITHMS)
    if wrong or not algorithms:
        allowed = ", ".join(sorted(ALGORITHMS))
        raise SpecError(f"provider {name!r} allows the algorithms {wrong}; list some of {allowed}")


class Door(Protocol):
    """Tokens of one issuer whose owners are found in a way of their own."""

    def takes(self, claims: Mapping[str, Json]) -> bool:
        """Whether a token is for this door and no other, by what it says before it is verified."""

    def provider(self) -> Provider:
        """The issuer.

        Raises:
            KeysUnavailable: It is not known.
        """

    def identity(self, claims: Mapping[str, Json], issued_at: int | None) -> Identity:
        """Whose verified token it is.

        Raises:
            Unauthenticated: It is not meant for this installation.
            Forbidden: No tenant claims it.
        """


class JwtTokens:
    """Verifies tokens for one state of providers and tenants; make a new one when either changes."""

    def __init__(
        self, providers: Sequence[Provider], identities: Sequence[JwtIdentity], now: Now, service_accounts: Door | None = None
    ) -> None:
        """Index the settings.

        Args:
            providers: All providers.
            identities: Identities in the order in which they were accepted; those of unknown providers match nothing.
            now: The time of day.
            service_accounts: The door for tokens of the cluster's ServiceAccounts, where they are taken.

        Raises:
            SpecError: Two providers have the same issuer, so that a token does not say which of them vouches for it.
        """
        self._providers = {provider.issuer: provider for provider in providers}
        if len(self._providers) != len(providers) or len({provider.name for provider in providers}) != len(providers):
            raise SpecError("two identity providers have the same issuer or name; rename or merge them")
        by_provider: defaultdict[str, list[JwtIdentity]] = defaultdict(list)
        for identity in identities:
            by_provider[identity.provider].append(identity)
        self._claimants = {provider.name: Claimants(by_provider[provider.name], provider.list_claims) for provider in providers}
        self._now = now
        self._service_accounts = service_accounts
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()

    async def authenticate(self, token: str) -> Identity:
        """Whose token it is.

        Raises:
            Unauthenticated: It does not verify.
            Forbidden: It verifies, and no tenant claims it.
            KeysUnavailable: The provider's keys are not at hand.
        """
        parts = _split(token)
        name = hashlib.sha256(token.encode()).digest()
        remembered = self._recall(name)
        if remembered is not None:
            return remembered
        header, claims = _part(parts[0], "header"), _part(parts[1], "payload")
        provider, identify = self._door(claims)
        revision = provider.keys.revision
        await _verify_signature(token, header, provider)
        expires = _check_times(claims, self._now(), provider.leeway_seconds)
        identity = identify(claims, _issued_at(claims))
        if provider.keys.revision == revision:
            self._remember(name, _Remembered(identity, provider.keys, revision, min(expires, self._now() + REMEMBER_SECONDS)))
        return identity

    def _door(self, claims: Mapping[str, Json]) -> tuple[Provider, Callable[[Mapping[str, Json], int | None], Identity]]:
        accounts = self._service_accounts
        if accounts is not None and accounts.takes(claims):
            return accounts.provider(), accounts.identity
        provider = self._provider(claims)
        return provider, partial(self._identity, provider)

    def _provider(self, claims: Mapping[str, Json]) -> Provider:
        issuer = claims.get("iss")
        provider = self._providers.get(issuer) if isinstance(issuer, str) else None
        if provider is None:
            raise Unauthenticated("the token's issuer is not accepted here; use a token of a configured identity provider")
        return provider

    def _identity(self, provider: Provider, claims: Mapping[str, Json], issued_at: int | None) -> Identity:
        claimants = self._claimants[provider.name]
        ambiguous = claimants.ambiguous(claims)
        if AUDIENCE in ambiguous:
            raise Unauthenticated(_several(AUDIENCE))
        if not claimants.know_audience(claims):
            raise Unauthenticated("the token is for another audience; ask the identity provider for one for this service")
        found = claimants.first(claims)
        if found is None and ambiguous:
            raise Forbidden(_several(", ".join(ambiguous)))
        if found is None:
            raise Forbidden("the token belongs to no tenant; ask the platform team to add its claims to a Tenant")
        # All identities of the tenant count, also those that do not match: two claims could hold the same text for two people.
        if len(claimants.principal_claims(found.tenant_uid)) > 1:
            raise Forbidden("the tenant takes the principal from more than one claim; the platform team must settle on one")
        credential = Credential(JWT, provider.issuer, _principal(claims, found.principal_claim))
        listed = compartments_of(claims.get(found.compartments_claim)) if found.compartments_claim else frozenset()
        return Identity(found.tenant_uid, credential, issued_at, compartments=listed)

    def _recall(self, name: bytes) -> Identity | None:
        found = self._remembered.get(name)
        if found is None:
            return None
        if self._now() >= found.until or found.keys.revision != found.revision:
            del self._remembered[name]
            return None
        self._remembered.move_to_end(name)
        return found.identity

    def _remember(self, name: bytes, result: _Remembered) -> None:
        self._remembered[name] = result
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)


def compartments_of(value: Json) -> frozenset[str]:
    """The compartments that a claim lists; none where it is anything but a text or a list of texts of at most 253 characters."""
    listed = value if isinstance(value, list) else [value]
    names = [item for item in listed if isinstance(item, str) and 0 < len(item) <= MAX_COMPARTMENT]
    return frozenset(names) if len(names) == len(listed) else frozenset()


@dataclass(frozen=True, slots=True)
class _Remembered:
    identity: Identity
    keys: KeySet
    revision: int
    until: float


def _split(token: str) -> tuple[str, str]:
    match = _TOKEN.fullmatch(token) if len(token) <= MAX_TOKEN_BYTES else None
    if match is None:
        raise Unauthenticated("the credential is neither an API key nor a signed token of at most 16 KiB; send one of these")
    return match[1], match[2]


def _part(text: str, what: str) -> dict[str, Json]:
    try:
        return parse_object(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except binascii.Error:
        raise Unauthenticated(f"the token's {what} is not base64url; send the token as it was issued") from None
    except NotStrictJson:
        raise Unauthenticated(f"the token's {what} is not JSON with one meaning; ask its issuer for another") from None


async def _verify_signature(token: str, header: Mapping[str, Json], provider: Provider) -> None:
    algorithm, kid = _declared(header, provider)
    key = await provider.keys.find(kid, algorithm)
    if key is None:
        raise Unauthenticated("the token's key is not in its issuer's key set; ask the issuer for a new token")
    try:
        _SIGNATURES.decode_complete(token, key, algorithms=[algorithm])
    except jwt.PyJWTError:
        raise Unauthenticated("the token's signature does not verify; ask its issuer for a new token") from None


def _declared(header: Mapping[str, Json], provider: Provider) -> tuple[str, str | None]:
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in provider.algorithms:
        raise Unauthenticated("the token's algorithm is not allowed for its issuer; ask for a token with an allowed one")
    if "crit" in header or "b64" in header or not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Unauthenticated("the token asks for something that is not understood here; send an ordinary access token")
    if kid is not None and not isinstance(kid, str):
        raise Unauthenticated("the token's key id is not text; ask its issuer for another token")
    return algorithm, kid


def _check_times(claims: Mapping[str, Json], now: float, leeway: float) -> float:
    """Check the times of a token, and return when it ends."""
    expires = _time(claims, "exp")
    if expires is None:
        raise Unauthenticated("the token never expires; ask its issuer for one with `exp`")
    if now >= expires + leeway:
        raise Unauthenticated("the token has expired; get a new one")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins > now + leeway:
            raise Unauthenticated(f"the token's `{name}` is in the future; check the clocks, or wait")
    return expires


def _time(claims: Mapping[str, Json], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unauthenticated(f"the token's `{name}` is not a time; ask its issuer for another token")
    return float(value)


def _issued_at(claims: Mapping[str, Json]) -> int | None:
    moment = _time(claims, "iat")
    return None if moment is None else math.floor(moment)


def _several(names: str) -> str:
    return (
        f"the token has several values in {names}; ask its issuer for one with one value, or the platform team to list the claim "
        "in the provider's `listClaims`"
    )


def _principal(claims: Mapping[str, Json], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unauthenticated("the token does not say whom it speaks for; ask its issuer for one that does")
    return value
