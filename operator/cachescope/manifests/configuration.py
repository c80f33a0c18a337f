"""What gateways and guards read: settings, resources, heads and keys, as ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from cachescope.api.resources import ServingPool
from cachescope.core.heads import Head
from cachescope.core.keys import KeyRing
from cachescope.core.labels import ENGINE, GATEWAY
from cachescope.manifests.engine import head_name, secret_name
from cachescope.manifests.gateway import CONFIG_MAP, HEAD_MAP, ROOT_KEYS_SECRET
from cachescope.manifests.parts import Manifest, Site, metadata


def configuration(site: Site, *, settings: str, resources: str) -> Manifest:
    """The ConfigMap with the installation's settings and the declared resources, as they were written."""
    data = {"settings.yaml": settings, "resources.yaml": resources}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(site, CONFIG_MAP, GATEWAY), "data": data}


def gateway_head(site: Site, head: Head) -> Manifest:
    """The head that gateways read."""
    return _head(site, HEAD_MAP, GATEWAY, head)


def pool_head(site: Site, pool: ServingPool, head: Head) -> Manifest:
    """The head that the guards of one pool read."""
    return _head(site, head_name(pool), ENGINE, head)


def root_keys(site: Site, keys: Mapping[str, str]) -> Manifest:
    """The Secret with the root keys (id to 64 hexadecimal digits)."""
    return _secret(site, ROOT_KEYS_SECRET, GATEWAY, keys)


def pool_keys(site: Site, pool: ServingPool, ring: KeyRing) -> Manifest:
    """The Secret with the permit keys of one pool: all that an engine pod ever holds."""
    return _secret(site, secret_name(pool), ENGINE, {key.id: key.secret.hex() for key in ring.others.values()})


def write_head(head: Head) -> str:
    """A head as its file is written."""
    floors = {"base": head.floors.base, "floors": dict(sorted(head.floors.by_target.items()))}
    return json.dumps({"lineage": head.lineage, "sequence": head.sequence, **floors}, indent=1) + "\n"


def _head(site: Site, name: str, component: str, head: Head) -> Manifest:
    data = {"head.json": write_head(head)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(site, name, component), "data": data}


def _secret(site: Site, name: str, component: str, values: Mapping[str, str]) -> Manifest:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in sorted(values.items())}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata(site, name, component), "type": "Opaque", "data": data}
