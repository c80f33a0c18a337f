"""Applying one object: never more requests than needed, never somebody else's object, never in a loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.applying import Applier
from cachescope.kube.kinds import path_of
from cachescope.kube.rest import ConflictError, Document
from tests.unit.fake_api import FakeApi, managed
from tests.unit.test_drift import REVISION, container, deployment


def owned(document: dict[str, Any], uid: str = "pool-1") -> dict[str, Any]:
    owner = {"apiVersion": "cachescope.dev/v1alpha1", "kind": "ServingPool", "name": "p", "uid": uid, "controller": True}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


DESIRED = owned(deployment())
PATH = path_of(DESIRED)


async def created(api: FakeApi, desired: dict[str, Any] = DESIRED) -> Document:
    live = (await Applier(api).apply(desired, None)).live
    api.requests.clear()
    return live


def stored(api: FakeApi, change: Callable[[Document], None], path: str = PATH) -> Document:
    """What somebody else made of the object."""
    document = copy.deepcopy(api.objects[path])
    change(document)
    api._store(path, document)
    return copy.deepcopy(api.objects[path])


async def test_an_object_is_created_by_one_request_and_then_costs_none() -> None:
    api = FakeApi()
    applier = Applier(api)
    first = await applier.apply(DESIRED, None)
    assert (first.change, api.requests) == ("Created", ["apply"])
    for _ in range(3):
        assert (await applier.apply(DESIRED, first.live)).change == "Unchanged"
    assert api.requests == ["apply"]


async def test_an_edit_is_healed_by_one_request() -> None:
    api = FakeApi()
    await created(api)
    live = stored(api, lambda it: it["spec"]["template"]["spec"]["containers"][0].update(image="evil"))
    outcome = await Applier(api).apply(DESIRED, live)
    assert (outcome.change, api.requests) == ("Changed", ["apply"])
    assert outcome.live["spec"]["template"]["spec"]["containers"][0]["image"] == "a"


async def test_a_selector_that_somebody_widened_is_healed_by_one_request() -> None:
    api = FakeApi()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": DESIRED["metadata"], "spec": {"selector": {"a": "b"}}}
    await created(api, service)

    def widen(it: Document) -> None:
        it["spec"]["selector"]["evil"] = "x"
        del it["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
        it["metadata"]["managedFields"].append(managed("kubectl-patch", {"f:spec": {"f:selector": {}}}))

    outcome = await Applier(api).apply(service, stored(api, widen, path_of(service)))
    assert (outcome.change, api.requests) == ("Changed", ["apply"])


async def test_an_addition_is_taken_over_and_goes_with_one_change_of_the_object() -> None:
    api = FakeApi()
    await created(api)
    added = managed("kubectl-edit", container(**{"f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}}}))

    def add(it: Document) -> None:
        it["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "B", "value": "evil"})
        it["metadata"]["managedFields"].append(added)

    outcome = await Applier(api).apply(DESIRED, stored(api, add))
    assert (outcome.change, api.requests) == ("Changed", ["merge", "apply"])
    assert outcome.live["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert [entry["manager"] for entry in outcome.live["metadata"]["managedFields"]] == [FIELD_MANAGER]


async def test_somebody_who_applies_the_same_is_left_in_peace() -> None:
    api = FakeApi()
    await created(api)
    same = managed("argocd", container(**{".": {}, "f:name": {}, "f:image": {}}), "Apply")
    live = stored(api, lambda it: it["metadata"]["managedFields"].append(same))
    assert (await Applier(api).apply(DESIRED, live)).change == "Unchanged"
    assert api.requests == []


async def test_what_a_webhook_changes_every_time_is_not_written_again() -> None:
    api = FakeApi()
    api.webhook = lambda it: it["spec"]["template"]["spec"]["containers"][0].update(image="mirror/a")
    applier = Applier(api)
    live = (await applier.apply(DESIRED, None)).live
    api.requests.clear()
    for version in range(3):  # a status changes the version, and nothing that counts
        live["metadata"]["resourceVersion"] = f"1{version}"
        live["status"] = {"replicas": version}
        assert (await applier.apply(DESIRED, live)).change == "Unchanged"
    assert api.requests == []
    live = stored(api, lambda it: it["spec"].update(replicas=9))
    assert (await applier.apply(DESIRED, live)).live["spec"]["replicas"] == 2
    assert api.requests == ["apply"] * 2
    wanted = copy.deepcopy(DESIRED)
    wanted["spec"]["replicas"] = 3
    assert (await applier.apply(wanted, copy.deepcopy(api.objects[PATH]))).change == "Changed"


@pytest.mark.parametrize("owner", [None, {"kind": "ServingPool", "name": "other", "uid": "u", "controller": True}])
@pytest.mark.parametrize("known", [True, False])
async def test_an_object_of_somebody_else_is_never_taken_over(owner: dict[str, Any] | None, *, known: bool) -> None:
    api = FakeApi()
    theirs = deployment()
    theirs["metadata"] |= {"managedFields": [managed("kubectl", {"f:spec": {}})], "ownerReferences": [owner] if owner else []}
    api._store(PATH, theirs)
    before = copy.deepcopy(api.objects)
    with pytest.raises(SpecError, match=r"Deployment n/p is in the way.*ServingPool p; delete or rename it"):
        await Applier(api).apply(DESIRED, copy.deepcopy(api.objects[PATH]) if known else None)
    assert api.objects == before


async def test_an_object_of_a_deleted_pool_of_that_name_is_waited_for() -> None:
    api = FakeApi()
    live = await created(api, owned(deployment(), "pool-0"))
    with pytest.raises(ConflictError, match="belongs to a deleted ServingPool of that name"):
        await Applier(api).apply(DESIRED, live)
    assert api.requests == []


async def test_an_object_that_lost_its_owner_or_its_labels_is_healed() -> None:
    api = FakeApi()
    await created(api)

    def lose(it: Document) -> None:
        del it["metadata"]["ownerReferences"], it["metadata"]["labels"]

    stored(api, lose)
    outcome = await Applier(api).apply(DESIRED, None)  # without its labels it is not found any more
    assert outcome.change == "Changed"
    assert outcome.live["metadata"]["ownerReferences"] == DESIRED["metadata"]["ownerReferences"]
    assert outcome.live["metadata"]["labels"] == DESIRED["metadata"]["labels"]


async def test_what_was_made_anew_since_it_was_seen_is_a_conflict() -> None:
    api = FakeApi()
    live = await created(api)
    live["metadata"]["uid"] = "gone"
    live["spec"]["replicas"] = 7
    with pytest.raises(ConflictError):
        await Applier(api).apply(DESIRED, live)


async def test_what_cannot_be_changed_is_made_anew() -> None:
    api = FakeApi()
    desired = owned({**REVISION, "data": {"a": 2}})
    live = await created(api, owned({**REVISION, "data": {"a": 1, "b": 1}}))
    outcome = await Applier(api).apply(desired, live)
    assert (outcome.change, api.requests) == ("Changed", ["delete", "apply"])
    assert outcome.live["data"] == {"a": 2}
    assert outcome.live["metadata"]["uid"] != live["metadata"]["uid"]


async def test_what_is_being_deleted_is_left_alone() -> None:
    api = FakeApi()
    live = await created(api)
    live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    live["spec"]["replicas"] = 7
    assert (await Applier(api).apply(DESIRED, live)).change == "Unchanged"
    assert api.requests == []


async def test_replicas_stay_with_the_autoscaler_while_the_rest_is_healed() -> None:
    api = FakeApi()
    await created(api)

    def scale(it: Document) -> None:
        it["spec"]["replicas"] = 5
        del it["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]
        it["metadata"]["managedFields"].append(
            managed("kube-controller-manager", {"f:spec": {"f:replicas": {}}}, subresource="scale")
        )
        it["spec"]["template"]["metadata"]["labels"] = {}

    outcome = await Applier(api).apply(DESIRED, stored(api, scale))
    assert outcome.live["spec"]["replicas"] == 5
    assert outcome.live["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


def test_a_path_is_that_of_the_kind() -> None:
    assert PATH == "/apis/apps/v1/namespaces/n/deployments/p"
    assert path_of({"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}) == "/api/v1/namespaces/n/secrets/s"
    for document in (
        {"kind": "Widget", "metadata": {"name": "p", "namespace": "n"}},
        {"kind": "Secret", "metadata": {"name": "s"}},
    ):
        with pytest.raises(RuntimeError, match=r"add it to the table|give its manifest one"):
            path_of(document)
