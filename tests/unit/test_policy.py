from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.api.scopes import CacheScope
from cachescope.core.classes import WIDEST, DataClass, Rule
from cachescope.core.errors import SpecError
from cachescope.core.public_sources import Source
from cachescope.core.scopes import Credential
from cachescope.core.types import ScopeClass
from cachescope.gateway.policy import Declared, Policy
from cachescope.gateway.readings import KnownPool, KnownTenant
from tests.unit.core_strategies import digest_of

ENGINE = {"version": "0.32.0", "image": "image"}
RED, BLUE = "uid-of-red", "uid-of-blue"


def pool(
    name: str = "tiny",
    namespace: str = "models",
    *,
    model: str | None = None,
    age: int = 1,
    labels: dict[str, str] | None = None,
    adapters: Sequence[str] = (),
) -> ServingPool:
    allowed = {"namespaces": {"from": "Selector", "matchLabels": labels}} if labels else {}
    engine = {**ENGINE, "adapters": [{"name": item, "source": {"imagePath": f"/{item}"}} for item in adapters]}
    spec = {"model": {"name": model or name, "source": {"imagePath": "/m"}}, "engine": engine, "allowedTenants": allowed}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{namespace}-{name}",
        "creationTimestamp": f"20{50 - age}-01-01T00:00:00Z",
    }
    return parse(ServingPool, {"metadata": metadata, "spec": spec}, "test")


def tenant(name: str, namespace: str = "models", *, refused: bool = False) -> KnownTenant:
    return KnownTenant(namespace, name, f"uid-of-{name}", refused, ())


def scope(
    name: str, kind: str, tenants: list[str], namespace: str = "models", spec: dict[str, Any] | None = None, **metadata: Any
) -> CacheScope:
    spec = {"class": kind, "pools": ["tiny", "nowhere"], "tenants": tenants, **(spec or {})}
    found = {"name": name, "namespace": namespace, "uid": f"uid-of-scope-{name}", **metadata}
    return parse(CacheScope, {"metadata": found, "spec": spec}, "test")


def compiled(*scopes: CacheScope, **changes: Any) -> Policy:
    given = {"pools": [KnownPool(pool())], "tenants": [tenant("red"), tenant("blue")], "scopes": scopes, "home": "models"}
    return Policy(Declared(**{**given, **changes}))


def known(*pools: ServingPool) -> list[KnownPool]:
    return [KnownPool(item) for item in pools]


class TestScopes:
    def test_the_default_is_class_tenant_of_the_pool(self) -> None:
        rule = compiled().scope(RED, pool())
        assert (rule.scope_class, rule.uid, rule.policy_revision) == (ScopeClass.TENANT, pool().uid, 1)

    def test_a_scope_applies_to_the_tenants_it_names_alone(self) -> None:
        policy = compiled(scope("alone", "Principal", ["red", "nobody"], generation=7))
        assert policy.scope(RED, pool()).scope_class is ScopeClass.PRINCIPAL
        assert policy.scope(RED, pool()).policy_revision == 7
        assert policy.scope(BLUE, pool()).scope_class is ScopeClass.TENANT

    def test_a_scope_applies_to_the_pools_it_names_alone(self) -> None:
        other = pool("other")
        policy = compiled(scope("alone", "Principal", ["red"]), pools=known(pool(), other))
        assert policy.scope(RED, other).scope_class is ScopeClass.TENANT
        assert policy.scope(RED, pool()).scope_class is ScopeClass.PRINCIPAL

    @pytest.mark.parametrize("order", [1, -1])
    def test_the_narrowest_scope_applies(self, order: int) -> None:
        scopes = [scope("b", "Tenant", ["red"]), scope("a", "Request", ["red"]), scope("c", "Principal", ["red"])]
        assert compiled(*scopes[::order]).scope(RED, pool()).scope_class is ScopeClass.REQUEST

    @pytest.mark.parametrize("order", [1, -1])
    def test_of_two_scopes_of_one_class_always_the_same_applies(self, order: int) -> None:
        scopes = [scope("a", "Principal", ["red"]), scope("b", "Principal", ["red"])]
        assert compiled(*scopes[::order]).scope(RED, pool()).uid == "uid-of-scope-b"

    def test_a_scope_of_another_namespace_names_nobody_here(self) -> None:
        policy = compiled(scope("alone", "Request", ["red"], "elsewhere"))
        assert policy.scope(RED, pool()).scope_class is ScopeClass.TENANT

    def test_a_scope_binds_no_pool_of_another_namespace(self) -> None:
        foreign = pool(namespace="other", labels={"team": "red"})
        policy = compiled(scope("alone", "Request", ["red"]), pools=known(pool(), foreign))
        assert policy.scope(RED, foreign).scope_class is ScopeClass.TENANT

    def test_a_scope_that_cannot_be_read_never_widens_anything(self) -> None:
        policy = compiled(
            scope("alone", "Principal", ["red"]),
            tenants=[tenant("red"), tenant("blue"), tenant("green", "elsewhere")],
            sealed=frozenset({"models"}),
        )
        assert [policy.scope(uid, pool()).scope_class for uid in (RED, BLUE)] == [ScopeClass.REQUEST] * 2
        assert policy.scope("uid-of-green", pool()).scope_class is ScopeClass.TENANT


