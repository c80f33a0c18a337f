"""An engine that is upgraded until it enforces salts, and back: tenants never meet meanwhile, and everybody is served.

The version is the stub engine's, which ignores salts where it stands for the older one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import openai
import pytest

from e2e.faults import site
from e2e.faults.site import TENANTS, Site
from e2e.stack import client, kubectl, outage, single_tenants, stub_pool
from e2e.stack.waiting import until

POOL = "rising"
OLD, NEW = "0.30.0", "0.32.0"
TOKENS = 300
CHANGE_SECONDS = 240

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's addresses are none of this machine")


class _Couple(threading.Thread):
    """Two tenants who send the same prompts, one after the other, until they are told to stop."""

    def __init__(self, place: Site) -> None:
        super().__init__(daemon=True)
        self.met, self.own, self.asked = 0, 0, 0
        self.faults: list[str] = []
        self._place = place
        self._over = threading.Event()

    def run(self) -> None:
        first, second = (self._client(tenant) for tenant in TENANTS)
        with first, second:
            while not self._over.is_set():
                self._once(first, second)

    def stop(self) -> None:
        self._over.set()
        self.join(60)
        assert not self.is_alive()

    def _client(self, tenant: str) -> openai.OpenAI:
        """As people's clients are, which try again what is refused for a moment."""
        return self._place.client(tenant).with_options(max_retries=client.RETRIES)

    def _once(self, first: openai.OpenAI, second: openai.OpenAI) -> None:
        text = client.prompt(TOKENS)
        try:
            _cached(first, text)
            self.met += _cached(second, text) > 0
            self.own += _cached(first, text) > 0
            self.asked += 1
        except (openai.OpenAIError, httpx.HTTPError) as error:
            self.faults.append(repr(error))


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    with site.shared("modes") as found:
        yield found


def test_tenants_never_meet_while_their_engine_begins_to_enforce_salts_or_ends_to(place: Site) -> None:
    kubectl.apply([_pool(place, OLD)], place.namespace)
    try:
        single_tenants.await_pools(POOL, place.namespace, *TENANTS)
        until(lambda: all(place.outcome_of(tenant, POOL) == "served" for tenant in TENANTS), "both tenants are served", 120)
        with _couple(place) as couple:
            _move(place, NEW, mode="Shared", tenants=())
            _move(place, OLD, mode="PerTenant", tenants=TENANTS)
            own = couple.own
            until(lambda: couple.own > own + 2, "each finds its own again", 60)
        assert couple.met == 0, f"{couple.met} of {couple.asked} prompts were found by another tenant"
        assert couple.faults == [], f"{len(couple.faults)} of {couple.asked} were not served"
    finally:
        kubectl.run("delete", "servingpool", POOL, "--wait=true", "--timeout=60s", namespace=place.namespace)


@contextmanager
def _couple(place: Site) -> Iterator[_Couple]:
    couple = _Couple(place)
    couple.start()
    try:
        until(lambda: couple.own > 0, "a tenant finds its own: the control", 60)
        yield couple
    finally:
        couple.stop()


def _move(place: Site, version: str, *, mode: str, tenants: tuple[str, ...]) -> None:
    kubectl.apply([_pool(place, version)], place.namespace)

    def moved() -> bool:
        pool = kubectl.get("servingpool", POOL, namespace=place.namespace)
        ready = kubectl.condition(pool, "Ready").get("status") == "True"
        dedicated = set(single_tenants.pools_of(POOL, place.namespace)) == set(tenants)
        own = kubectl.exists("deployment", POOL, place.namespace)
        return ready and dedicated and own == (mode == "Shared") and bool(pool["status"]["mode"] == mode)

    until(moved, f"the pool of version {version} is {mode}; see `kubectl get servingpools`", CHANGE_SECONDS)


def _pool(place: Site, version: str) -> dict[str, Any]:
    """The pool; an engine that is too old ignores what salts it is given."""
    args = ("--leak", "everywhere") if version == OLD else ()
    document = stub_pool.document(POOL, image=place.images[stub_pool.IMAGE], args=args)
    document["spec"]["engine"]["version"] = version
    document["spec"]["resources"]["requests"]["cpu"] = site.CPU
    return document


def _cached(who: openai.OpenAI, text: str) -> int:
    messages: Any = [{"role": "user", "content": text}]
    usage = who.chat.completions.create(model=POOL, messages=messages, max_tokens=2).usage
    assert usage is not None
    return (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
