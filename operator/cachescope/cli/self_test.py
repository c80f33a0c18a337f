"""`self-test`: what `helm test` runs in a pod without rights: the kinds are there, and a gateway decides requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cachescope.api.documents import API_VERSION
from cachescope.api.kinds import KINDS
from cachescope.cli.doctor.installation import missing_kinds
from cachescope.core.errors import ClusterError

SECONDS = 10.0
REFUSED: Final = (401, "invalid_api_key")
"""What a gateway that has loaded everything answers to nobody: no proxy and no other server in front says it in these words."""
_MOST: Final = 65536


def self_test(gateway: str) -> list[str]:
    """Test an installation from inside; what was found good.

    Args:
        gateway: URL of the gateway's Service, without a path.

    Raises:
        ClusterError: Something is not as it must be.
    """
    missing = missing_kinds(asyncio.run(_served()))
    if missing:
        raise ClusterError(f"the API server lacks {', '.join(missing)}; install the chart cachescope-crds of this version")
    status, code = _ask(f"{gateway}/v1/models")
    if (status, code) != REFUSED:
        said = f"{status} {code}".strip()
        raise ClusterError(
            f"a request without a credential was answered with {said}, and a gateway that decides says {REFUSED[0]} {REFUSED[1]}; "
            "see /readyz of its pods, and who else answers at its Service"
        )
    return [f"all {len(KINDS)} kinds are served", f"the gateway decides requests (without a credential: {status} {code})"]


async def _served() -> frozenset[str]:
    from cachescope.kube.rest import Rest  # noqa: PLC0415 - its libraries take long to load

    async with Rest() as rest:
        listed = await rest.get(f"/apis/{API_VERSION}")
    return frozenset(item["name"] for item in listed["resources"])


def _ask(url: str) -> tuple[int, str]:
    """Status and error code of the answer to a request without a credential."""
    # The certificate is made for clients' names, not for the Service's, and nothing secret is sent.
    context = ssl._create_unverified_context() if url.startswith("https:") else None  # noqa: S323
    try:
        with urlopen(Request(url), timeout=SECONDS, context=context) as answer:  # noqa: S310 - the chart's own Service
            return int(answer.status), ""
    except HTTPError as error:
        return error.code, _code(error)
    except OSError as error:
        raise ClusterError(f"{url} does not answer ({error}); see the Service and the gateway's pods") from error


def _code(answer: HTTPError) -> str:
    try:
        return str(json.loads(answer.read(_MOST))["error"]["code"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ""
