"""A new version of the operator changes no pod by itself; what people change, does."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from cachescope.api.pools import ServingPool, ServingPoolSpec
from cachescope.core.errors import SpecError
from cachescope.core.labels import SPEC_ANNOTATION
from cachescope.core.types import TargetName
from cachescope.manifests import engine
from cachescope.manifests.platform import Platform
from cachescope.manifests.pool import pool_objects
from cachescope.manifests.revisions import Revision, build_revision, chosen, read_revision, revision_name, revision_object
from tests.unit import make_pool_golden
from tests.unit.pools import FULL, PLATFORM, ROOT, TARGET, pool

NOW = {"rollout": {"guardUpdates": "Now"}}
SECOND = replace(PLATFORM, guard_image="registry.example/guard:0.2.0", guard_version="0.2.0")
# Not renewed with the golden files: with other digests every pool of the world rolls when its operator is upgraded.
INPUTS = {
    "plain": "sha256:a02d3450279b5aba4ed5acda0d6ecc40a33ed94738450f81f41e05655dc31e35",
    "adapters": "sha256:8113a70c06d9d19f4586d0959994d7892f160dc58c4505dde3fa353538215cb4",
    "full": "sha256:d62191e06f547fa315f25d348ee8468e932e872a4a21dca0678021f2aa776dea",
}


def build(of: ServingPool, platform: Platform = PLATFORM) -> Revision:
    return build_revision(platform, of, TARGET)


def deployment(of: ServingPool, revision: Revision, platform: Platform = PLATFORM) -> dict[str, Any]:
    return pool_objects(platform, of, keys=ROOT, revision=revision)[-1]


@pytest.fixture
def second_build(monkeypatch: pytest.MonkeyPatch) -> Platform:
    """The operator after an upgrade: other code, another guard."""
    monkeypatch.setattr(engine, "DRAIN_SECONDS", 333)
    return SECOND


@pytest.mark.parametrize("name", make_pool_golden.POOLS)
def test_the_template_of_a_fixed_pool_stays(name: str) -> None:
    assert make_pool_golden.written(name) == (make_pool_golden.FOLDER / f"{name}.json").read_text(), make_pool_golden.HOW


@pytest.mark.parametrize("name", make_pool_golden.POOLS)
def test_the_inputs_of_a_fixed_pool_never_change(name: str) -> None:
    assert build(pool(make_pool_golden.POOLS[name])).inputs == INPUTS[name]


def test_a_second_build_leaves_the_deployment_as_it_is(second_build: Platform) -> None:
    existing = read_revision(make_pool_golden.read("plain"))
    fresh = build(pool(), second_build)
    assert fresh.template != existing.template
    kept = chosen(pool(), existing, fresh)
    assert kept == existing
    assert deployment(pool(), kept, second_build) == deployment(pool(), existing)


def test_without_a_frozen_template_the_same_upgrade_would_change_it(second_build: Platform) -> None:
    existing = read_revision(make_pool_golden.read("plain"))
    fresh = chosen(pool(), None, build(pool(), second_build))
    assert deployment(pool(), fresh, second_build) != deployment(pool(), existing)


def test_with_now_the_new_guard_comes_at_once_and_once(second_build: Platform) -> None:
    existing = read_revision(make_pool_golden.read("plain"))
    fresh = build(pool(NOW), second_build)
    taken = chosen(pool(NOW), existing, fresh)
    assert (taken.guard_image, taken.guard_version, taken.number) == (SECOND.guard_image, "0.2.0", 2)
    assert deployment(pool(NOW), taken)["spec"]["template"] == fresh.template
    assert chosen(pool(NOW), taken, fresh) == taken
    assert chosen(pool(), taken, build(pool(), PLATFORM)) == taken, "and stays after that, whatever is built"


def test_a_changed_spec_takes_the_new_template_and_the_new_guard(second_build: Platform) -> None:
    existing = read_revision(make_pool_golden.read("plain"))
    changed = pool({"fence": {"leaseSeconds": 30}})
    taken = chosen(changed, existing, build(changed, second_build))
    assert (taken.guard_version, taken.number) == ("0.2.0", 2)
    assert deployment(changed, taken) != deployment(pool(), existing)


def test_what_an_earlier_build_froze_is_read_and_applied() -> None:
    existing = read_revision(make_pool_golden.read("frozen-0.0.9"))
    fresh = build(pool())
    assert existing.inputs == fresh.inputs
    assert existing.template != fresh.template
    assert (existing.guard_version, existing.number) == ("0.0.9", 4)
    assert deployment(pool(), chosen(pool(), existing, fresh))["spec"]["template"] == existing.template


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": 7},
        {"rollout": {"strategy": "InPlace"}},
        {"rollout": {"guardUpdates": "Now"}},
        {"allowedTenants": {"namespaces": {"from": "Selector", "matchLabels": {"team": "a"}}}},
        {"sharing": {"stage": "Observe", "resumeAfter": "leak-1"}},
        {"fence": {"leaseSeconds": 60}},  # the default, as the API server writes it into objects
        {"podTemplate": {"labels": {}}},
    ],
)
def test_what_no_pod_depends_on_is_no_input(changes: dict[str, Any]) -> None:
    assert build(pool(changes)).inputs == build(pool()).inputs


@pytest.mark.parametrize("path", [path for path in FULL if path not in {"replicas", "rollout"}])
def test_what_a_pod_depends_on_is_an_input(path: str) -> None:
    assert build(pool({path: FULL[path]})).inputs != build(pool()).inputs


@pytest.mark.parametrize(
    "platform", [replace(PLATFORM, max_request_bytes=2048), replace(PLATFORM, run_as_user=1000)], ids=["size limit", "user"]
)
def test_what_an_installation_decides_rolls_no_pool_by_itself(platform: Platform) -> None:
    existing, fresh = read_revision(make_pool_golden.read("plain")), build(pool(), platform)
    assert fresh.template != existing.template
    assert deployment(pool(), chosen(pool(), existing, fresh), platform) == deployment(pool(), existing)
    assert chosen(pool(NOW), existing, build(pool(NOW), platform)).template == fresh.template, "but where it is asked for"
    changed = pool({"fence": {"leaseSeconds": 30}})
    taken = chosen(changed, existing, build(changed, platform))
    assert taken.template == build(changed, platform).template != build(changed).template, "and with the next rollout"


def test_nothing_of_the_installation_is_an_input() -> None:
    other = replace(SECOND, namespace="elsewhere", monitoring_namespace="other", api_servers=("10.0.0.1/32",))
    other = replace(other, api_server_ports=(8443,), max_request_bytes=2048, run_as_user=1000)
    assert build(pool(), other).inputs == build(pool()).inputs


def test_another_pool_of_the_same_name_has_other_inputs() -> None:
    again = pool(None, uid="00000000-0000-0000-0000-000000000002")
    assert build(again).inputs != build(pool()).inputs
    assert build_revision(PLATFORM, pool(), TargetName("0" * 64)).inputs != build(pool()).inputs


def test_a_field_that_a_later_version_adds_is_no_input() -> None:
    class LaterSpec(ServingPoolSpec):
        novelty: str = "default"

    def later(**values: str) -> ServingPool:
        spec = LaterSpec.model_validate({**pool().spec.model_dump(by_alias=True), **values})
        return pool().model_copy(update={"spec": spec})

    assert build(later()).inputs == build(pool()).inputs
    assert build(later(novelty="set")).inputs != build(pool()).inputs


def test_the_deployment_carries_the_digest_of_its_inputs() -> None:
    assert deployment(pool(), build(pool()))["metadata"]["annotations"] == {SPEC_ANNOTATION: INPUTS["plain"]}


def test_a_revision_is_read_as_it_was_written() -> None:
    revision = replace(build(pool(FULL)), number=3)
    assert read_revision(revision_object(pool(FULL), revision)) == revision


def test_a_revisions_name_says_its_content_and_not_its_number() -> None:
    revision = build(pool())
    assert revision_name(pool(), revision) == revision_name(pool(), replace(revision, number=9))
    assert revision_name(pool(), revision) != revision_name(pool(), replace(revision, guard_version="0.2.0"))
    assert len(revision_name(pool(None, name="a" * 40), revision)) <= 63


@pytest.mark.parametrize("path", ["data", "data.inputs", "data.template", "data.guardImage", "data.guardVersion", "revision"])
@pytest.mark.parametrize("value", [None, 1.5, "x"])
def test_a_revision_that_no_operator_wrote_is_refused_with_the_remedy(path: str, value: object) -> None:
    document = copy.deepcopy(make_pool_golden.read("plain"))
    *folders, last = path.split(".")
    place = document
    for name in folders:
        place = place[name]
    place[last] = value
    with pytest.raises(SpecError, match="delete it"):
        read_revision(document)


def test_fields_of_a_newer_operator_are_passed_over() -> None:
    document = make_pool_golden.read("plain")
    newer = {**document["data"], "later": True}
    document["data"] = newer
    with pytest.raises(SpecError, match="name says"):
        read_revision(document)
    document["metadata"]["name"] = f"tiny-{name_digest(newer)}"
    assert read_revision(document) == build(pool())


def name_digest(data: dict[str, Any]) -> str:
    """What a revision's name says of its content, computed apart from the code under test."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
