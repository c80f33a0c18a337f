"""Scope classes: the whole decision table against another statement of the rules, and each rule beside its positive control."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.classes import (
    WIDEST,
    Approved,
    Asked,
    Circumstances,
    Context,
    DataClass,
    NamedSource,
    Placement,
    Reason,
    Refusal,
    Rule,
    place,
)
from cachescope.core.public_sources import Approval, Source
from cachescope.core.scopes import Credential
from cachescope.core.types import Digest, ScopeClass
from tests.unit.core_strategies import digest_of

NOW = 1000.0
ONE, TWO, OTHER = digest_of("1"), digest_of("2"), digest_of("9")
TOOLS, BUNDLE = digest_of("5"), digest_of("6")
HELD = Approval(0, 2000)
SOURCES = {
    "one": Source(ONE, HELD),
    "two": Source(TWO, HELD),
    "expired": Source(ONE, Approval(0, NOW)),
    "early": Source(ONE, Approval(NOW + 1, 2000)),
    "unapproved": Source(ONE),
    "withdrawn": Source(ONE, HELD, withdrawn=True),
}
APPLICATION = Credential("jwt", "https://one.example", "app")
RULE = Rule(
    ScopeClass.PUBLIC,
    applications=frozenset({APPLICATION}),
    approved=Approved(frozenset({APPLICATION}), SOURCES, frozenset({BUNDLE}), frozenset({TOOLS})),
)
CONTEXT = Context(DataClass.PUBLIC, (NamedSource("one"), NamedSource("two")))
ASKED = Asked(frozenset({APPLICATION}), CONTEXT, texts=frozenset({ONE, TWO}))
AROUND = Circumstances(NOW, public_stage=True)


def placed(rule: Rule = RULE, asked: Asked = ASKED, around: Circumstances = AROUND) -> Placement:
    found = place(rule, asked, around)
    assert isinstance(found, Placement), found
    return found


class Cell(NamedTuple):
    """One row of the table: what is declared, what is said, what is sent."""

    kind: str
    scope: str
    data: str
    sources: str
    stage: str
    high: bool
    compartment: str


UNLISTED = "not listed"
CELLS: dict[str, tuple[Any, ...]] = {
    "kind": ("api-key", "jwt", "mtls", "service-account", UNLISTED),
    "scope": ("Public", "Tenant", "Compartment", "Principal", "Request"),
    "data": ("no context", "not said", "public", "internal", "confidential", "personal", "secret"),
    "sources": ("sent", "none", "unknown", "expired", "unapproved", "withdrawn", "other text", "not sent", "other content"),
    "stage": ("Tenant", "Public", "stopped"),
    "high": (False, True),
    "compartment": ("none", "one", "several", "named", "named and not authorized"),
}
# What a request names, and what it sends.
SENT: dict[str, tuple[tuple[str, ...], frozenset[Digest] | None]] = {
    "sent": (("one",), frozenset({ONE})),
    "none": ((), frozenset()),
    "unknown": (("one", "nowhere"), frozenset({ONE})),
    **{name: ((name,), frozenset({ONE})) for name in ("expired", "unapproved", "withdrawn")},
    "other text": (("one",), frozenset({ONE, OTHER})),
    "not sent": (("one", "two"), frozenset({ONE})),
    "other content": (("one",), None),
}
NAMED = {"named": "m1", "named and not authorized": "m9"}
AUTHORIZED = {"one": ["m1"], "several": ["m1", "m2"], "named": ["m1", "m2"]}


@cache
def rule_of(kind: str, scope: str) -> Rule:
    listed = frozenset({Credential(kind, "", "another" if kind == UNLISTED else "app")})
    return Rule(ScopeClass(scope), applications=listed, approved=Approved(listed, SOURCES))


@cache
def asked_of(kind: str, data: str, sources: str, compartment: str) -> Asked:
    named, texts = SENT[sources]
    said = None if data == "not said" else DataClass(data) if data != "no context" else None
    context = None if data == "no context" else Context(said, tuple(map(NamedSource, named)))
    authorized = frozenset(AUTHORIZED.get(compartment, ()))
    return Asked(frozenset({Credential(kind, "", "app")}), context, NAMED.get(compartment), authorized, texts)


@cache
def around_of(stage: str, *, high: bool) -> Circumstances:
    return Circumstances(NOW, stage in {"Public", "stopped"}, stage == "stopped", high)


def decided(cell: Cell) -> Placement | Refusal:
    """What the rules make of a cell."""
    asked = asked_of(cell.kind, cell.data, cell.sources, cell.compartment)
    return place(rule_of(cell.kind, cell.scope), asked, around_of(cell.stage, high=cell.high))


def may_be(cell: Cell, scope: str) -> bool:
    """The rules once more, the other way round: what each class asks for."""
    named = cell.compartment == "named"
    if scope == "Public":
        approved = cell.data == "public" and cell.sources == "sent" and cell.stage == "Public"
        return cell.scope == "Public" and approved and not cell.high and not named
    if scope == "Tenant":
        return cell.scope in {"Public", "Tenant"} and cell.data not in {"confidential", "personal", "secret"} and not named
    if scope == "Compartment":
        known = named or cell.compartment == "one"
        return known and cell.scope not in {"Principal", "Request"} and cell.data not in {"personal", "secret"}
    return scope == "Request" or (cell.scope != "Request" and cell.data != "secret")


def expected(cell: Cell) -> str:
    """The widest class that a cell may be, or why it is refused."""
    if cell.data != "no context" and cell.kind == UNLISTED:
        return "APPLICATION_NOT_LISTED"
    if cell.compartment == "named and not authorized":
        return "COMPARTMENT_NOT_AUTHORIZED"
    return next(scope for scope in ("Public", "Tenant", "Compartment", "Principal", "Request") if may_be(cell, scope))


def shown(found: Placement | Refusal) -> str:
    return found.name if isinstance(found, Refusal) else found.scope_class.value


def is_whole(cell: Cell, found: Placement) -> bool:
    """Whether an answer is no broader than the data and the scope, and says all that it must."""
    widest = WIDEST[DataClass(cell.data)].width if cell.data in {item.value for item in DataClass} else 0
    narrow = found.scope_class.width >= max(widest, ScopeClass(cell.scope).width)
    fits = found.compartment is None or found.scope_class.width >= ScopeClass.COMPARTMENT.width
    return narrow and fits and bool(found.reasons) and bool(found.sources) is (found.scope_class is ScopeClass.PUBLIC)


def test_every_cell_of_the_table_is_what_the_rules_say_and_no_broader_than_its_data() -> None:
    answers, wrong = set(), []
    for cell in itertools.starmap(Cell, itertools.product(*CELLS.values())):
        found = decided(cell)
        answers.add(shown(found))
        if shown(found) != expected(cell) or (isinstance(found, Placement) and not is_whole(cell, found)):
            wrong.append((cell, found))
    assert wrong == []
    assert answers == {*(scope.value for scope in ScopeClass), "APPLICATION_NOT_LISTED", "COMPARTMENT_NOT_AUTHORIZED"}


class TestPublic:
    """What a public request lacks makes it one of its tenant."""

    def test_a_request_of_approved_sources_alone_is_public(self) -> None:
        assert placed() == Placement(ScopeClass.PUBLIC, sources=(ONE, TWO))
        assert (
            placed(asked=replace(ASKED, toolset=TOOLS, context=replace(CONTEXT, prompt_bundle=BUNDLE, toolset=TOOLS))) == placed()
        )

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"context": None}, Reason.NO_CONTEXT),
            ({"context": replace(CONTEXT, data_class=None)}, Reason.DATA_NOT_PUBLIC),
            ({"context": replace(CONTEXT, sources=())}, Reason.NO_SOURCE),
            ({"context": replace(CONTEXT, sources=(*CONTEXT.sources, NamedSource("nowhere")))}, Reason.SOURCE_NOT_LISTED),
            ({"context": replace(CONTEXT, sources=(NamedSource("expired"), NamedSource("two")))}, Reason.SOURCE_NOT_USABLE),
            ({"context": replace(CONTEXT, sources=(NamedSource("early"), NamedSource("two")))}, Reason.SOURCE_NOT_USABLE),
            ({"context": replace(CONTEXT, sources=(NamedSource("withdrawn"), NamedSource("two")))}, Reason.SOURCE_NOT_USABLE),
            ({"context": replace(CONTEXT, sources=(NamedSource("unapproved"), NamedSource("two")))}, Reason.SOURCE_NOT_USABLE),
            ({"context": replace(CONTEXT, prompt_bundle=OTHER)}, Reason.BUNDLE_NOT_APPROVED),
            ({"toolset": OTHER}, Reason.TOOLSET_NOT_APPROVED),
            ({"texts": frozenset({ONE, TWO, OTHER})}, Reason.OTHER_CONTENT),
            ({"texts": frozenset({ONE})}, Reason.SOURCE_NOT_SENT),
            ({"texts": None}, Reason.OTHER_CONTENT),
        ],
    )
    def test_one_that_lacks_anything_is_its_tenants(self, change: dict[str, Any], reason: Reason) -> None:
        found = placed(asked=replace(ASKED, **change))
        assert found == Placement(ScopeClass.TENANT)
        assert reason in found.reasons

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"public_stage": False}, Reason.STAGE_NOT_PUBLIC),
            ({"public_stopped": True}, Reason.PUBLIC_STOPPED),
            ({"high": True}, Reason.HIGH_SENSITIVITY),
            ({"now": HELD.expires}, Reason.SOURCE_NOT_USABLE),
        ],
    )
    def test_so_is_one_at_another_moment(self, change: dict[str, Any], reason: Reason) -> None:
        found = placed(around=replace(AROUND, **change))
        assert (found.scope_class, found.reasons) == (ScopeClass.TENANT, (reason,))

    def test_an_application_that_not_every_scope_lists_makes_nothing_public(self) -> None:
        found = placed(replace(RULE, approved=replace(RULE.approved, applications=frozenset())))
        assert (found.scope_class, found.reasons) == (ScopeClass.TENANT, (Reason.APPLICATION_NOT_LISTED,))

    def test_all_that_is_lacking_is_named(self) -> None:
        asked = replace(ASKED, context=replace(CONTEXT, sources=()), texts=None)
        found = placed(asked=asked, around=replace(AROUND, public_stage=False))
        assert set(found.reasons) == {Reason.STAGE_NOT_PUBLIC, Reason.NO_SOURCE, Reason.OTHER_CONTENT, Reason.SOURCE_NOT_SENT}


class TestContexts:
    @pytest.mark.parametrize("data", DataClass)
    def test_a_data_class_without_a_map_has_its_widest_class(self, data: DataClass) -> None:
        asked = replace(ASKED, context=replace(CONTEXT, data_class=data), authorized=frozenset({"m1"}))
        assert placed(asked=asked).scope_class is WIDEST[data]

    @pytest.mark.parametrize("chosen", ScopeClass)
    def test_a_map_narrows_and_never_widens(self, chosen: ScopeClass) -> None:
        rule = replace(RULE, classification={DataClass.CONFIDENTIAL: chosen})
        asked = replace(ASKED, context=replace(CONTEXT, data_class=DataClass.CONFIDENTIAL), authorized=frozenset({"m1"}))
        assert placed(rule, asked).scope_class.width == max(chosen.width, ScopeClass.COMPARTMENT.width)

    def test_a_context_of_anybody_else_is_refused_also_if_it_only_narrows(self) -> None:
        stranger = replace(ASKED, speakers=frozenset({replace(APPLICATION, issuer="https://two.example")}))
        assert place(RULE, stranger, AROUND) is Refusal.APPLICATION_NOT_LISTED
        assert placed(asked=replace(stranger, context=None)).scope_class is ScopeClass.TENANT
        assert placed(asked=replace(ASKED, speakers=stranger.speakers | ASKED.speakers)).scope_class is ScopeClass.PUBLIC

    def test_a_toolset_that_is_not_the_one_that_is_sent_is_refused(self) -> None:
        context = replace(CONTEXT, toolset=TOOLS)
        assert place(RULE, replace(ASKED, context=context), AROUND) is Refusal.OTHER_TOOLSET
        assert placed(asked=replace(ASKED, context=context, toolset=TOOLS)).scope_class is ScopeClass.PUBLIC


class TestCompartments:
    RULE = Rule(ScopeClass.COMPARTMENT)
    ASKED = Asked(frozenset({APPLICATION}), authorized=frozenset({"m1", "m2"}))

    def test_the_one_that_is_named_counts_and_must_be_authorized(self) -> None:
        assert placed(self.RULE, replace(self.ASKED, compartment="m2")) == Placement(ScopeClass.COMPARTMENT, "m2")
        refused = place(self.RULE, replace(self.ASKED, compartment="m3"), AROUND)
        assert refused is Refusal.COMPARTMENT_NOT_AUTHORIZED

    def test_the_only_one_need_not_be_named(self) -> None:
        assert placed(self.RULE, replace(self.ASKED, authorized=frozenset({"m1"}))) == Placement(ScopeClass.COMPARTMENT, "m1")

    @pytest.mark.parametrize("authorized", [frozenset[str](), frozenset({"m1", "m2"})])
    def test_without_one_the_class_is_principal(self, authorized: frozenset[str]) -> None:
        found = placed(self.RULE, replace(self.ASKED, authorized=authorized))
        assert (found, found.reasons) == (Placement(ScopeClass.PRINCIPAL), (Reason.NO_COMPARTMENT,))

    @pytest.mark.parametrize("scope", [ScopeClass.PRINCIPAL, ScopeClass.REQUEST])
    def test_a_narrower_class_carries_it(self, scope: ScopeClass) -> None:
        assert placed(Rule(scope), replace(self.ASKED, compartment="m1")) == Placement(scope, "m1")

    @pytest.mark.parametrize("scope", [ScopeClass.PUBLIC, ScopeClass.TENANT])
    def test_a_wider_class_is_narrowed_by_naming_one_and_not_by_having_one(self, scope: ScopeClass) -> None:
        assert placed(Rule(scope), replace(self.ASKED, compartment="m1")) == Placement(ScopeClass.COMPARTMENT, "m1")
        assert placed(Rule(scope), replace(self.ASKED, authorized=frozenset({"m1"}))) == Placement(ScopeClass.TENANT)


classes = st.sampled_from(ScopeClass)
rules = st.builds(
    Rule,
    classes,
    st.dictionaries(st.sampled_from(DataClass), classes),
    st.just(RULE.applications),
    st.builds(Approved, st.sampled_from([frozenset[Credential](), RULE.applications]), st.just(SOURCES)),
)
contexts = st.builds(Context, st.none() | st.sampled_from(DataClass), st.sampled_from([(), (NamedSource("one"),), CONTEXT.sources]))
requests = st.builds(
    Asked,
    st.just(ASKED.speakers),
    st.none() | contexts,
    st.sampled_from([None, "m1"]),
    st.sampled_from([frozenset({"m1"}), frozenset({"m1", "m2"})]),
    st.none() | st.frozensets(st.sampled_from([ONE, TWO, OTHER])),
)
moments = st.builds(Circumstances, st.sampled_from([NOW, 3000.0]), st.booleans(), st.booleans(), st.booleans())


@given(rules, requests, moments, classes)
def test_whatever_narrows_one_bound_widens_nothing(rule: Rule, asked: Asked, around: Circumstances, scope: ScopeClass) -> None:
    before = placed(rule, asked, around)
    narrower = ScopeClass.REQUEST if scope.width < rule.scope_class.width else scope
    # Whoever has several and names none is a principal alone: naming one is what lets him share again.
    named = asked if Reason.NO_COMPARTMENT in before.reasons else replace(asked, compartment="m1")
    changed = [
        placed(replace(rule, scope_class=narrower), asked, around),
        placed(replace(rule, approved=Approved()), asked, around),
        placed(rule, named, around),
        placed(rule, asked, replace(around, high=True)),
        placed(rule, asked, replace(around, public_stopped=True)),
    ]
    assert all(found.scope_class.width >= before.scope_class.width for found in changed)
