"""What end-to-end tests attack with is the real thing: the salt that they forge is the one that the gateway sends."""

from __future__ import annotations

import json

from cachescope.core.ledgers import Floor
from cachescope.core.statements import read_statement
from cachescope.core.types import Epoch
from cachescope.gateway.exchange import Forward
from e2e.stack.forging import Forger
from tests.unit.whole_path import POOL_UID, WholePath, path, prompt

__all__ = ["path"]

NONCE = "a-nonce-of-some-length"


def forged(path: WholePath, tenant: str) -> str:
    snapshot, said = path.snapshot(), path.process.statement([NONCE])
    assert said is not None
    statement = read_statement(snapshot.keys.permits(POOL_UID), said, nonce=NONCE)
    forger = Forger(snapshot.keys, snapshot.policy.pools[POOL_UID], snapshot.states[POOL_UID])
    return forger.salt(forger.record(path.tenant_uid(tenant), statement))


async def sent(path: WholePath, person: str) -> str:
    body = {"model": "tiny", "messages": [{"role": "user", "content": prompt()}]}
    forward = await path.decide(path.credentials.api_keys[person], json.dumps(body).encode())
    assert isinstance(forward, Forward)
    return str(json.loads(forward.body)["cache_salt"])


async def test_a_forged_salt_is_the_gateways(path: WholePath) -> None:
    assert forged(path, "blue") == await sent(path, "blue-carol") == await sent(path, "blue-dan")
    assert forged(path, "green") != forged(path, "blue")


async def test_it_follows_the_ledgers(path: WholePath) -> None:
    before = forged(path, "blue")
    path.advance_authorization({path.tenant_target("blue"): Floor(Epoch(2), Epoch(2))})
    assert forged(path, "blue") == await sent(path, "blue-carol") != before
    path.raise_pool_epoch(3)
    assert forged(path, "blue") == await sent(path, "blue-carol")
