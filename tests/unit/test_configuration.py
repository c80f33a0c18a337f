from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cachescope.gateway.configuration import Configuration
from cachescope.gateway.exchange import Answer, Forward
from tests.unit.whole_path import FileKeySets, WholePath

CHAT = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'


@pytest.fixture
def path(tmp_path: Path) -> WholePath:
    return WholePath(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config/settings.yaml", "identityProviders: [{name: north}]", "issuer"),
        ("config/settings.yaml", "maxRequestByte: 1", "maxRequestByte"),
        ("config/settings.yaml", "a: [", "not YAML"),
        ("config/resources.yaml", "kind: ServingPool\nspec: 1", "spec"),
        ("config/resources.yaml", "a: [", "not YAML"),
        ("config/head.json", "{}", "lineage"),
        ("config/head.json", '{"lineage": "other", "sequence": 9, "base": 9, "floors": {}}', "lineage changed"),
        ("root-keys/targets", "not hex", "64 hexadecimal digits"),
    ],
)
def test_a_configuration_with_a_fault_is_not_taken_over(path: WholePath, file: str, content: str, said: str) -> None:
    before = path.configuration.current()
    (path.folder / "mounted" / file).write_text(content)
    path.configuration.refresh()
    after = path.configuration.current()
    assert before is not None
    assert after is not None
    assert after.policy is before.policy
    assert after.head == before.head
    assert said in str(path.configuration.fault)


def test_a_fault_that_was_mended_is_taken_over(path: WholePath) -> None:
    before, file = path.configuration.current(), path.folder / "mounted/config/resources.yaml"
    good = file.read_text()
    file.write_text("a: [")
    path.configuration.refresh()
    file.write_text(good)
    path.configuration.refresh()
    assert path.configuration.fault is None
    assert path.configuration.current() is not before


def test_a_floor_that_falls_is_held(path: WholePath) -> None:
    path.raise_pool_epoch(5)
    (path.folder / "mounted/config/head.json").write_text(
        json.dumps({"lineage": "lineage", "sequence": 3, "base": 1, "floors": {}})
    )
    path.configuration.refresh()
    snapshot = path.configuration.current()
    assert snapshot is not None
    assert snapshot.head.floors.floor(path.pool_target()) == 5
    assert snapshot.head.sequence == 3


async def test_an_api_key_id_that_two_secrets_claim_is_nobodys(path: WholePath) -> None:
    await path.prove()
    secrets, key = path.folder / "mounted/secrets", path.credentials.api_keys["red-alice"]
    stolen = next((secrets / "red-alice").iterdir())
    assert isinstance(await path.decide(key, CHAT), Forward)
    (secrets / "blue-carol" / stolen.name).write_text(stolen.read_text())
    path.configuration.refresh()
    assert "claimed twice" in str(path.configuration.fault)
    refused = await path.decide(key, CHAT)
    assert isinstance(refused, Answer)
    assert refused.status == 401


@pytest.mark.parametrize(("name", "content"), [("zzzzzzzz", "{}"), ("zzzzzzzz", "no JSON"), ("UPPER", '{"hash": "sha256:0"}')])
async def test_a_fault_in_one_secret_harms_nobody_else(path: WholePath, name: str, content: str) -> None:
    await path.prove()
    (path.folder / "mounted/secrets/blue-carol" / name).write_text(content)
    suspend(path, "blue")
    assert "blue-carol" in str(path.configuration.fault)
    blue, red = [await path.decide(path.credentials.api_keys[who], CHAT) for who in ("blue-carol", "red-alice")]
    assert isinstance(blue, Answer)
    assert blue.status == 403
    assert isinstance(red, Forward)


def test_the_head_is_taken_over_whatever_else_is_at_fault(path: WholePath) -> None:
    (path.folder / "mounted/config/resources.yaml").write_text("a: [")
    path.raise_pool_epoch(7)
    snapshot = path.configuration.current()
    assert snapshot is not None
    assert "not YAML" in str(path.configuration.fault)
    assert snapshot.head.floors.floor(path.pool_target()) == 7


def suspend(path: WholePath, tenant: str) -> None:
    file = path.folder / "mounted/config/resources.yaml"
    before, after = file.read_text().split(f"name: {tenant},")
    suspended = after.replace("spec:", "spec:\n  suspended: true", 1)
    file.write_text(f"{before}name: {tenant},{suspended}")
    path.configuration.refresh()


def test_a_tenant_that_names_an_unknown_provider_is_an_error(path: WholePath) -> None:
    file = path.folder / "mounted/config/resources.yaml"
    file.write_text(file.read_text().replace("provider: south", "provider: east", 1))
    path.configuration.refresh()
    assert "'east'" in str(path.configuration.fault)


async def test_a_new_root_key_is_a_new_set_of_salts_without_a_restart(path: WholePath) -> None:
    await path.prove()
    key, text = path.credentials.api_keys["blue-carol"], "once upon a midnight dreary" * 10
    await path.cached(key, text)
    assert await path.cached(key, text) > 0
    (path.folder / "mounted/root-keys/k2").write_text("ab" * 32)
    path.configuration.refresh()
    snapshot = path.configuration.current()
    assert snapshot is not None
    path.process.keys.ring = snapshot.permits[snapshot.policy.pools["tiny"].uid]
    assert await path.cached(key, text) == 0


def test_a_file_that_vanished_is_read_again_when_it_is_back(path: WholePath) -> None:
    file = path.folder / "mounted/config/head.json"
    content = file.read_text()
    file.unlink()
    path.configuration.refresh()
    assert "head.json" in str(path.configuration.fault)
    file.write_text(content)
    path.configuration.refresh()
    assert path.configuration.fault is None


def test_a_configuration_that_nobody_can_read_is_no_configuration(tmp_path: Path) -> None:
    configuration = Configuration(tmp_path / "nothing", FileKeySets(), time.time)
    configuration.refresh()
    assert configuration.current() is None
    assert "head.json" in str(configuration.fault)
