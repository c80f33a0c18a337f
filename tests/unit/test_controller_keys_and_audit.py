"""Root keys are made once and never replaced; lists find what a watch missed."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from cachescope.controller.audit import Audit
from cachescope.controller.root_keys import RootKeys, new_texts, read_texts, secret
from cachescope.controller.store import Store
from cachescope.controller.watched_kinds import WATCHED
from cachescope.core.errors import ClusterError
from cachescope.core.labels import ROOT_KEYS_SECRET
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, NotFoundError
from tests.unit.fake_api import FakeApi

NOW = datetime(2026, 11, 30, 9, 15, tzinfo=UTC)
PATH = f"{collection_of('Secret', 'ns')}/{ROOT_KEYS_SECRET}"


async def test_root_keys_are_made_once_and_read_afterwards() -> None:
    api = FakeApi()
    assert await RootKeys(api, "ns").refresh(NOW)
    made = api.objects[PATH]
    assert sorted(made["data"]) == ["k20261130T091500Z", "targets"]
    assert "ownerReferences" not in made["metadata"]
    again = RootKeys(api, "ns")
    assert await again.refresh(datetime(2027, 1, 1, tzinfo=UTC))
    assert not await again.refresh(NOW)
    assert api.objects[PATH] == made
    assert api.requests.count("create") == 1
    assert again.ring.current.id == "k20261130T091500Z"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"k1": "ab" * 32},
        {"targets": "ab" * 32},
        {"k1": "ab" * 31, "targets": "ab" * 32},
        {"k1": "zz" * 32, "targets": "ab" * 32},
        {"k1": "AB" * 32, "targets": "ab" * 32},
    ],
)
async def test_a_damaged_secret_is_said_and_left_alone(data: dict[str, str]) -> None:
    api = FakeApi()
    good = new_texts(NOW)
    assert read_texts(secret(good)) == good
    api.objects[PATH] = secret({}) | {"data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}}
    before = dict(api.objects)
    keys = RootKeys(api, "ns")
    assert not await keys.refresh(NOW)
    assert api.objects == before
    with pytest.raises(ClusterError, match="restore your copy") as caught:
        _ = keys.ring
    assert "delete" not in str(caught.value), "a running operator would put the damaged keys' last good ones back"


async def test_damage_leaves_the_last_good_keys_in_force_and_a_deleted_secret_comes_back_as_it_was() -> None:
    api = FakeApi()
    keys = RootKeys(api, "ns")
    await keys.refresh(NOW)
    made, ring = api.objects[PATH], keys.ring
    api.objects[PATH] = {**made, "data": {}}
    await keys.refresh(NOW)
    assert (keys.ring, bool(keys.fault)) == (ring, True)
    del api.objects[PATH]
    await keys.refresh(datetime(2027, 1, 1, tzinfo=UTC))
    assert (api.objects[PATH]["data"], keys.ring, keys.fault) == (made["data"], ring, "")


async def test_a_new_root_key_is_taken_over() -> None:
    api = FakeApi()
    keys = RootKeys(api, "ns")
    await keys.refresh(NOW)
    api.objects[PATH]["data"]["k2999"] = base64.b64encode(b"ab" * 32).decode()
    assert await keys.refresh(NOW)
    assert keys.ring.current.id == "k2999"
    assert len(keys.ring.others) == 2


async def test_a_root_key_that_was_added_under_an_id_that_does_not_come_last_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return [str(vars(record)["fault"]) for record in caplog.records if record.message == "root key added and not in force"]

    api, text = FakeApi(), base64.b64encode(b"cd" * 32).decode()
    api.objects[PATH] = secret({"k9": "ab" * 32, "k1": "ab" * 32, "targets": "ab" * 32})
    keys = RootKeys(api, "ns")
    with caplog.at_level(logging.WARNING):
        await keys.refresh(NOW)
        api.objects[PATH]["data"]["k91"] = text
        await keys.refresh(NOW)
        assert (keys.ring.current.id, told()) == ("k91", [])
        api.objects[PATH]["data"]["k10"] = text
        for _ in range(3):
            await keys.refresh(NOW)
    assert keys.ring.current.id == "k91"
    assert [said.partition(":")[0] for said in told()] == ["k10 is not in force"]
    assert "cd" * 8 not in caplog.text + str(told())


class Lists(FakeApi):
    """Answers lists."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Document] = []
        self.fault = False

    async def get(self, path: str, **query: str) -> Document:
        if self.fault:
            raise ClusterError("no answer; try again")
        first = not query.get("continue")
        items = [item for item in self.items if item["kind"] in path] if path else self.items
        half = items[:1] if first else items[1:]
        token = "more" if first and len(items) > 1 else ""
        return {"metadata": {"resourceVersion": "50", "continue": token}, "items": [dict(item) for item in half]}


def tenant(name: str, version: int) -> Document:
    return {"kind": "tenants", "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}}


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def parts() -> tuple[Lists, Store, Clock, Audit, Any]:
    api, store, clock = Lists(), Store(), Clock()
    kind = next(item for item in WATCHED if item.kind == "Tenant")
    return api, store, clock, Audit(api, store, namespace="ns", clock=clock), kind


async def test_everything_is_listed_before_anything_is_decided(parts: tuple[Lists, Store, Clock, Audit, Any]) -> None:
    api, store, _, audit, _ = parts
    api.items = [tenant("a", 5), tenant("b", 6)]
    await audit.load()
    assert len(store.all("Tenant")) == 2
    assert set(audit.ages()) == {kind.kind for kind in WATCHED}


async def test_a_deletion_that_the_watch_missed_is_found(parts: tuple[Lists, Store, Clock, Audit, Any]) -> None:
    api, store, clock, audit, kind = parts
    store.put("Tenant", tenant("gone", 5))
    store.put("Tenant", tenant("newer", 60))
    clock.now = 100
    await audit.check(kind, grace=0)
    assert [item["metadata"]["name"] for item in store.all("Tenant")] == ["newer"]
    assert audit.ages()["Tenant"] == 0
    assert api.items == []


async def test_a_watch_that_brings_nothing_gets_old_and_its_objects_are_listed(
    parts: tuple[Lists, Store, Clock, Audit, Any],
) -> None:
    api, store, clock, audit, kind = parts
    await audit.load()
    clock.now = 100
    api.items = [tenant("a", 5)]
    await audit.check(kind, grace=0)
    assert audit.ages()["Tenant"] == 100
    assert len(store.all("Tenant")) == 1
    await audit.check(kind, grace=0)
    assert audit.ages()["Tenant"] == 0


async def test_a_list_without_an_answer_changes_nothing(parts: tuple[Lists, Store, Clock, Audit, Any]) -> None:
    api, store, clock, audit, kind = parts
    store.put("Tenant", tenant("a", 5))
    await audit.load()
    store.put("Tenant", tenant("a", 51))
    clock.now, api.fault = 100, True
    await audit.check(kind, grace=0)
    assert (len(store.all("Tenant")), audit.ages()["Tenant"]) == (1, 100)


async def test_a_cluster_without_the_kinds_says_what_to_install() -> None:
    class WithoutKinds(FakeApi):
        async def get(self, path: str, **query: str) -> Document:  # noqa: ARG002 - the signature of the API
            raise NotFoundError(404, f"GET {path}: the API server answered 404")

    with pytest.raises(ClusterError, match="knows no ServingPool; install the chart cachescope-crds"):
        await Audit(WithoutKinds(), Store(), namespace="ns").load()
