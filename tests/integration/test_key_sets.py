"""A provider whose keys come from a URL, as the gateway runs it: configuration read in a thread, keys fetched on the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from cachescope.gateway.configuration import Configuration
from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.identity.credentials import Unauthenticated
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.kube.rest import Rest
from e2e.stack.credentials import Credentials, load
from tests.unit.whole_path import NAMESPACE, cluster_of, write_mounted

SETTINGS = "identityProviders: [{{name: north, issuer: https://north.example, algorithms: [ES256], jwks: {{{source}}}}}, {south}]"
SOUTH = "{name: south, issuer: https://south.example, algorithms: [ES256], jwks: {secretName: south-jwks}}"


@pytest.fixture
async def url(credentials: Credentials) -> AsyncIterator[str]:
    (published,) = [it for it in credentials.secrets(NAMESPACE) if it["metadata"]["name"] == "north-jwks"]

    async def keys(_: web.Request) -> web.Response:
        return web.Response(text=published["stringData"]["jwks.json"])

    app = web.Application()
    app.add_routes([web.get("/keys", keys)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    await runner.cleanup()


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    return load(tmp_path / "credentials.json")


def configure(folder: Path, source: str) -> None:
    (folder / "mounted/config/settings.yaml").write_text(SETTINGS.format(source=source, south=SOUTH))


async def test_keys_from_a_url_verify_tokens(tmp_path: Path, credentials: Credentials, url: str) -> None:
    write_mounted(tmp_path, credentials)
    configure(tmp_path, f"url: '{url}', allowInsecure: true")
    async with key_session() as session:
        key_sets = ProviderKeySets(session, Rest())
        configuration = Configuration(tmp_path / "mounted", cluster_of(credentials).stores, key_sets, now=time.time)
        await configuration.refresh()
        snapshot = configuration.current()
        assert snapshot is not None, configuration.fault
        key_sets.tend(snapshot.settings)
        async with asyncio.timeout(10):
            while key_sets.problems():  # noqa: ASYNC110 - a key set has no event to wait for
                await asyncio.sleep(0.01)
        found = await snapshot.authenticator.authenticate(head(credentials.token("north", "kim", "tiny")))
        assert found.credential.subject == "kim"
        with pytest.raises(Unauthenticated):
            await snapshot.authenticator.authenticate(head(credentials.token("north", "kim", "tiny")[:-8] + "AAAAAAAA"))

        configure(tmp_path, "secretName: north-jwks")
        await configuration.refresh()
        snapshot = configuration.current()
        assert snapshot is not None
        assert configuration.fault == ""
        key_sets.tend(snapshot.settings)
        assert not key_sets.tended


def head(token: str) -> RequestHead:
    return RequestHead("POST", "/v1/chat/completions", (("authorization", f"Bearer {token}"),))
