"""Subjects: whom a class separates, and that nothing meets across classes, scopes, tenants or issuers."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cachescope.core.errors import SpecError
from cachescope.core.scopes import Credential, Subject, namespace
from cachescope.core.types import ScopeClass
from tests.unit.core_strategies import KEY, OTHER_KEY, digest_of, texts

RED = Credential("jwt", "https://one.example", "alice")
SOURCES = (digest_of("1"), digest_of("2"))
SUBJECTS = [
    Subject(ScopeClass.PUBLIC, "scope", sources=SOURCES),
    Subject(ScopeClass.PUBLIC, "scope", sources=SOURCES[:1]),
    Subject(ScopeClass.PUBLIC, "scope2", sources=SOURCES),
    Subject(ScopeClass.TENANT, "scope", "red"),
    Subject(ScopeClass.TENANT, "scope", "blue"),
    Subject(ScopeClass.TENANT, "scope2", "red"),
    Subject(ScopeClass.TENANT, "scoper", "ed"),
    Subject(ScopeClass.COMPARTMENT, "scope", "red", "matter"),
    Subject(ScopeClass.COMPARTMENT, "scope", "red", "matter2"),
    Subject(ScopeClass.PRINCIPAL, "scope", "red", None, RED),
    Subject(ScopeClass.PRINCIPAL, "scope", "red", "matter", RED),
    Subject(ScopeClass.PRINCIPAL, "scope", "blue", None, RED),
    Subject(ScopeClass.PRINCIPAL, "scope", "red", None, Credential("jwt", "https://two.example", "alice")),
    Subject(ScopeClass.PRINCIPAL, "scope", "red", None, Credential("jwt", "https://one.example", "bob")),
    Subject(ScopeClass.PRINCIPAL, "scope", "red", None, Credential("api-key", "https://one.example", "alice")),
    Subject(ScopeClass.PRINCIPAL, "scope", "red", None, Credential("api-key", "", "https://one.examplealice")),
    Subject(ScopeClass.REQUEST, "scope", "red", None, RED),
]
WRONG = [
    (ScopeClass.TENANT, {"scope_uid": "", "tenant_uid": "red"}, "needs the UID of its CacheScope"),
    (ScopeClass.TENANT, {}, "needs a tenant UID"),
    (ScopeClass.TENANT, {"tenant_uid": "red", "compartment": "m"}, "must not carry a compartment or a principal"),
    (ScopeClass.TENANT, {"tenant_uid": "red", "credential": RED}, "must not carry a compartment or a principal"),
    (ScopeClass.TENANT, {"tenant_uid": "red", "sources": SOURCES}, "must not name public sources"),
    (ScopeClass.COMPARTMENT, {"tenant_uid": "red"}, "needs a compartment and no principal"),
    (ScopeClass.COMPARTMENT, {"tenant_uid": "red", "compartment": "m", "credential": RED}, "needs a compartment and no principal"),
    (ScopeClass.PRINCIPAL, {"tenant_uid": "red"}, "needs the principal of a verified credential"),
    (ScopeClass.REQUEST, {"tenant_uid": "red"}, "needs the principal of a verified credential"),
    (ScopeClass.PUBLIC, {}, "must name approved sources and nobody"),
    (ScopeClass.PUBLIC, {"sources": SOURCES, "tenant_uid": "red"}, "must name approved sources and nobody"),
    (ScopeClass.PUBLIC, {"sources": SOURCES, "compartment": "m"}, "must name approved sources and nobody"),
]


# From few letters, so that parts of different subjects often meet when they are put together.
names = st.sampled_from(["a", "b", "ab"])
credentials = st.builds(Credential, st.sampled_from(["jwt", "api-key"]), st.just("") | names, names | texts)
subjects = st.one_of(
    st.builds(Subject, st.just(ScopeClass.TENANT), names, names),
    st.builds(Subject, st.just(ScopeClass.COMPARTMENT), names, names, names),
    st.builds(Subject, st.sampled_from([ScopeClass.PRINCIPAL, ScopeClass.REQUEST]), names, names, st.none() | names, credentials),
    st.builds(
        Subject,
        st.just(ScopeClass.PUBLIC),
        names,
        sources=st.sets(st.sampled_from("123").map(digest_of), min_size=1).map(lambda found: tuple(sorted(found))),
    ),
)


@given(st.lists(subjects, min_size=20, max_size=40, unique=True))
def test_no_two_subjects_share_a_namespace(different: list[Subject]) -> None:
    assert len({namespace(KEY, subject) for subject in different}) == len(different)


@given(names, names, names, names)
def test_no_two_ways_to_cut_a_name_share_a_namespace(scope: str, tenant: str, other_scope: str, other_tenant: str) -> None:
    assume((scope, tenant) != (other_scope, other_tenant))
    left, right = (Subject(ScopeClass.TENANT, *uids) for uids in ((scope, tenant), (other_scope, other_tenant)))
    assert namespace(KEY, left) != namespace(KEY, right)


def test_different_subjects_have_different_namespaces() -> None:
    for left, right in itertools.combinations(SUBJECTS, 2):
        assert namespace(KEY, left) != namespace(KEY, right), (left, right)


def test_the_same_subject_has_one_namespace_under_one_key() -> None:
    for subject in SUBJECTS:
        assert namespace(KEY, subject) == namespace(KEY, subject)
        assert namespace(KEY, subject) != namespace(OTHER_KEY, subject)


def test_a_namespace_reveals_no_name() -> None:
    for subject in SUBJECTS:
        assert re.fullmatch(r"[0-9a-f]{64}", namespace(KEY, subject))


@pytest.mark.parametrize(("scope_class", "parts", "message"), WRONG)
def test_a_subject_that_does_not_separate_what_it_promises_is_refused(
    scope_class: ScopeClass, parts: dict[str, object], message: str
) -> None:
    with pytest.raises(SpecError, match=f"^a subject of class {scope_class.value} {message}$"):
        Subject(scope_class, **{"scope_uid": "scope", **parts})  # type: ignore[arg-type]


def test_classes_are_ordered_from_wide_to_narrow() -> None:
    assert [scope.width for scope in ScopeClass] == [0, 1, 2, 3, 4]
