"""A guard beside its engine serves and fences as one inside it does, and nobody reaches the engine but through it."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import openai
import pytest

from cachescope.core.labels import ENGINE_PORT
from cachescope.manifests.engine_command import LOCAL_PORT
from e2e.faults import site
from e2e.faults.declarations import is_true, rollback_of
from e2e.faults.site import Site
from e2e.stack import kubectl, outage, stub_pool, volumes
from e2e.stack.paths import ROOT
from e2e.stack.waiting import until

BESIDE, TENANT = "beside", "blue"
MODEL = ROOT / "images" / "stub-engine" / "model"
TRIES = 10

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's folders and addresses are none of this machine")


@pytest.fixture(scope="session")
def fenced_site() -> Iterator[Site]:
    # Its pool goes in the end, and its ServiceAccount first: its guard cannot say that it ends, and denials there wait for it.
    with site.shared("sidecar") as found:
        yield found


@pytest.fixture(scope="module")
def pod(fenced_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the one pod of a pool whose guard is a sidecar."""
    folder = tmp_path_factory.mktemp("volume") / "model"
    shutil.copytree(MODEL, folder)
    pool = stub_pool.document(BESIDE, image=fenced_site.images[stub_pool.IMAGE], args=("--token-seconds", "0.05"))
    pool["spec"] |= {"guard": {"mode": "Sidecar"}}
    pool["spec"]["model"]["source"] = {"persistentVolumeClaim": {"claimName": BESIDE}}
    with volumes.claimed(BESIDE, folder, fenced_site.namespace):
        try:
            stub_pool.bring_up(pool, fenced_site.namespace)
            (found,) = fenced_site.pods(stub_pool.pods(BESIDE))
            yield str(found["status"]["podIP"])
        finally:
            kubectl.run("delete", "servingpool", BESIDE, "--wait=true", "--timeout=60s", namespace=fenced_site.namespace)


def _cached(who: openai.OpenAI, text: str) -> int:
    """How many tokens of a prompt were found."""
    messages: Any = [{"role": "user", "content": text}]
    usage = who.chat.completions.create(model=BESIDE, messages=messages, max_tokens=2).usage
    assert usage is not None
    return (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0


class _Long(threading.Thread):
    """An answer that lasts until somebody cuts it."""

    def __init__(self, who: openai.OpenAI) -> None:
        super().__init__(daemon=True)
        self.began = threading.Event()
        self.whole = False
        self._who = who

    def run(self) -> None:
        try:
            messages: Any = [{"role": "user", "content": "a long one"}]
            for _ in self._who.chat.completions.create(model=BESIDE, messages=messages, max_tokens=4000, stream=True):
                self.began.set()
            self.whole = True
        except (openai.OpenAIError, httpx.HTTPError):
            pass


def test_a_sidecar_is_the_only_way_to_its_engine(fenced_site: Site, pod: str) -> None:
    with fenced_site.client(TENANT) as who:
        assert _cached(who, "is anybody there?") == 0, "the control: through the gateway it answers"
    body = {"model": BESIDE, "messages": [{"role": "user", "content": "is anybody there?"}]}
    for _ in range(TRIES):
        refused = httpx.post(f"http://{pod}:{ENGINE_PORT}/v1/chat/completions", json=body, timeout=5)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "permit_required")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{pod}:{LOCAL_PORT}/health", timeout=5)


def test_a_sidecar_holds_a_fence(fenced_site: Site, pod: str) -> None:
    text = " ".join(f"t{index}" for index in range(60))
    with fenced_site.client(TENANT) as who, fenced_site.client(TENANT) as other:
        assert _cached(who, text) == 0
        assert _cached(who, text) > 0
        long = _Long(other)
        long.start()
        assert long.began.wait(20)

        name = f"beside-{secrets.token_hex(4)}"
        rollback = rollback_of(name)
        rollback["spec"]["target"]["name"] = BESIDE
        kubectl.apply([rollback], fenced_site.namespace)
        until(lambda: is_true(fenced_site.namespace, name, "Fenced"), "the rollback is fenced", 60)

        status = kubectl.get("cacheepoch", name, namespace=fenced_site.namespace)["status"]
        assert status["guards"] == {"acknowledged": 1, "expired": 0, "total": 1}
        long.join(20)
        assert not long.is_alive()
        assert not long.whole
        assert 'state="closing"} 0' in httpx.get(f"http://{pod}:9400/metrics", timeout=5).text
        assert _cached(who, text) == 0
        assert _cached(who, text) > 0
