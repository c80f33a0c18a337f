"""Settings of an installation: what the platform decides, and tenants only pick by name."""

from __future__ import annotations

from typing import Annotated

import yaml
from packaging.version import InvalidVersion, Version
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from cachescope.api.documents import NAMESPACE_NAME, OBJECT_NAME, Strict, faults
from cachescope.core.errors import SpecError
from cachescope.core.spiffe import TRUST_DOMAIN_PATTERN

MEBIBYTE = 1024 * 1024
SERVICE_ACCOUNTS_PROVIDER = "service-accounts"
"""What the cluster's own issuer is called. No provider may have the name, so that no Tenant claims its tokens by it."""

ClaimName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Namespace = Annotated[str, StringConstraints(pattern=NAMESPACE_NAME, max_length=63)]


class JwksSource(Strict):
    """Where the public keys of a provider come from; exactly one of the three."""

    url: str | None = Field(None, pattern=r"^https?://", description="Fetched and refreshed; `http` needs `allowInsecure`.")
    file: str | None = Field(None, description="A file in the gateway's container.")
    secret_name: str | None = Field(
        None, pattern=OBJECT_NAME, description="A Secret with the key `jwks.json`, mounted into the gateway."
    )
    allow_insecure: bool = Field(False, description="Allow `http`; for tests inside one machine only.")

    @model_validator(mode="after")
    def _one(self) -> JwksSource:
        if sum(value is not None for value in (self.url, self.file, self.secret_name)) != 1:
            raise ValueError("name exactly one of url, file and secretName")
        if self.url and self.url.startswith("http:") and not self.allow_insecure:
            raise ValueError("use https, or set allowInsecure for a test")
        return self


class IdentityProvider(Strict):
    """An issuer of JWTs."""

    name: str = Field(min_length=1)
    issuer: str = Field(min_length=1, description="Compared exactly with the `iss` claim.")
    algorithms: tuple[str, ...] = Field(("RS256", "ES256"), min_length=1, description="Allowed; only asymmetric ones.")
    leeway_seconds: int = Field(30, ge=0, le=300)
    list_claims: tuple[ClaimName, ...] = Field(
        (),
        max_length=64,
        description="Claims of its tokens, also `aud`, that may have several values. They tell no tenants apart. A token with "
        "several values in another claim matches no identity that asks for that claim.",
    )
    namespaces: tuple[Namespace, ...] | None = Field(
        None, description="Whose Tenants may claim its tokens; without it those of every namespace that is served."
    )
    jwks: JwksSource

    def admits(self, namespace: str) -> bool:
        """Whether Tenants of a namespace may claim its tokens."""
        return self.namespaces is None or namespace in self.namespaces


class TrustDomain(Strict):
    """Workloads that may be Tenants by their certificates."""

    name: str = Field(pattern=f"^{TRUST_DOMAIN_PATTERN}$", description="The trust domain of their SPIFFE ids.")
    namespaces: tuple[Namespace, ...] | None = Field(
        None, description="Whose Tenants may claim its SPIFFE ids; without it those of every namespace that is served."
    )

    def admits(self, namespace: str) -> bool:
        """Whether Tenants of a namespace may claim its SPIFFE ids."""
        return self.namespaces is None or namespace in self.namespaces


class ClientCa(Strict):
    """Who vouches for the certificates of clients. Every authority in it can vouch for every trust domain that is listed."""

    secret_name: str = Field(
        pattern=OBJECT_NAME, description="A Secret with the key `ca.crt`, in PEM; a renewed one is taken over in place."
    )
    trust_domains: tuple[TrustDomain, ...] = Field(
        min_length=1, max_length=64, description="A certificate of another trust domain identifies nobody."
    )

    @model_validator(mode="after")
    def _unique(self) -> ClientCa:
        if len({domain.name for domain in self.trust_domains}) != len(self.trust_domains):
            raise ValueError("two trust domains have the same name; merge them")
        return self


