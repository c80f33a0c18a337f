"""What a GitOps controller does: server-side apply of a text under its own name.

kubectl does more: with `--server-side` it also rewrites the annotation of client-side apply, so that the two never agree.
"""

from __future__ import annotations

import asyncio
import os

import yaml

from cachescope.kube.kinds import path_of
from cachescope.kube.rest import Rest
from e2e.stack.kubectl import NAMESPACE
from e2e.stack.paths import KUBECONFIG

FIELD_MANAGER = "gitops"


def sync(text: str, namespace: str = NAMESPACE) -> None:
    """Apply every document of a text."""
    os.environ["KUBECONFIG"] = str(KUBECONFIG)
    asyncio.run(_sync(text, namespace))


async def _sync(text: str, namespace: str) -> None:
    async with Rest() as rest:
        for document in yaml.safe_load_all(text):
            document["metadata"]["namespace"] = namespace
            await rest.apply(path_of(document), document, FIELD_MANAGER)