class TestSeveralScopes:
    """Where several name a tenant and a pool, all of them have to agree before anything is wider."""

    APP = ({"tenant": "red", "kind": "api-key", "subject": "app"}, Credential("api-key", "", "app"))
    SOURCES: ClassVar[dict[tuple[str, str], Source]] = {("models", name): Source(digest_of("1")) for name in ("a", "b")}

    def rule(self, *specs: dict[str, Any]) -> Rule:
        scopes = [scope(f"s{number}", "Public", ["red"], spec=spec) for number, spec in enumerate(specs)]
        return compiled(*scopes, sources=self.SOURCES).scope(RED, pool()).rule

    def test_the_narrowest_of_what_they_say_of_a_data_class_holds(self) -> None:
        rule = self.rule(
            {"classification": {"internal": "Principal"}}, {"classification": {"internal": "Request", "public": "Tenant"}}
        )
        assert rule.classification == {DataClass.INTERNAL: ScopeClass.REQUEST, DataClass.PUBLIC: ScopeClass.TENANT}

    def test_an_application_of_one_may_narrow_and_only_one_of_all_makes_public(self) -> None:
        listed, who = self.APP
        assert self.rule({"applications": [listed]}).approved.applications == {who}
        rule = self.rule({"applications": [listed]}, {})
        assert [rule.applications, rule.approved.applications] == [{who}, set()]

    def test_an_application_of_another_tenant_is_none(self) -> None:
        listed, _ = self.APP
        assert self.rule({"applications": [{**listed, "tenant": "blue"}]}).applications == frozenset()

    def test_only_what_all_approve_may_be_public(self) -> None:
        digests = [digest_of("1"), digest_of("2")]
        one = {"publicSources": ["a", "b", "nowhere"], "promptBundles": digests, "toolsets": digests}
        other = {"publicSources": ["b"], "promptBundles": digests[:1], "toolsets": digests[1:]}
        assert self.rule(one).approved.sources.keys() == {"a", "b"}
        both = self.rule(one, other).approved
        assert [set(both.sources), both.bundles, both.toolsets] == [{"b"}, {digests[0]}, {digests[1]}]

    def test_a_source_of_another_namespace_is_none(self) -> None:
        scopes = [scope("s", "Public", ["red"], spec={"publicSources": ["a"]})]
        elsewhere = {("other", "a"): Source(digest_of("1"))}
        assert compiled(*scopes, sources=elsewhere).scope(RED, pool()).rule.approved.sources == {}

    def test_a_sealed_namespace_keeps_its_applications_and_shares_nothing(self) -> None:
        listed, who = self.APP
        scopes = [scope("s", "Public", ["red"], spec={"applications": [listed]})]
        found = compiled(*scopes, sealed=frozenset({"models"})).scope(RED, pool())
        assert found.scope_class is ScopeClass.REQUEST
        assert found.rule.applications == {who}


class TestHighSensitivity:
    """A tenant that shares no pool is served by those that admit nobody else now."""

    HIGH = KnownTenant("models", "red", RED, False, (), high=True)
    OPEN: ClassVar[dict[str, str]] = {"team": "red"}

    def models(self, *others: KnownTenant, **changes: Any) -> set[str]:
        return set(compiled(tenants=[self.HIGH, *others], **changes).models(RED))

    def test_alone_in_the_namespace_it_is_served(self) -> None:
        assert self.models() == {"tiny"}
        assert self.models(tenant("blue", "other")) == {"tiny"}

    @pytest.mark.parametrize("refused", [False, True])
    def test_beside_any_other_tenant_it_is_not(self, refused: bool) -> None:
        assert self.models(tenant("blue", refused=refused)) == set()

    def test_the_others_are_served_on(self) -> None:
        assert set(compiled(tenants=[self.HIGH, tenant("blue")]).models(BLUE)) == {"tiny"}

    @pytest.mark.parametrize(("labels", "served"), [({"team": "red"}, False), ({"team": "blue"}, True), ({}, True)])
    def test_whom_a_selector_admits_counts(self, labels: dict[str, str], served: bool) -> None:
        found = self.models(tenant("blue", "other"), pools=known(pool(labels=self.OPEN)), namespaces={"other": labels})
        assert bool(found) is served

    def test_a_selector_that_counts_for_nothing_admits_nobody(self) -> None:
        given = {"pools": known(pool(labels=self.OPEN)), "namespaces": {"other": self.OPEN}, "home": "elsewhere"}
        assert self.models(tenant("blue", "other"), **given) == {"tiny"}

    def test_no_other_pool_takes_the_place_of_one_that_is_shared(self) -> None:
        labels = {"team": "high"}
        own, foreign = pool("own", model="m"), pool("foreign", "home", model="m", labels=labels)
        given = {"pools": known(own, foreign), "namespaces": {"models": labels}, "home": "home"}
        assert self.models(**given) == {"m"}
        assert self.models(tenant("blue"), **given) == set()


