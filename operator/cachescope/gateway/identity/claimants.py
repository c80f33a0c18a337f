"""Whose token it is, among all identities of one provider: found by an index, since there may be ten thousand of them.

Rules:

- a claim of a token has one value, or matches nobody, unless the provider's `listClaims` names it (`api.claims`);
- identities come in the order in which they were accepted, and of several that match the first decides;
- the principal of a tenant is taken from one claim alone: two claims could hold the same text for two people.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachescope.api.claims import AUDIENCE, values_of
from cachescope.core.errors import SpecError
from cachescope.gateway.strict_json import Json

_ANY = ("", "")
"""Where an identity stands that asks for no claim but the audience."""


@dataclass(frozen=True, slots=True)
class JwtIdentity:
    """Which tokens of a provider belong to a tenant.

    Attributes:
        tenant_uid: UID of the tenant.
        provider: Name of the provider.
        audience: What `aud` must be; contain, where it may have several values.
        claims: What further claims must be; contain, where they may have several values.
        principal_claim: The claim that names whom the token speaks for.
        compartments_claim: The claim that lists the compartments a token is authorized for, or empty.
    """

    tenant_uid: str
    provider: str
    audience: str
    claims: Mapping[str, str] = field(default_factory=dict)
    principal_claim: str = "sub"
    compartments_claim: str = ""

    def __post_init__(self) -> None:
        """Refuse an identity that would match nobody in particular."""
        if not (self.tenant_uid and self.provider and self.audience and self.principal_claim):
            raise SpecError("a JWT identity needs a tenant UID, a provider, an audience and a principal claim; set all of them")

    def matches(self, claims: Mapping[str, Json], several: Collection[str]) -> bool:
        """Whether verified claims belong to the tenant; `several` names those that may have several values."""
        asked = [(AUDIENCE, self.audience), *self.claims.items()]
        return all(value in values_of(claims.get(name), several=name in several) for name, value in asked)


class Claimants:
    """The identities of one provider.

    Args:
        identities: In the order in which they were accepted.
        several: Names of the claims that may have several values.
    """

    def __init__(self, identities: Sequence[JwtIdentity], several: Collection[str] = ()) -> None:
        self._identities = identities
        self._several = frozenset(several)
        self._asked = frozenset({AUDIENCE}.union(*(identity.claims for identity in identities)))
        values: defaultdict[str, set[str]] = defaultdict(set)
        self._principals: defaultdict[str, set[str]] = defaultdict(set)
        for identity in identities:
            self._principals[identity.tenant_uid].add(identity.principal_claim)
            for name, value in identity.claims.items():
                values[name].add(value)
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        self._places: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
        for place, identity in enumerate(identities):
            # By the claim that tells most tenants apart, so that few share one place of the index.
            name, value = max(identity.claims.items(), key=lambda item: (len(values[item[0]]), item[0]), default=_ANY)
            self._names[identity.audience].add(name)
            self._places[identity.audience, name, value].append(place)

    def know_audience(self, claims: Mapping[str, Json]) -> bool:
        """Whether anybody takes tokens for this audience."""
        return any(audience in self._names for audience in self._values(claims, AUDIENCE))

    def ambiguous(self, claims: Mapping[str, Json]) -> list[str]:
        """Claims that somebody asks for, and that have several values here and must not."""
        lists = {name for name in self._asked - self._several if isinstance(value := claims.get(name), list) and len(value) > 1}
        return sorted(lists)

    def first(self, claims: Mapping[str, Json]) -> JwtIdentity | None:
        """The identity that decides, or `None` when nobody claims the token."""
        places = sorted(place for key in self._keys(claims) for place in self._places.get(key, ()))
        return next((found for place in places if (found := self._identities[place]).matches(claims, self._several)), None)

    def principal_claims(self, tenant_uid: str) -> set[str]:
        """The claims that the tenant takes its principals from."""
        return self._principals[tenant_uid]

    def _keys(self, claims: Mapping[str, Json]) -> Iterator[tuple[str, str, str]]:
        for audience in dict.fromkeys(self._values(claims, AUDIENCE)):
            for name in self._names.get(audience, ()):
                for value in {""} if name == "" else set(self._values(claims, name)):
                    yield audience, name, value

    def _values(self, claims: Mapping[str, Json], name: str) -> Sequence[str]:
        return values_of(claims.get(name), several=name in self._several)
