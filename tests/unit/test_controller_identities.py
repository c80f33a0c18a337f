"""Who holds an identity: the first who got it keeps it, and a newcomer changes nothing for him."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.api.claim_rules import ClaimRules
from cachescope.api.claims import ApiKeysClaim, Claim, JwtClaim, overlaps
from cachescope.api.settings import IdentityProvider, JwksSource, Settings
from cachescope.controller.claim_index import Owner
from cachescope.controller.identities import RESERVED_SECONDS, Acceptance, Claimant, Claimants, claimant_of, held_by
from tests.unit.controller_bench import tenant as document

ALL = JwtClaim("corp", "llm")
SALES = JwtClaim("corp", "llm", {"team": "sales"})
LAW = JwtClaim("corp", "llm", {"team": "law"})
NORTH = JwtClaim("corp", "llm", {"region": "north"})
RED, EVERYONE = (JwtClaim("corp", "llm", {"groups": name}) for name in ("red", "everyone"))
ACCOUNT = JwtClaim("corp", "account")
KEYS = ApiKeysClaim("ns", "keys")
GHOST = JwtClaim("nobody", "llm")

CLAIMS = (ALL, SALES, LAW, NORTH, RED, EVERYONE, ACCOUNT, KEYS, GHOST, JwtClaim("corp", "llm", {"team": "law", "region": "south"}))


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def provider(name: str = "corp", **more: Any) -> IdentityProvider:
    return IdentityProvider(name=name, issuer=f"https://{name}.example", jwks=JwksSource(secret_name="k"), **more)


def tenant(
    name: str, *want: Claim, held: dict[str, int] | None = None, created: str = "2026-01-01T00:00:00Z", uid: str = ""
) -> Claimant:
    owner = Owner("ns", name)
    return Claimant(owner, uid or f"uid-{name}", created, {str(claim): claim for claim in want}, held or {})


def claimants(*everybody: Claimant, clock: Clock | None = None, **of_provider: Any) -> Claimants:
    settings = Settings(identity_providers=(provider(**of_provider),))
    made = Claimants(ClaimRules(settings, home="home"), clock=clock or Clock())
    for item in everybody:
        made.put(item)
    return made


def decided(made: Claimants, name: str, since: int = 100) -> Acceptance:
    while made.decide(1):
        pass
    return made.acceptance(Owner("ns", name), since)


def settle(mine: Claimant, *others: Claimant, **of_provider: Any) -> Acceptance:
    return decided(claimants(mine, *others, **of_provider), mine.owner.name)


def accepted(*claims: Claim, since: int = 100) -> Acceptance:
    return Acceptance({str(claim): since for claim in claims})


def taken(*claims: Claim) -> Acceptance:
    return Acceptance({}, taken=tuple(map(str, claims)))


def test_a_claim_that_nobody_has_is_accepted() -> None:
    assert settle(tenant("a", SALES, KEYS)) == accepted(SALES, KEYS)


def test_the_holder_keeps_his_claim_and_the_newcomer_gets_nothing() -> None:
    holder = tenant("z", SALES, held={str(SALES): 5}, created="2026-09-09T00:00:00Z")
    newcomer = tenant("a", SALES)
    assert settle(holder, newcomer) == accepted(SALES, since=5)
    assert settle(newcomer, holder) == taken(SALES)


def test_a_wider_or_crossing_claim_overlaps_and_a_disjoint_one_does_not() -> None:
    holder = tenant("z", SALES, held={str(SALES): 5})
    assert settle(tenant("a", ALL), holder) == taken(ALL)
    assert settle(tenant("a", NORTH), holder) == taken(NORTH)
    assert settle(tenant("a", LAW), holder) == accepted(LAW)
    assert settle(tenant("a", ACCOUNT), holder) == accepted(ACCOUNT)


def test_values_of_a_claim_that_may_have_several_tell_nobody_apart() -> None:
    everyone = tenant("b", EVERYONE, held={str(EVERYONE): 1})
    assert settle(tenant("a", RED), everyone) == accepted(RED)
    assert settle(tenant("a", RED), everyone, list_claims=("groups",)) == taken(RED)
    account = tenant("b", ACCOUNT, held={str(ACCOUNT): 1})
    assert settle(tenant("a", SALES), account) == accepted(SALES)
    assert settle(tenant("a", SALES), account, list_claims=("aud",)) == taken(SALES)


def test_what_a_holder_declares_no_more_he_holds_no_more() -> None:
    assert settle(tenant("a", KEYS, held={str(SALES): 5, str(KEYS): 6})) == accepted(KEYS, since=6)


def test_a_holder_is_in_the_way_until_his_status_says_otherwise() -> None:
    leaving = tenant("z", held={str(SALES): 5})
    made = claimants(leaving, tenant("a", SALES))
    assert decided(made, "a") == taken(SALES)
    assert made.put(tenant("z")) == {Owner("ns", "a")}
    assert decided(made, "a") == accepted(SALES)


def test_among_newcomers_the_older_comes_first_and_then_the_smaller_uid() -> None:
    old, young = tenant("z", SALES), tenant("a", SALES, created="2026-02-01T00:00:00Z")
    assert (settle(old, young), settle(young, old)) == (accepted(SALES), taken(SALES))
    same = tenant("b", SALES)
    assert (settle(same, tenant("a", SALES)), settle(tenant("a", SALES), same)) == (taken(SALES), accepted(SALES))


def test_an_older_newcomer_that_is_refused_himself_stands_in_nobodys_way() -> None:
    holder = tenant("h", SALES, held={str(SALES): 5})
    refused = tenant("a", NORTH, created="2025-01-01T00:00:00Z")
    mine = tenant("b", LAW)
    assert NORTH.overlaps(LAW, {})
    assert settle(mine, refused) == taken(LAW)
    assert settle(mine, refused, holder) == accepted(LAW)


def test_a_tenant_that_claims_twice_does_not_block_itself() -> None:
    assert settle(tenant("a", ALL, SALES)) == accepted(ALL, SALES)


def test_an_unknown_provider_is_refused_and_what_is_held_under_it_is_kept() -> None:
    assert settle(tenant("a", GHOST)) == Acceptance({}, unknown=(str(GHOST),))
    assert settle(tenant("a", GHOST, held={str(GHOST): 5})) == Acceptance({str(GHOST): 5}, unknown=(str(GHOST),))


def test_a_provider_is_for_the_namespaces_that_its_settings_list() -> None:
    assert settle(tenant("a", SALES), namespaces=("ns",)) == accepted(SALES)
    assert settle(tenant("a", SALES), namespaces=("other",)) == Acceptance({}, unknown=(str(SALES),))
    older = Claimant(Owner("elsewhere", "b"), "uid-b", "2025-01-01T00:00:00Z", {str(SALES): SALES})
    assert settle(tenant("a", SALES), older, namespaces=("ns",)) == accepted(SALES), "who may not claim is in nobody's way"


def test_a_claim_of_a_kind_that_is_not_known_here_is_held_as_it_is() -> None:
    assert settle(tenant("a", SALES), tenant("z", held={"spiffe:x": 5})) == accepted(SALES)


def test_who_waits_is_called_when_the_claim_in_his_way_is_free_and_nobody_else() -> None:
    holder = tenant("h", SALES, LAW, held={str(SALES): 1, str(LAW): 1})
    made = claimants(holder, tenant("a", SALES), tenant("b", LAW), tenant("c", KEYS))
    decided(made, "a")
    assert made.put(tenant("h", LAW, held={str(LAW): 1})) == {Owner("ns", "a")}
    assert decided(made, "a") == accepted(SALES)
    assert made.put(tenant("a", SALES, held={str(SALES): 2})) == set(), "what was promised is written: nothing is free"


class TestDeleted:
    def made(self, clock: Clock) -> Claimants:
        holder = tenant("h", SALES, held={str(SALES): 1})
        made = claimants(holder, tenant("waiting", SALES, created="2025-01-01T00:00:00Z"), clock=clock)
        assert decided(made, "waiting") == taken(SALES)
        return made

    def test_what_it_held_is_for_one_of_its_name_and_for_nobody_else(self) -> None:
        made = self.made(Clock())
        assert made.remove(Owner("ns", "h")) == {Owner("ns", "waiting")}, "he learns how long it may take"
        assert decided(made, "waiting") == taken(SALES)
        assert made.waits(Owner("ns", "waiting")) == RESERVED_SECONDS
        made.put(tenant("h", SALES, uid="another", created="2026-09-09T00:00:00Z"))
        assert (decided(made, "h"), decided(made, "waiting")) == (accepted(SALES), taken(SALES))

    def test_who_got_it_back_and_gives_it_up_frees_it_at_once(self) -> None:
        made = self.made(Clock())
        made.remove(Owner("ns", "h"))
        made.put(tenant("h", SALES, held={str(SALES): 2}, uid="another"))
        assert decided(made, "waiting") == taken(SALES)
        assert made.put(tenant("h", uid="another")) == {Owner("ns", "waiting")}
        assert decided(made, "waiting") == accepted(SALES)

    def test_it_is_free_after_ten_minutes(self) -> None:
        clock = Clock()
        made = self.made(clock)
        made.remove(Owner("ns", "h"))
        clock.seconds = RESERVED_SECONDS - 1
        assert made.expire() == set()
        assert decided(made, "waiting") == taken(SALES)
        clock.seconds += 1
        assert made.expire() == {Owner("ns", "waiting")}
        assert decided(made, "waiting") == accepted(SALES)
        assert made.waits(Owner("ns", "waiting")) is None

    def test_it_is_kept_also_when_only_the_new_one_was_seen(self) -> None:
        made = self.made(Clock())
        made.put(tenant("h", LAW, uid="another"))
        assert decided(made, "waiting") == taken(SALES)

    def test_what_was_only_promised_is_free_at_once(self) -> None:
        made = claimants(tenant("h", SALES, created="2025-01-01T00:00:00Z"), tenant("waiting", SALES))
        assert decided(made, "waiting") == taken(SALES)
        assert made.remove(Owner("ns", "h")) == {Owner("ns", "waiting")}
        assert decided(made, "waiting") == accepted(SALES)


def test_a_tenant_that_cannot_be_read_keeps_what_its_status_says_and_wants_nothing() -> None:
    item = document("a", jwt=[{"provider": "corp", "audience": "llm", "claims": {"team": "sales"}}])
    item["metadata"]["generation"] = 1
    item["status"] = {"accepted": [{"claim": str(SALES), "since": 7}]}
    assert claimant_of(item).wanted == {str(SALES): SALES}
    item["spec"]["identities"]["jwt"] = "of another version"
    unreadable = claimant_of(item)
    assert (unreadable.wanted, unreadable.held) == ({}, {str(SALES): 7})
    made = claimants(unreadable, tenant("b", SALES))
    assert (decided(made, "b"), made.latest) == (taken(SALES), 7)


@pytest.mark.parametrize("status", [None, [], {"accepted": None}, {"accepted": [7, {"claim": 7, "since": 1}, {"claim": "x"}]}])
def test_a_status_that_says_nothing_holds_nothing(status: object) -> None:
    assert held_by({"status": status}) == {}


def test_ten_thousand_newcomers_are_decided_with_a_few_looks_each() -> None:
    made = claimants()
    for number in range(10_000):
        claim = JwtClaim("corp", "llm", {"org": f"o{number}"})
        made.put(Claimant(Owner("ns", f"t{number}"), f"uid-{number:05}", "2026-01-01T00:00:00Z", {str(claim): claim}))
    while made.decide(64):
        pass
    assert all(made.acceptance(Owner("ns", f"t{number}"), 1).accepted for number in (0, 5_000, 9_999))
    assert made.index.looks <= 3 * 10_000


@pytest.mark.parametrize(
    "names", [lambda _i, _j: ["x"], lambda i, j: [f"y{i}", f"z{j}"], lambda i, j: [f"n{(i * j + k) % 16}" for k in range(8)]]
)
def test_a_thousand_claims_of_a_few_tenants_are_decided_with_a_few_looks_each(names: Any) -> None:
    """Whatever names they ask for: the shape of others' claims must cost nobody anything."""
    made, asked = claimants(), 0
    for i in range(16):
        wanted = [JwtClaim("corp", "llm", {"t": str(i), **dict.fromkeys(names(i, j), f"{i}-{j}")}) for j in range(64)]
        asked += sum(len(claim.claims) + 2 for claim in wanted)
        made.put(tenant(f"t{i}", *wanted))
    mine = JwtClaim("corp", "llm", {"t": "mine"})
    made.put(tenant("victim", mine, created="2026-02-01T00:00:00Z"))
    assert decided(made, "victim") == accepted(mine)
    assert made.index.looks <= asked + 3