class Tls(Strict):
    """The certificate of the clients' door."""

    secret_name: str = Field(
        pattern=OBJECT_NAME, description="A Secret of type kubernetes.io/tls; a renewed one is taken over in place."
    )
    client_ca: ClientCa | None = Field(
        None,
        description="With it, clients may present a certificate. One that does not verify fails the handshake; without one, other "
        "credentials are as good as before.",
    )


class ServiceAccounts(Strict):
    """Tokens of this cluster's ServiceAccounts. Issuer and keys come from the API server."""

    audience: str = Field(
        min_length=1, max_length=512, description="What `aud` must be, alone. Choose one that nothing else in the cluster takes."
    )
    algorithms: tuple[str, ...] = Field(("RS256", "ES256"), min_length=1, description="Allowed; only asymmetric ones.")
    leeway_seconds: int = Field(30, ge=0, le=300)


class Settings(Strict):
    """Settings of the gateway."""

    identity_providers: tuple[IdentityProvider, ...] = ()
    service_accounts: ServiceAccounts | None = Field(
        None, description="Without it tokens of ServiceAccounts are those of an issuer that nobody knows."
    )
    max_request_bytes: int = Field(16 * MEBIBYTE, ge=1024, le=256 * MEBIBYTE)
    stream_idle_seconds: int = Field(600, ge=1)
    shared_pool_namespaces: tuple[Namespace, ...] = Field(
        (),
        description="Namespaces, beside the installation's own, whose pools may serve others: `from: Selector` of `allowedTenants` "
        "counts there alone. Who may write pools there may read the prompts of everybody that the pools admit.",
    )
    tls: Tls | None = Field(None, description="Without it the gateway speaks plain HTTP; end TLS in front of it.")
    lease_seconds: int = Field(
        60,
        ge=3,
        le=600,
        description="Length of a gateway's own right, in seconds; an outage of the API server that lasts longer stops it. "
        "Taken over when a gateway starts.",
    )
    max_stale_seconds: int = Field(
        600,
        ge=0,
        le=3600,
        description="How long a gateway whose right ended goes on without reuse while the API server does not answer, never for "
        "tenants of sensitivity High. Where a gateway was not reached, revocations are fenced only after this; 0: for nobody.",
    )
    minimum_guard_version: str | None = Field(
        None,
        max_length=64,
        description="Engines whose guard is older get no requests. Set it to shut out a guard with a known fault.",
    )

    @field_validator("minimum_guard_version")
    @classmethod
    def _version(cls, value: str | None) -> str | None:
        try:
            return value if value is None else str(Version(value))
        except InvalidVersion as error:
            raise ValueError(f"{value!r} is not a version, as 0.2.0 is") from error

    @property
    def list_claims(self) -> dict[str, frozenset[str]]:
        """The claims that may have several values, by provider."""
        return {provider.name: frozenset(provider.list_claims) for provider in self.identity_providers}

    @property
    def trust_domains(self) -> tuple[TrustDomain, ...]:
        """The trust domains whose certificates identify somebody."""
        return self.tls.client_ca.trust_domains if self.tls and self.tls.client_ca else ()

    @model_validator(mode="after")
    def _unique(self) -> Settings:
        if any(provider.name == SERVICE_ACCOUNTS_PROVIDER for provider in self.identity_providers):
            raise ValueError(f"{SERVICE_ACCOUNTS_PROVIDER!r} is the cluster's own issuer; rename the provider")
        for field in ("name", "issuer"):
            values = [getattr(provider, field) for provider in self.identity_providers]
            if len(values) != len(set(values)):
                raise ValueError(f"two identity providers have the same {field}; rename or merge them")
        return self


def read_settings(text: str, source: str) -> Settings:
    """Read the settings of an installation from YAML.

    Raises:
        SpecError: They are not YAML, or not valid; every fault is named.
    """
    try:
        return Settings.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        raise SpecError(f"{source} is not YAML ({error}); correct the file") from error
    except ValidationError as error:
        raise SpecError(f"{source}: the settings are not valid ({faults(error)}); correct these fields") from error
