"""What changes under one name separates, also where the engine forgets nothing: each beside the reuse before and after it.

The engine here keeps its blocks for ever, as a store beside it would: what is not found is kept apart by the salt alone.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cachescope.core import salts
from cachescope.core.frames import Field
from cachescope.core.record import IdentityRecord
from cachescope.core.types import Digest
from cachescope.gateway.authorizations import PoolState
from cachescope.gateway.binding import Asker, Placed, ask
from cachescope.gateway.exchange import Forward
from cachescope.gateway.identity.credentials import Identity
from cachescope.gateway.keys import GatewayKeys
from cachescope.guard.asgi import Guard, Running
from cachescope.kube.watched import Name
from tests.unit.whole_path import NAMESPACE, WholePath, path, prompt

__all__ = ["path"]

TRIES = 50
PERSON, TENANT = "blue-carol", "blue"
OTHER = Digest("sha256:" + "f" * 64)
Change = Callable[[WholePath], Awaitable[None]]


async def restarted(path: WholePath, **loaded: Digest) -> None:
    """The engine's process is another one, which loaded something else."""
    before = path.process.loaded
    assert before is not None
    path.process = path._guard_process()
    path.process.loaded = replace(before, engine=replace(before.engine, **loaded))
    running = Running(path.process)
    running.background = None
    path.guard = Guard(path.engine, running)
    path.write_lease()
    path.prove_isolation()
    path.clock_ms += path.process.settings.lease_ms
    await path.prove()


async def made_anew(path: WholePath) -> None:
    """The tenant is deleted, and made anew under its name with the same keys."""
    spec, before = path.cluster.tenants.documents[Name(NAMESPACE, TENANT)]["spec"], path.tenant_uid(TENANT)
    path.cluster.tenants.remove(NAMESPACE, TENANT)
    path.refresh()
    path.cluster.apply({"kind": "Tenant", "metadata": {"name": TENANT}, "spec": spec}, NAMESPACE)
    path.refresh()
    assert path.tenant_uid(TENANT) != before


CHANGES: dict[str, Change] = {
    "weights": lambda path: restarted(path, model=OTHER),
    "tokenizer or chat template": lambda path: restarted(path, tokenizer=OTHER),
    "arguments": lambda path: restarted(path, runtime=OTHER),
    "tenant made anew": made_anew,
}


async def cached(path: WholePath, texts: list[str]) -> list[int]:
    return [await path.cached(path.credentials.api_keys[PERSON], text) for text in texts]


async def found_after(path: WholePath, change: Change) -> list[int]:
    """What is found of prompts that were sent before a change."""
    texts = [prompt() for _ in range(TRIES)]
    await cached(path, texts)
    assert min(await cached(path, texts)) > 0, "the control: they are there"
    await change(path)
    return await cached(path, texts)


@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_of_before_is_found(path: WholePath, change: str) -> None:
    assert await found_after(path, CHANGES[change]) == [0] * TRIES
    assert (await cached(path, [text := prompt(), text]))[1] > 0, "the control: since then it is reused"


async def test_a_plain_restart_separates_nothing_and_lets_no_permit_pass(path: WholePath) -> None:
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": prompt()}]}).encode()
    given = [await path.decide(path.credentials.api_keys[PERSON], body) for _ in range(TRIES)]
    assert min(await found_after(path, restarted)) > 0
    answers = [await path.send(forward) for forward in given if isinstance(forward, Forward)]
    assert [(answer.status, answer.code) for answer in answers] == [(409, "permit_before_restart")] * TRIES


class TestTheSuiteNoticesALeak:
    @pytest.mark.parametrize("change", ["weights", "tokenizer or chat template", "arguments"])
    async def test_a_salt_without_what_was_loaded(self, path: WholePath, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
        whole = salts.salted_fields

        def without_engine(record: IdentityRecord) -> tuple[Field, ...]:
            loaded = record.engine
            return tuple(item for item in whole(record) if item != (loaded.model, loaded.tokenizer, loaded.runtime, loaded.adapter))

        monkeypatch.setattr(salts, "salted_fields", without_engine)
        assert min(await found_after(path, CHANGES[change])) > 0

    async def test_tenants_that_are_told_apart_by_name(self, path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
        def by_name(keys: GatewayKeys, state: PoolState, *, identity: Identity, placed: Placed) -> Asker:
            return ask(keys, state, identity=replace(identity, tenant_uid=TENANT), placed=placed)

        monkeypatch.setattr("cachescope.gateway.snapshot.ask", by_name)
        assert min(await found_after(path, made_anew)) > 0