class TestPools:
    def models(self, policy: Policy, uid: str = RED) -> dict[str, str]:
        return {model: item.pool.uid for model, item in policy.models(uid).items()}

    def test_a_pool_is_for_the_tenants_of_its_own_namespace(self) -> None:
        policy = compiled(tenants=[tenant("red"), tenant("blue", "other")])
        assert self.models(policy) == {"tiny": "uid-of-models-tiny"}
        assert self.models(policy, BLUE) == {}
        assert self.models(policy, "uid-of-nobody") == {}

    @pytest.mark.parametrize(
        ("labels", "admitted"),
        [({"team": "red", "x": "y"}, True), ({"team": "blue"}, False), ({}, False), ({"Team": "red"}, False)],
    )
    def test_a_selector_admits_the_namespaces_whose_labels_match(self, labels: dict[str, str], admitted: bool) -> None:
        pools = known(pool(labels={"team": "red"}))
        policy = compiled(pools=pools, tenants=[tenant("red", "other")], namespaces={"other": labels})
        assert bool(self.models(policy)) is admitted
        assert not self.models(compiled(pools=pools, tenants=[tenant("red", "unknown")], namespaces={"other": labels}))

    def test_all_labels_of_a_selector_must_match(self) -> None:
        pools = known(pool(labels={"team": "red", "stage": "prod"}))
        both, one = {"team": "red", "stage": "prod"}, {"team": "red"}
        assert [
            bool(self.models(compiled(pools=pools, tenants=[tenant("red", "other")], namespaces={"other": labels})))
            for labels in (both, one)
        ] == [True, False]

    def test_a_selector_admits_its_own_namespace_always(self) -> None:
        assert self.models(compiled(pools=known(pool(labels={"team": "x"}))))

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_newcomer_takes_no_model_name(self, order: int) -> None:
        pools = [pool("old", model="m", age=2), pool("new", model="m", age=1), pool("newest", model="m", age=0)]
        assert self.models(compiled(pools=known(*pools[::order]))) == {"m": "uid-of-models-old"}

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_newcomer_elsewhere_takes_no_model_name_from_those_who_are_served(self, order: int) -> None:
        open_to = {"team": "red"}
        pools = [pool("old", "a", model="m", age=2, labels=open_to), pool("new", "b", model="m", age=1, labels=open_to)]
        given = {"tenants": [tenant("red", "other")], "namespaces": {"other": open_to}, "shared": frozenset({"a", "b"})}
        assert self.models(compiled(pools=known(*pools[::order]), **given)) == {"m": "uid-of-a-old"}

    @pytest.mark.parametrize(("where", "admitted"), [("models", True), ("listed", True), ("team-b", False)])
    def test_a_selector_counts_where_the_platform_trusts_the_pools_alone(self, where: str, admitted: bool) -> None:
        pools = known(pool("trap", where, model="gpt", labels={"team": "red"}))
        tenants = [tenant("red", "team-a"), tenant("blue", where)]
        policy = compiled(pools=pools, tenants=tenants, namespaces={"team-a": {"team": "red"}}, shared=frozenset({"listed"}))
        assert bool(self.models(policy)) is admitted
        assert self.models(policy, BLUE), "control: it serves its own namespace"

    def test_the_own_namespace_comes_before_an_older_pool_elsewhere(self) -> None:
        pools = known(pool("new", "models", model="m", age=1), pool("old", "a", model="m", age=9, labels={"team": "red"}))
        assert self.models(compiled(pools=pools, namespaces={"models": {"team": "red"}})) == {"m": "uid-of-models-new"}

    def test_the_platforms_pool_comes_before_an_older_one_of_another_team(self) -> None:
        open_to = {"team": "red"}
        pools = known(pool("old", "a", model="m", age=9, labels=open_to), pool("new", "home", model="m", age=1, labels=open_to))
        given = {"pools": pools, "tenants": [tenant("red", "other")], "namespaces": {"other": open_to}}
        given["shared"] = frozenset({"a", "home"})
        assert self.models(compiled(**given)) == {"m": "uid-of-a-old"}
        assert self.models(compiled(**given, home="home")) == {"m": "uid-of-home-new"}

    def test_of_two_pools_of_one_moment_always_the_same_serves(self) -> None:
        pools = [pool("b", model="m"), pool("a", model="m")]
        assert self.models(compiled(pools=known(*pools))) == self.models(compiled(pools=known(*pools[::-1])))

    def test_adapters_are_served_by_names_of_their_own(self) -> None:
        policy = compiled(pools=known(pool(adapters=["x", "y"])))
        assert {name: served.adapter for name, served in policy.models(RED).items()} == {"tiny": "", "x": "x", "y": "y"}
        assert self.models(policy).keys() == {"tiny", "x", "y"}

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_newcomer_takes_no_name_of_a_model_or_an_adapter(self, order: int) -> None:
        pools = known(pool("old", adapters=["x"], age=2), pool("new", model="x", adapters=["old", "y"], age=1))
        found = compiled(pools=pools[::order]).models(RED)
        assert {name: (served.pool.name, served.adapter) for name, served in found.items()} == {
            "old": ("old", ""),
            "x": ("old", "x"),
            "y": ("new", "y"),
        }

    def test_a_pool_that_cannot_be_read_keeps_its_model_name(self) -> None:
        old, new = pool("old", model="m", age=2), pool("new", model="m", age=1)
        policy = compiled(pools=[KnownPool(new), KnownPool(old, readable=False)])
        assert self.models(policy) == {"m": old.uid}
        assert list(policy.pools) == [new.uid]


