"""Leases that are left over are removed; what is in them is never trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachescope.controller.sweeping import Sweeper
from cachescope.core.errors import ClusterError
from cachescope.core.leases import lease_name
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, NotFoundError
from tests.unit.test_controller_leases import GUARDED, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("pod", ["", "../../secrets/cachescope-root-keys", "p?watch=true", "list"])
async def test_what_a_lease_says_becomes_no_path_unless_it_is_a_name_and_holds_up_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, pod: str
) -> None:
    asked: list[str] = []

    async def get(path: str, **_: str) -> Document:
        asked.append(path.rpartition("pods/")[2])
        return {"items": []}  # what a list answers, which has no UID

    bench.write(GUARDED, pod=pod)
    bench.write(replace(GUARDED, pod_uid="pod-2"), pod="q")
    for item in bench.store.all("FenceLease"):
        bench.api.objects[f"{collection_of('FenceLease', 'ns')}/{item['metadata']['name']}"] = item
    monkeypatch.setattr(bench.api, "get", get)
    bench.now += 601
    await Sweeper(bench.api, bench.store, bench.book).sweep()
    assert asked == (["list", "q"] if pod == "list" else ["q"])
    assert not [path for path in bench.api.objects if "fenceleases" in path]


async def test_a_lease_of_an_engine_pod_that_is_there_stays_whatever_it_says(bench: Bench) -> None:
    bench.write(GUARDED, pod="nobody")
    bench.store.put("Pod", {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-1", "resourceVersion": "1"}})
    bench.now += 601
    await Sweeper(bench.api, bench.store, bench.book).sweep()
    assert bench.api.requests == []


@pytest.mark.parametrize(("waits", "left"), [(590, {0, 1, 2, 3}), (602, {3}), (900, {3})])
async def test_of_a_container_that_ends_over_and_over_only_the_latest_lease_stays(bench: Bench, waits: int, left: set[int]) -> None:
    names = {lease_name("pod-1", f"boot-{number}"): number for number in range(4)}
    for number in range(4):
        bench.now += 0.5
        bench.write(replace(GUARDED, boot_id=f"boot-{number}"), created=f"2026-11-30T00:00:0{number // 2}Z")
    bench.store.put("Pod", {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-1", "resourceVersion": "1"}})
    for item in bench.store.all("FenceLease"):
        bench.api.objects[f"{collection_of('FenceLease', 'ns')}/{item['metadata']['name']}"] = item
    bench.now += waits
    await Sweeper(bench.api, bench.store, bench.book).sweep()
    assert {names[path.rpartition("/")[2]] for path in bench.api.objects if "fenceleases" in path} == left
    assert len(list(bench.book.roster.entries())) == 4, "fences wait for whom they waited for"


async def test_a_lease_that_cannot_be_judged_holds_up_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(path: str, **_: str) -> Document:
        if path.endswith("pods/bad"):
            raise ClusterError("403; give the right")
        raise NotFoundError(404, "create it")

    monkeypatch.setattr(bench.api, "get", get)
    for uid, pod in (("pod-1", "bad"), ("pod-2", "q")):
        bench.write(replace(GUARDED, pod_uid=uid), pod=pod)
    for item in bench.store.all("FenceLease"):
        bench.api.objects[f"{collection_of('FenceLease', 'ns')}/{item['metadata']['name']}"] = item
    bench.now += 601
    with pytest.raises(ClusterError, match="403"):
        await Sweeper(bench.api, bench.store, bench.book).sweep()
    assert [path.rpartition("/")[2] for path in bench.api.objects if "fenceleases" in path] == [lease_name("pod-1", "boot-1")]
