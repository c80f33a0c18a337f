"""A whole installation from its declared resources: every object that must exist, in the order in which to apply them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachescope.api.resources import ServingPool, Tenant
from cachescope.api.settings import Settings
from cachescope.core.epochs import target_name
from cachescope.core.heads import Head
from cachescope.core.keys import Key, KeyRing, root_ring, target_key
from cachescope.core.permits import permit_keys
from cachescope.core.types import TargetKind
from cachescope.manifests import configuration, engine, gateway, network
from cachescope.manifests.parts import Manifest, Site


@dataclass(frozen=True)
class Declared:
    """What was declared, with the texts as they were written.

    Attributes:
        settings_text: Settings of the installation, YAML.
        resources_text: Resources, YAML.
        settings: The same, parsed.
        pools: Pools.
        tenants: Tenants.
    """

    settings_text: str
    resources_text: str
    settings: Settings
    pools: Sequence[ServingPool]
    tenants: Sequence[Tenant]


def installation(site: Site, declared: Declared, keys: Mapping[str, str], head: Head) -> list[Manifest]:
    """Render an installation.

    Args:
        site: Where it goes, and its images.
        declared: What people declared.
        keys: Root keys: id to 64 hexadecimal digits, `targets` among them.
        head: The epochs that stand.

    Returns:
        Manifests in the order in which to apply them.

    Raises:
        SpecError: A pool cannot be guarded.
    """
    ring, naming = root_ring(keys), target_key(keys)
    return [
        configuration.root_keys(site, keys),
        configuration.configuration(site, settings=declared.settings_text, resources=declared.resources_text),
        configuration.gateway_head(site, head),
        *gateway.access(site),
        network.gateway_policy(site, gateway.NAME),
        gateway.service(site),
        gateway.deployment(site, _key_secrets(declared), tls_secret=tls.secret_name if (tls := declared.settings.tls) else None),
        *(
            item
            for pool in declared.pools
            for item in pool_objects(site, pool, ring, naming, head=head, settings=declared.settings)
        ),
    ]


def pool_objects(site: Site, pool: ServingPool, ring: KeyRing, naming: Key, *, head: Head, settings: Settings) -> list[Manifest]:
    """Every object of one pool, the policy before the pods."""
    return [
        configuration.pool_keys(site, pool, permit_keys(ring, pool.uid)),
        configuration.pool_head(site, pool, head),
        network.engine_policy(site, pool),
        engine.service(site, pool),
        engine.deployment(
            site,
            pool,
            pool_target=target_name(naming, TargetKind.POOL, pool.uid),
            max_request_bytes=settings.max_request_bytes,
        ),
    ]


def _key_secrets(declared: Declared) -> set[str]:
    api_keys = {source.secret_name for tenant in declared.tenants for source in tenant.spec.identities.api_keys}
    key_sets = {provider.jwks.secret_name for provider in declared.settings.identity_providers if provider.jwks.secret_name}
    return api_keys | key_sets
