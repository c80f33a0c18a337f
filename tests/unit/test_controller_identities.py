"""Who holds an identity: the first who got it keeps it, and a newcomer changes nothing for him."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.api.claims import ApiKeysClaim, JwtClaim, overlaps
from cachescope.controller.identities import Acceptance, Claimant, Claimants, decide

PROVIDERS = ("corp", "other")
ALL = str(JwtClaim("corp", "llm"))
SALES = str(JwtClaim("corp", "llm", {"team": "sales"}))
LAW = str(JwtClaim("corp", "llm", {"team": "law"}))
NORTH = str(JwtClaim("corp", "llm", {"region": "north"}))
KEYS = str(ApiKeysClaim("ns", "keys"))
GHOST = str(JwtClaim("nobody", "llm"))

claims = st.sampled_from([ALL, SALES, LAW, NORTH, KEYS, GHOST])
wanted = st.lists(claims, max_size=3, unique=True).map(tuple)


def tenant(uid: str, *want: str, held: dict[str, int] | None = None, created: str = "2026-01-01T00:00:00Z") -> Claimant:
    return Claimant(uid, created, want, held or {})


def settle(mine: Claimant, *others: Claimant, since: int = 100) -> Acceptance:
    return decide(mine, others, providers=PROVIDERS, since=since)


def test_a_claim_that_nobody_has_is_accepted() -> None:
    assert settle(tenant("a", SALES, KEYS)) == Acceptance({SALES: 100, KEYS: 100})


def test_the_holder_keeps_his_claim_and_the_newcomer_gets_nothing() -> None:
    holder = tenant("z", SALES, held={SALES: 5}, created="2026-09-09T00:00:00Z")
    newcomer = tenant("a", SALES)
    assert settle(holder, newcomer).accepted == {SALES: 5}
    assert settle(newcomer, holder) == Acceptance({}, taken=(SALES,))


def test_a_wider_or_crossing_claim_overlaps_and_a_disjoint_one_does_not() -> None:
    holder = tenant("z", SALES, held={SALES: 5})
    assert settle(tenant("a", ALL), holder).taken == (ALL,)
    assert settle(tenant("a", NORTH), holder).taken == (NORTH,)
    assert settle(tenant("a", LAW), holder).accepted == {LAW: 100}


def test_what_a_holder_declares_no_more_he_holds_no_more() -> None:
    assert settle(tenant("a", KEYS, held={SALES: 5, KEYS: 6})) == Acceptance({KEYS: 6})


def test_a_holder_is_in_the_way_until_his_status_says_otherwise() -> None:
    leaving = tenant("z", held={SALES: 5})
    assert settle(tenant("a", SALES), leaving).taken == (SALES,)
    assert settle(tenant("a", SALES), tenant("z")).accepted == {SALES: 100}


def test_among_newcomers_the_older_comes_first_and_then_the_smaller_uid() -> None:
    old, young = tenant("z", SALES), tenant("a", SALES, created="2026-02-01T00:00:00Z")
    assert (settle(old, young).accepted, settle(young, old).taken) == ({SALES: 100}, (SALES,))
    same = tenant("b", SALES)
    assert (settle(same, tenant("a", SALES)).taken, settle(tenant("a", SALES), same).accepted) == ((SALES,), {SALES: 100})


def test_an_older_newcomer_that_is_refused_himself_stands_in_nobodys_way() -> None:
    holder = tenant("h", SALES, held={SALES: 5})
    refused = tenant("a", NORTH, created="2025-01-01T00:00:00Z")
    mine = tenant("b", LAW)
    assert overlaps(NORTH, LAW)
    assert settle(mine, refused).taken == (LAW,)
    assert settle(mine, refused, holder).accepted == {LAW: 100}


def test_a_tenant_that_claims_twice_does_not_block_itself() -> None:
    assert settle(tenant("a", ALL, SALES)).accepted == {ALL: 100, SALES: 100}


def test_an_unknown_provider_is_refused_and_what_is_held_under_it_is_kept() -> None:
    assert settle(tenant("a", GHOST)) == Acceptance({}, unknown=(GHOST,))
    assert settle(tenant("a", GHOST, held={GHOST: 5})) == Acceptance({GHOST: 5}, unknown=(GHOST,))


def test_a_claim_of_a_kind_that_is_not_known_here_is_held_as_it_is() -> None:
    odd = tenant("z", held={"spiffe:x": 5})
    assert settle(tenant("a", SALES), odd).accepted == {SALES: 100}


def test_claimants_are_found_by_what_their_claims_are_about() -> None:
    all_of_them = Claimants()
    for item in (tenant("a", SALES), tenant("b", held={ALL: 7}), tenant("c", KEYS), tenant("d", GHOST)):
        all_of_them.put(item)
    assert [item.uid for item in all_of_them.rivals(tenant("x", LAW))] == ["a", "b"]
    assert all_of_them.latest == 7
    all_of_them.put(tenant("a", KEYS))
    all_of_them.remove("b")
    assert all_of_them.rivals(tenant("x", LAW)) == []
    assert [item.uid for item in all_of_them.rivals(tenant("c", KEYS))] == ["a"]
    assert all_of_them.latest == 0


@settings(max_examples=25, deadline=None)
@given(wants=st.lists(wanted, min_size=2, max_size=4), order=st.randoms(use_true_random=False))
def test_never_two_tenants_hold_overlapping_claims(wants: list[tuple[str, ...]], order: object) -> None:
    """Whatever the order of decisions, each made after the one before was written."""
    everybody = Claimants()
    tenants = {f"t{number}": tenant(f"t{number}", *want) for number, want in enumerate(wants)}
    for item in tenants.values():
        everybody.put(item)
    uids = [*tenants, *tenants]
    order.shuffle(uids)  # type: ignore[attr-defined]
    for uid in uids:
        mine = tenants[uid]
        found = decide(mine, everybody.rivals(mine), providers=PROVIDERS, since=everybody.latest + 1)
        assert found.accepted.items() >= {claim: at for claim, at in mine.held.items() if claim in mine.wanted}.items()
        tenants[uid] = Claimant(uid, mine.created, mine.wanted, found.accepted)
        everybody.put(tenants[uid])
    held = [(uid, claim) for uid, item in tenants.items() for claim in item.held]
    assert not clashes(held)
    assert clashes([*held, ("x", SALES), ("y", SALES)])


def clashes(held: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    pairs = list(held)
    return [(one[1], two[1]) for one in pairs for two in pairs if one[0] < two[0] and overlaps(one[1], two[1])]
