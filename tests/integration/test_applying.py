"""Objects that a real API server has: created, healed from every edit, and left alone when nothing is to be done."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.applying import Applier
from cachescope.kube.kinds import collection_of, path_of
from cachescope.kube.ownership import scaled
from cachescope.kube.rest import ConflictError, Document, NotFoundError, Rest
from e2e.stack import kubectl
from tests.integration.api_server import namespace, rest, until
from tests.integration.children import ADDITIONS, EDITS, Change, children

__all__ = ["namespace", "rest"]
KINDS = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "Secret",
    "NetworkPolicy",
    "Service",
    "PodDisruptionBudget",
    "ControllerRevision",
    "Deployment",
)
EVIL = {"evil": "true"}
WIDENED: list[tuple[str, str, Change]] = [
    ("Service", "selector", lambda it: it["spec"]["selector"].update(EVIL)),
    ("NetworkPolicy", "selector", lambda it: it["spec"]["podSelector"]["matchLabels"].update(EVIL)),
    ("NetworkPolicy", "expression", lambda it: it["spec"]["podSelector"].update(matchExpressions=[_never()])),
    ("NetworkPolicy", "port", lambda it: it["spec"]["ingress"][0]["ports"][0].update(endPort=65535)),
    ("NetworkPolicy", "namespace", lambda it: it["spec"]["ingress"][0]["from"][0].update(namespaceSelector={})),
    ("NetworkPolicy", "peer", lambda it: it["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"].update(EVIL)),
    ("PodDisruptionBudget", "selector", lambda it: it["spec"]["selector"]["matchLabels"].update(EVIL)),
    ("PodDisruptionBudget", "expression", lambda it: it["spec"]["selector"].update(matchExpressions=[_never()])),
    ("Role", "verb", lambda it: it["rules"][0]["verbs"].append("delete")),
    ("Role", "name", lambda it: it["rules"][0]["resourceNames"].append("y")),
    ("Role", "resource", lambda it: it["rules"][0]["resources"].append("secrets")),
    ("ServiceAccount", "label", lambda it: it["metadata"]["labels"].update({"app.kubernetes.io/name": "evil"})),
    ("ServiceAccount", "labels", lambda it: it["metadata"].pop("labels")),
    ("Deployment", "node", lambda it: _pod(it)["nodeSelector"].update(EVIL)),
    ("Deployment", "toleration", lambda it: _pod(it).update(tolerations=[{"operator": "Exists"}])),
    ("Deployment", "user", lambda it: _pod(it)["containers"][0]["securityContext"].update(runAsUser=0)),
    ("Deployment", "capability", lambda it: _pod(it)["containers"][0]["securityContext"]["capabilities"].update(add=["NET_ADMIN"])),
    ("Deployment", "pod user", lambda it: _pod(it).update(securityContext={"runAsUser": 0})),
    ("Deployment", "header", lambda it: _probe(it).update(httpHeaders=[{"name": "Host", "value": "evil"}])),
    ("Deployment", "file", lambda it: _pod(it)["volumes"][1]["secret"].update(items=[{"key": "k1", "path": "evil"}])),
    ("Deployment", "memory", lambda it: _pod(it)["volumes"][0]["emptyDir"].update(medium="Memory")),
]
"""Kind, what, and how somebody adds to a part of what we applied: to one that the API treats as one value, or beside ours."""


@pytest.fixture
async def owner(rest: Rest, namespace: str) -> Document:
    # A real one: the garbage collector deletes what belongs to nobody.
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pool", "namespace": namespace}}
    return await rest.create(collection_of("ConfigMap", namespace), document)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_object_is_written_once(rest: Rest, owner: Document, kind: str) -> None:
    desired, applier = children(owner)[kind], Applier(rest)
    first = await applier.apply(desired, None)
    assert first.change == "Created"
    await settled(rest, desired)
    for again in (applier, Applier(rest)):
        live = await rest.get(path_of(desired))
        outcome = await again.apply(desired, live)
        assert (outcome.change, outcome.live) == ("Unchanged", live)
        assert (await again.apply(desired, None)).live == live, "also when it is not known"
    assert [entry["operation"] for entry in ours(live)] == ["Apply"]


@pytest.mark.parametrize(("kind", "what", "change"), EDITS + ADDITIONS + WIDENED)
async def test_what_somebody_changed_is_healed(rest: Rest, owner: Document, kind: str, what: str, change: Change) -> None:
    desired, applier = children(owner)[kind], Applier(rest)
    await applier.apply(desired, None)
    good = content(await settled(rest, desired))
    edited = await edit(rest, desired, change)
    assert content(edited) != good, what
    healed = await applier.apply(desired, edited)
    assert healed.change == "Changed"
    assert content(healed.live) == good
    if kind == "Deployment":
        assert healed.live["metadata"]["generation"] <= edited["metadata"]["generation"] + 1, "pods are made anew at most once"
    await untouched(rest, applier, desired)


async def test_what_is_one_value_is_healed_also_deep_inside_of_a_template(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["Deployment"], Applier(rest)
    _pod(desired)["tolerations"] = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    sources = [{"downwardAPI": {"items": [{"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}}]
    _pod(desired)["volumes"].append(
        {"name": "own", "projected": {"sources": [*sources, {"serviceAccountToken": {"path": "token"}}]}}
    )
    await applier.apply(desired, None)
    good = content(await settled(rest, desired))
    for change in (
        lambda it: _pod(it)["tolerations"][0].pop("effect"),
        lambda it: _pod(it)["tolerations"][0].update(effect="NoExecute", tolerationSeconds=5),
        lambda it: _pod(it)["volumes"][2]["projected"]["sources"][1]["serviceAccountToken"].update(audience="evil"),
        lambda it: _pod(it)["volumes"][2]["projected"]["sources"][0]["downwardAPI"]["items"][0].update(mode=0o777),
    ):
        edited = await edit(rest, desired, change)
        assert content(edited) != good
        assert content((await applier.apply(desired, edited)).live) == good
        await untouched(rest, applier, desired)
    forced = await rest.apply(path_of(desired), desired, "gitops")
    assert "f:fieldRef" not in str(ours(forced)), "who forces the same without its defaults takes it over"
    await untouched(rest, applier, desired)


async def test_what_a_platform_adds_to_an_account_stays_and_costs_nothing(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["ServiceAccount"], Applier(rest)
    await applier.apply(desired, None)
    added = {"imagePullSecrets": [{"name": "pull"}], "secrets": [{"name": "pull"}]}

    def add(it: Document) -> None:
        it.update(added)
        it["metadata"]["labels"]["theirs"] = it["metadata"].setdefault("annotations", {})["theirs"] = "1"

    await edit(rest, desired, add)
    await untouched(rest, applier, desired)
    healed = (await applier.apply(desired, await edit(rest, desired, lambda it: it.update(automountServiceAccountToken=True)))).live
    assert healed["automountServiceAccountToken"] is False
    assert added.items() <= healed.items()
    assert healed["metadata"]["labels"]["theirs"] == healed["metadata"]["annotations"]["theirs"] == "1"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_emptied_record_of_owners_is_healed(rest: Rest, owner: Document, kind: str) -> None:
    desired, applier = children(owner)[kind], Applier(rest)
    await applier.apply(desired, None)
    good = content(await settled(rest, desired))
    emptied = await rest.merge(path_of(desired), {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in emptied["metadata"]
    healed = await applier.apply(desired, emptied)
    assert content(healed.live) == good
    assert [entry["operation"] for entry in ours(healed.live)] == ["Apply"]
    await untouched(rest, applier, desired)


async def test_what_is_no_longer_wanted_goes_also_after_a_healed_edit(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["Deployment"], Applier(rest)
    await applier.apply(desired, None)
    edited = await edit(rest, desired, lambda it: it["spec"]["template"]["spec"]["containers"][0]["env"][0].update(value="2"))
    healed = (await applier.apply(desired, edited)).live
    less = copy.deepcopy(desired)
    del less["spec"]["template"]["spec"]["containers"][0]["env"][0]
    changed = await applier.apply(less, healed)
    assert [item["name"] for item in changed.live["spec"]["template"]["spec"]["containers"][0]["env"]] == ["UID"]
    assert changed.live["metadata"]["generation"] == healed["metadata"]["generation"] + 1
    await untouched(rest, applier, less)


async def test_replicas_of_an_autoscaler_stay(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["Deployment"], Applier(rest)
    live = (await applier.apply(desired, None)).live
    scale = await rest.merge(f"{path_of(desired)}/scale", {"spec": {"replicas": 3}}, fieldManager="kube-controller-manager")
    assert scale["spec"]["replicas"] == 3
    live = await rest.get(path_of(desired))
    assert scaled(live)
    await untouched(rest, applier, desired)
    edited = await edit(rest, desired, lambda it: it["spec"]["template"]["spec"]["containers"][0].update(image="evil"))
    healed = (await applier.apply(desired, edited)).live
    assert healed["spec"]["replicas"] == 3
    assert healed["spec"]["template"]["spec"]["containers"][0]["image"] == "example.test/engine:1"
    await untouched(rest, applier, desired)


async def test_replicas_that_we_do_not_name_stay_whoever_set_them(rest: Rest, owner: Document, namespace: str) -> None:
    desired, applier = children(owner)["Deployment"], Applier(rest)
    del desired["spec"]["replicas"]
    await applier.apply(desired, None)
    await kubectl_run(namespace, "scale", "deployment/tiny", "--replicas=2")
    await untouched(rest, applier, desired)
    healed = await applier.apply(desired, await edit(rest, desired, lambda it: it["spec"].update(paused=True, replicas=4)))
    assert healed.live["spec"]["replicas"] == 4
    assert "paused" not in healed.live["spec"]
    await untouched(rest, applier, desired)


async def test_a_rollout_restart_survives_and_its_mark_outlives_a_heal(rest: Rest, owner: Document, namespace: str) -> None:
    desired, applier = children(owner)["Deployment"], Applier(rest)
    await applier.apply(desired, None)
    await kubectl_run(namespace, "rollout", "restart", "deployment/tiny")
    await untouched(rest, applier, desired)
    mark = (await rest.get(path_of(desired)))["spec"]["template"]["metadata"]["annotations"]
    assert list(mark) == ["kubectl.kubernetes.io/restartedAt"]
    await kubectl_run(namespace, "set", "env", "deployment/tiny", "EVIL=1")
    healed = await applier.apply(desired, await rest.get(path_of(desired)))
    assert healed.live["spec"]["template"]["metadata"]["annotations"] == mark
    assert len(healed.live["spec"]["template"]["spec"]["containers"][0]["env"]) == 2
    await untouched(rest, applier, desired)


# Argo CD forces as well; without force kubectl refuses amounts that are written differently (`0.5`, `500m`).
@pytest.mark.parametrize("options", [("--server-side", "--force-conflicts", "--field-manager=argocd-controller"), ()])
async def test_others_who_apply_the_same_and_we_do_not_flap(
    rest: Rest, owner: Document, namespace: str, options: tuple[str, ...]
) -> None:
    applier, every = Applier(rest), children(owner).values()
    for desired in every:
        await applier.apply(desired, None)
    seen: list[list[Document]] = []
    for _ in range(3):
        # kubectl's client-side way would write text of Secrets anew each time, whoever else is there.
        document = json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": [it for it in every if options or it["kind"] != "Secret"]}
        )
        await asyncio.to_thread(kubectl.run, "apply", *options, "-f", "-", stdin=document, namespace=namespace)
        await settled(rest, children(owner)["Deployment"])
        for desired in every:
            assert (await applier.apply(desired, await rest.get(path_of(desired)))).change == "Unchanged", desired["kind"]
        seen.append([writes(await rest.get(path_of(desired))) for desired in every])
    assert seen[1] == seen[2]


async def test_another_who_applies_more_is_healed_once_each_time(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["NetworkPolicy"], Applier(rest)
    await applier.apply(desired, None)
    theirs = copy.deepcopy(desired)
    theirs["spec"]["egress"] = [{}]
    live = await rest.apply(path_of(desired), theirs, "gitops")
    assert (await applier.apply(desired, live)).change == "Changed"
    assert "egress" not in (await rest.get(path_of(desired)))["spec"]
    await untouched(rest, applier, desired)


async def test_what_cannot_be_changed_is_made_anew(rest: Rest, owner: Document) -> None:
    applier, wanted = Applier(rest), children(owner)
    role_b = {**wanted["Role"], "metadata": {**wanted["Role"]["metadata"], "name": "other"}}
    binding = {**wanted["RoleBinding"], "roleRef": {**wanted["RoleBinding"]["roleRef"], "name": role_b["metadata"]["name"]}}
    revision = {**wanted["ControllerRevision"], "data": {"inputs": "y"}}
    secret = {**wanted["Secret"], "immutable": True}
    for before, after in [(wanted["RoleBinding"], binding), (wanted["ControllerRevision"], revision), (secret, wanted["Secret"])]:
        live = (await applier.apply(before, None)).live
        outcome = await applier.apply(after, live)
        assert outcome.change == "Changed"
        assert outcome.live["metadata"]["uid"] != live["metadata"]["uid"]
        await untouched(rest, applier, after)


async def test_an_object_that_is_in_the_way_stays_as_it_is(rest: Rest, owner: Document, namespace: str) -> None:
    theirs = {**children(owner)["Secret"], "metadata": {"name": "tiny", "namespace": namespace}}
    before = await rest.create(collection_of("Secret", namespace), theirs)
    with pytest.raises(SpecError, match=r"Secret .*/tiny is in the way.*ConfigMap pool; delete or rename it"):
        await Applier(rest).apply(children(owner)["Secret"], None)
    assert await rest.get(path_of(theirs)) == before


async def test_an_orphan_of_ours_is_taken_up_again(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["Service"], Applier(rest)
    await applier.apply(desired, None)
    await rest.delete(path_of(owner), propagationPolicy="Orphan")
    await until(lambda: _gone(rest, owner))
    assert not (await rest.get(path_of(desired)))["metadata"].get("ownerReferences")
    another = await rest.create(collection_of("ConfigMap", owner["metadata"]["namespace"]), _named(owner))
    outcome = await applier.apply(children(another)["Service"], None)
    assert outcome.live["metadata"]["ownerReferences"][0]["uid"] == another["metadata"]["uid"]


async def test_only_one_of_many_creates(rest: Rest, owner: Document) -> None:
    desired = children(owner)["Secret"]
    outcomes = await asyncio.gather(*(Applier(rest).apply(desired, None) for _ in range(8)))
    assert sorted(outcome.change for outcome in outcomes) == ["Created"] + ["Unchanged"] * 7


async def test_what_was_seen_too_long_ago_is_read_again(rest: Rest, owner: Document) -> None:
    desired, applier = children(owner)["Secret"], Applier(rest)
    good = content((await applier.apply(desired, None)).live)
    old = await edit(rest, desired, lambda it: it["data"].update(x="eA=="))
    await edit(rest, desired, lambda it: it["data"].update(y="eQ=="))
    assert content((await applier.apply(desired, old)).live) == good
    await rest.delete(path_of(desired), uid=old["metadata"]["uid"])
    with pytest.raises((ConflictError, NotFoundError)):
        await applier.apply(desired, old)
    await rest.create(collection_of("Secret", owner["metadata"]["namespace"]), desired)
    with pytest.raises(ConflictError):
        await applier.apply(desired, {**old, "data": {}})


def test_the_table_of_changes_names_every_kind() -> None:
    assert {kind for kind, _, _ in EDITS} == set(KINDS)


def _pod(it: Document) -> dict[str, Any]:
    found: dict[str, Any] = it["spec"]["template"]["spec"]
    return found


def _probe(it: Document) -> dict[str, Any]:
    found: dict[str, Any] = _pod(it)["containers"][0]["readinessProbe"]["httpGet"]
    return found


def _never() -> dict[str, Any]:
    return {"key": "evil", "operator": "Exists"}


async def edit(rest: Rest, desired: Document, change: Change) -> Document:
    """Change the object as `kubectl edit` does."""
    while True:
        live = await rest.get(path_of(desired))
        change(live)
        try:
            if desired["kind"] == "ControllerRevision":  # a whole one is refused: its content is compared byte by byte
                return await rest.merge(path_of(desired), {"revision": live["revision"]}, fieldManager="kubectl-edit")
            return await rest.replace(path_of(desired), live, fieldManager="kubectl-edit")
        except ConflictError:  # the Deployment controller wrote its status
            continue


async def settled(rest: Rest, desired: Document) -> Document:
    """The object once its controller has nothing more to say."""

    async def observed() -> bool:
        live = await rest.get(path_of(desired))
        if desired["kind"] == "Deployment":
            status = live.get("status", {})
            seen = status.get("observedGeneration") == live["metadata"]["generation"]
            return bool(seen and status.get("updatedReplicas", 0) == live["spec"]["replicas"])
        return desired["kind"] != "PodDisruptionBudget" or bool(live.get("status", {}).get("conditions"))

    await until(observed)
    return await rest.get(path_of(desired))


async def untouched(rest: Rest, applier: Applier, desired: Document) -> None:
    """Neither this process nor its successor writes again."""
    for again in (applier, Applier(rest)):
        live = await rest.get(path_of(desired))
        assert await again.apply(desired, live) is not None
        outcome = await again.apply(desired, live)
        assert (outcome.change, outcome.live) == ("Unchanged", live)


def content(live: Document) -> dict[str, Any]:
    """What an object does, and whose it is."""
    kept = {name: value for name, value in live.items() if name not in ("metadata", "status")}
    return kept | {name: live["metadata"].get(name) for name in ("labels", "ownerReferences")}


def writes(live: Document) -> Document:
    """What each write changes; the status, and with it the version, moves by itself while pods come up."""
    entries = [entry for entry in live["metadata"]["managedFields"] if entry.get("subresource") != "status"]
    return content(live) | {"generation": live["metadata"].get("generation"), "managedFields": entries}


def ours(live: Document) -> list[dict[str, Any]]:
    return [entry for entry in live["metadata"]["managedFields"] if entry["manager"] == FIELD_MANAGER]


def _named(owner: Document) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {name: owner["metadata"][name] for name in ("name", "namespace")}}


async def _gone(rest: Rest, document: Document) -> bool:
    try:
        await rest.get(path_of(document))
    except NotFoundError:
        return True
    return False


async def kubectl_run(namespace: str, *arguments: str) -> None:
    await asyncio.to_thread(kubectl.run, *arguments, namespace=namespace)