@settings(max_examples=40)
@given(
    wants=st.lists(st.lists(st.sampled_from(CLAIMS), max_size=3, unique_by=str), min_size=2, max_size=4),
    lists=st.sampled_from([(), ("groups",), ("aud", "team")]),
    order=st.randoms(use_true_random=False),
)
def test_never_two_tenants_hold_overlapping_claims(wants: list[list[Claim]], lists: tuple[str, ...], order: Any) -> None:
    """Whatever the order of decisions, each written before the next or not, with Tenants that come and go."""
    made = claimants(list_claims=lists)
    tenants = {f"t{number}": tenant(f"t{number}", *want) for number, want in enumerate(wants)}
    for item in tenants.values():
        made.put(item)
    for name in order.choices([*tenants], k=8):
        found = decided(made, name, made.latest + 1)
        mine = tenants[name]
        assert found.accepted.items() >= {text: at for text, at in mine.held.items() if text in mine.wanted}.items()
        if order.random() < 0.7:
            tenants[name] = Claimant(mine.owner, mine.uid, mine.created, mine.wanted, found.accepted)
            made.put(tenants[name])
        elif order.random() < 0.3:
            made.remove(mine.owner)
            tenants[name] = tenant(name, *mine.wanted.values(), uid=f"uid-{order.random()}")
            made.put(tenants[name])
        held = [(name, text) for name, item in tenants.items() for text in item.held]
        assert not clashes(held, lists)
    assert clashes([("x", str(SALES)), ("y", str(SALES))], lists)


def clashes(held: Iterable[tuple[str, str]], lists: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = list(held)
    return [(one[1], two[1]) for one in pairs for two in pairs if one[0] < two[0] and overlaps(one[1], two[1], {"corp": lists})]
