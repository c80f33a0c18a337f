"""etcd went back, and nobody who remembers is left: nothing is served before people have said what was revoked since.

Until `restored` is declared nobody can know: so the procedure declares it before anything serves, and here nobody asks before that.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from cachescope.core.ledgers import AUTHORIZATION_HEAD
from e2e.faults import restore, site
from e2e.faults.control_plane import ControlPlane, at_once
from e2e.faults.declarations import POOL, denial_of, is_true, rollback_of
from e2e.faults.of_control_plane import lineage
from e2e.faults.of_processes import patch
from e2e.faults.site import TENANTS, WELL_SECONDS, Site
from e2e.faults.table import ROUNDS, SITES, TIMES
from e2e.stack import kubectl, outage
from e2e.stack.install import GATEWAY_PODS, OPERATOR_PODS
from e2e.stack.tenancy import object_of
from e2e.stack.waiting import until

TRIES = 10
RESTART_SECONDS = 150 + WELL_SECONDS

pytestmark = [
    pytest.mark.skipif(not outage.possible(), reason="the cluster's etcd is no process of this machine"),
    pytest.mark.skipif(TIMES == 1, reason="it takes minutes; set CACHESCOPE_FAULT_TIMES"),
    pytest.mark.parametrize("turn", range(ROUNDS)),
]


@pytest.fixture(scope="session")
def fenced_sites() -> Iterator[list[Site]]:
    with ExitStack() as stack:
        yield [stack.enter_context(site.shared(str(number))) for number in range(SITES)]


def test_with_no_witness_left_nothing_is_served_until_it_is_confirmed(
    fenced_sites: list[Site],
    record_property: Callable[[str, object], None],
    turn: int,  # noqa: ARG001 - a repetition
) -> None:
    record_property("plays", len(at_once(fenced_sites, play)))


def play(place: Site, shared: ControlPlane) -> None:
    """Lose two revocations and everybody's memory of them, and see that nobody is served before people have said so."""
    victim = f"victim-{secrets.token_hex(4)}"
    place.add_tenant(victim)
    until(lambda: place.serves(victim), "the victim is served")
    before = {name: lineage(place, name) for name in (POOL, AUTHORIZATION_HEAD)}
    shared.copy()
    declare(place, rollback_of(f"lost-{secrets.token_hex(4)}"))
    declare(place, denial_of(f"lost-{secrets.token_hex(4)}", victim))
    everybody = [pod for labels in (GATEWAY_PODS, OPERATOR_PODS) for pod in place.pods(labels)] + place.pods()
    shared.put_back(lambda: restore.forget(everybody))
    said = restored_of(f"restored-{secrets.token_hex(4)}")
    kubectl.apply([said], place.namespace)
    until(lambda: place.outcome(TENANTS[0]) == "restore_unconfirmed", "requests are refused as unconfirmed", RESTART_SECONDS)
    assert [place.outcome(who) for _ in range(TRIES) for who in (TENANTS[0], victim)] == ["restore_unconfirmed"] * 2 * TRIES
    declare(place, denial_of(f"anew-{secrets.token_hex(4)}", victim), "Accepted")
    confirmed = {"confirmed": True, "lineage": lineage(place, AUTHORIZATION_HEAD).generation}
    patch(place, "cacheepoch", said["metadata"]["name"], {"spec": {"restored": confirmed}})
    until(place.is_well, "everybody is served again", RESTART_SECONDS)
    assert [place.outcome(victim) for _ in range(TRIES)] == ["revoked"] * TRIES
    assert all(lineage(place, name).generation > known.generation for name, known in before.items())


def declare(place: Site, document: dict[str, Any], condition: str = "Fenced") -> None:
    """Apply a CacheEpoch, and wait for a condition of it."""
    kubectl.apply([document], place.namespace)
    name = document["metadata"]["name"]
    until(lambda: is_true(place.namespace, name, condition), f"{name} is {condition}", 60)


def restored_of(name: str) -> dict[str, Any]:
    """The declaration that the cluster was restored."""
    spec = {"target": {"kind": "Namespace"}, "incident": {"id": name, "reason": "fault test"}, "restored": {"confirmed": False}}
    return object_of("CacheEpoch", name, spec)