def test_refused_tenants_are_known() -> None:
    assert compiled(tenants=[tenant("red", refused=True), tenant("blue")]).refused == {RED}


@pytest.mark.parametrize(
    ("adapters", "says"),
    [
        (["x", "x"], "several adapters have the name x; give each"),
        (["tiny"], "the model's own name, 'tiny'; rename one"),
        (["text"], "'text' is a type of a message's part.*rename it"),
        (["X"], "engine.adapters.0.name"),
        (["x" * 64], "engine.adapters.0.name"),
        ([""], "engine.adapters.0.name"),
        ([f"x{number}" for number in range(33)], "at most 32"),
    ],
)
def test_an_adapter_has_a_name_that_nothing_else_has(adapters: list[str], says: str) -> None:
    assert pool(adapters=[f"x{number}" for number in range(32)])
    with pytest.raises(SpecError, match=says):
        pool(adapters=adapters)


@pytest.mark.parametrize("name", ["a" * 41, "-a", "A", "a.b", "1a"])
def test_a_pool_name_that_is_no_short_label_is_refused(name: str) -> None:
    assert pool("a" * 40).name == "a" * 40
    with pytest.raises(SpecError, match="metadata"):
        pool(name)


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number in range(levels - 1):
        found = {"a": [found]} if number % 2 else {"a": found}
    return found


@pytest.mark.parametrize("field", ["affinity", "tolerations"])
def test_what_is_passed_on_to_pods_is_not_deeply_nested(field: str) -> None:
    def declared(levels: int) -> ServingPool:
        value = nested(levels) if field == "affinity" else [nested(levels)]
        spec = {"model": {"name": "m", "source": {"imagePath": "/m"}}, "engine": ENGINE, "podTemplate": {field: value}}
        return parse(ServingPool, {"metadata": {"name": "tiny", "uid": "uid-of-tiny"}, "spec": spec}, "test")

    assert declared(10)
    for levels in (40, 5_000):
        with pytest.raises(SpecError, match="20 levels deep"):
            declared(levels)


@pytest.mark.parametrize("data", DataClass)
@pytest.mark.parametrize("chosen", ScopeClass)
def test_a_map_that_widens_is_refused_and_names_both(data: DataClass, chosen: ScopeClass) -> None:
    spec = {"classification": {data.value: chosen.value}}
    if chosen.width >= WIDEST[data].width:
        assert dict(scope("a", "Tenant", ["red"], spec=spec).spec.classification.chosen()) == {data: chosen}
        return
    with pytest.raises(SpecError, match=f"{chosen.value} is wider than {WIDEST[data].value}.* of {data.value} data"):
        scope("a", "Tenant", ["red"], spec=spec)


def test_a_class_that_nobody_knows_is_refused() -> None:
    assert [scope("a", kind.value, ["red"]).spec.scope_class for kind in ScopeClass] == list(ScopeClass)
    with pytest.raises(SpecError, match="class"):
        scope("a", "Everyone", ["red"])
