"""Which digests of policy count as loaded: those that a watch passed through and that were compiled, or that a list covers."""

from __future__ import annotations

import asyncio

import pytest

from cachescope.core.ledgers import Ledger, Lineage, Role
from cachescope.core.policy_digest import PolicyDigest
from cachescope.core.types import Digest
from cachescope.gateway import policy_history
from cachescope.gateway.policy_history import PolicyHistory, PolicyLoading, Wanted
from cachescope.gateway.readings import Reading


def digest(*elements: int) -> Digest:
    found = PolicyDigest()
    for element in elements:
        found.add(element)
    return found.digest()


def head(**policy: Digest) -> Ledger:
    return Ledger(Role.AUTHORIZATION, Lineage(1, "2" * 32), 1, policy=policy)


class Gateway:
    """A watch of tenants, which are numbers, and what is compiled of it."""

    def __init__(self) -> None:
        self.history = PolicyHistory()
        self.loading = PolicyLoading({"Tenant": self.history})
        self.version = 0

    def shows(self, before: int | None, after: int | None) -> None:
        """An event of the watch."""
        self.history.replaced(*(None if it is None else Reading(it, element=it) for it in (before, after)))
        self.version += 1
        self.history.record(self.version)

    def compile(self) -> None:
        self.loading.compiled({"Tenant": self.version})

    def loads(self, *elements: int) -> bool:
        """Whether a head that was written for these tenants may be acted on."""
        wanted = head(Tenant=digest(*elements))
        self.loading.want([wanted])
        assert self.loading.is_loaded(wanted) is not bool(self.loading.unmet)
        return not self.loading.unmet


@pytest.fixture
def gateway() -> Gateway:
    found = Gateway()
    found.shows(None, 1)
    found.shows(None, 2)
    found.compile()
    return found


def test_states_that_the_watch_passed_through_are_loaded_and_others_are_not(gateway: Gateway) -> None:
    assert gateway.loads(1)
    assert gateway.loads(1, 2)
    assert not gateway.loads(2)
    assert not gateway.loads(1, 2, 3)


def test_what_is_not_compiled_yet_is_not_loaded(gateway: Gateway) -> None:
    gateway.shows(2, None)
    gateway.shows(None, 3)
    assert not gateway.loads(1, 3)
    gateway.compile()
    assert gateway.loads(1, 3)


def test_what_came_back_must_be_compiled_again(gateway: Gateway) -> None:
    gateway.shows(2, None)
    gateway.compile()
    gateway.shows(None, 2)
    assert not gateway.loads(1, 2)
    gateway.compile()
    assert gateway.loads(1, 2)


def test_a_change_of_what_is_no_policy_is_none(gateway: Gateway) -> None:
    gateway.shows(2, 2)
    assert gateway.loads(1, 2)


def test_a_list_that_began_later_is_at_least_as_new(gateway: Gateway) -> None:
    assert not gateway.loads(7)
    gateway.loading.listed([Wanted("Tenant", digest(8))], gateway.version)
    assert gateway.loading.unmet == {Wanted("Tenant", digest(7))}, "control: of another digest it says nothing"
    gateway.loading.listed([Wanted("Tenant", digest(7))], gateway.version + 1)
    assert gateway.loading.unmet, "control: what it showed is not compiled yet"
    gateway.shows(None, 9)
    gateway.compile()
    assert not gateway.loading.unmet


def test_once_loaded_it_stays_so_while_a_head_names_it(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_history, "REMEMBERED", 3)
    assert gateway.loads(1, 2)
    for number in range(10, 20):
        gateway.shows(None, number)
    gateway.compile()
    assert gateway.loads(1, 2)
    gateway.loads(1)
    assert not gateway.loads(1, 2), "control: the history is bounded"


def test_kinds_that_are_not_followed_and_heads_without_digests_ask_for_nothing(gateway: Gateway) -> None:
    gateway.loading.want([head(), head(Namespace=digest(5))])
    assert not gateway.loading.unmet


async def test_who_waits_is_told(gateway: Gateway) -> None:
    loading = gateway.loading
    await asyncio.wait_for(loading.complete(), 1)
    lacking = asyncio.ensure_future(loading.lacking())
    await asyncio.sleep(0)
    assert not lacking.done()
    gateway.loads(7)
    await asyncio.wait_for(lacking, 1)
    complete = asyncio.ensure_future(loading.complete())
    await asyncio.sleep(0)
    assert not complete.done()
    loading.want([])
    await asyncio.wait_for(complete, 1)
