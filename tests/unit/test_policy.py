from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.documents import parse
from cachescope.api.resources import CacheScope, ServingPool, Tenant
from cachescope.core.errors import SpecError
from cachescope.core.types import ScopeClass
from cachescope.gateway.policy import Policy, compile_policy


def pool(name: str = "tiny", **changes: Any) -> ServingPool:
    spec = {"model": {"name": name, "path": "/m"}, "engine": {"version": "0.32.0", "image": "image"}}
    return parse(ServingPool, {"metadata": {"name": name, "uid": f"uid-of-pool-{name}"}, "spec": spec, **changes}, "test")


def tenant(name: str, **changes: Any) -> Tenant:
    return parse(Tenant, {"metadata": {"name": name, "uid": f"uid-of-tenant-{name}"}, "spec": {}, **changes}, "test")


def scope(name: str, kind: str, tenants: list[str], **changes: Any) -> CacheScope:
    spec = {"class": kind, "pools": ["tiny"], "tenants": tenants}
    return parse(CacheScope, {"metadata": {"name": name, "uid": f"uid-of-scope-{name}"}, "spec": spec, **changes}, "test")


def compiled(*scopes: CacheScope) -> Policy:
    return compile_policy([pool()], [tenant("red"), tenant("blue")], scopes)


def test_the_default_is_class_tenant_of_the_pool() -> None:
    rule = compiled().scope("uid-of-tenant-red", pool())
    assert (rule.scope_class, rule.uid) == (ScopeClass.TENANT, pool().uid)


def test_a_scope_applies_to_the_tenants_it_names_alone() -> None:
    policy = compiled(scope("alone", "Principal", ["red"]))
    assert policy.scope("uid-of-tenant-red", pool()).scope_class is ScopeClass.PRINCIPAL
    assert policy.scope("uid-of-tenant-blue", pool()).scope_class is ScopeClass.TENANT


@pytest.mark.parametrize("order", [1, -1])
def test_the_narrowest_scope_applies(order: int) -> None:
    scopes = [scope("b", "Tenant", ["red"]), scope("a", "Request", ["red"]), scope("c", "Principal", ["red"])]
    assert compiled(*scopes[::order]).scope("uid-of-tenant-red", pool()).scope_class is ScopeClass.REQUEST


@pytest.mark.parametrize(
    ("pools", "tenants", "scopes", "said"),
    [
        ([pool(), pool(metadata={"name": "other", "uid": "another-uid"})], [], [], "model name"),
        ([pool()], [tenant("red"), tenant("red", metadata={"name": "red", "uid": "another-uid"})], [], "tenant name"),
        ([pool()], [tenant("red"), tenant("b", metadata={"name": "b", "uid": "uid-of-tenant-red"})], [], "UID"),
        ([pool()], [], [scope("a", "Tenant", ["nobody"])], "nobody"),
        ([], [tenant("red")], [scope("a", "Tenant", ["red"])], "tiny"),
    ],
)
def test_what_two_objects_claim_or_nobody_declared_is_an_error(
    pools: list[ServingPool], tenants: list[Tenant], scopes: list[CacheScope], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        compile_policy(pools, tenants, scopes)


@pytest.mark.parametrize("name", ["a" * 41, "-a", "A", "a.b", "1a"])
def test_a_pool_name_that_is_no_short_label_is_refused(name: str) -> None:
    assert pool("a" * 40).name == "a" * 40
    with pytest.raises(SpecError, match="metadata"):
        pool(name)


def test_a_typo_in_a_field_is_an_error_that_names_it() -> None:
    with pytest.raises(SpecError, match=r"spec\.replica: "):
        pool(spec={"replica": 2})


@pytest.mark.parametrize("kind", ["Public", "Compartment", "Everyone"])
def test_a_class_that_is_not_offered_yet_is_refused(kind: str) -> None:
    with pytest.raises(SpecError, match="class"):
        scope("a", kind, ["red"])
