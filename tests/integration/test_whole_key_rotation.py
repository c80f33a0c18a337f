"""The root keys on the whole path of real processes: rotated under load without a gap, dropped, damaged and mended."""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from cachescope.core.keys import KeyRing, root_ring
from cachescope.core.labels import ROOT_KEYS_SECRET
from cachescope.core.permits import permit_keys
from cachescope.core.signed import claimed, key_id_of, sign
from e2e.stack import kubectl
from tests.integration import namespaces
from tests.integration.kubelet import mount
from tests.integration.operator_process import resource
from tests.integration.tls_client import CHAT, Answer, Client, chat_body
from tests.integration.whole_installation import POOL, Process, Whole, installed, ready

NEW = "k9999"
TIMES = 10
HANDLES, CACHE_KEYS = "/cachescope/v1/handles", "/cachescope/v1/cache-keys"


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    with namespaces.made("whole") as name:
        yield name


@pytest.fixture(scope="module")
def running(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Whole, Process]]:
    with installed(namespace, tmp_path_factory.mktemp("whole")) as (whole, processor):
        listed = {"kind": "api-key", "subject": "ci", "tenant": "red"}
        whole.apply(resource("CacheScope", "listed", {"pools": [POOL], "tenants": ["red"], "applications": [listed]}))
        whole.until(lambda: cache_keys(whole, "hello").status == 200)
        yield whole, processor


@pytest.fixture(scope="module")
def whole(running: tuple[Whole, Process]) -> Whole:
    return running[0]


@pytest.fixture(scope="module")
def of_before(whole: Whole) -> tuple[str, str]:
    """A prompt and its handle, made with the first key."""
    text = prompt()
    return text, handle(whole, text)


class Load:
    """Requests without a pause, from a thread of its own, and how they were answered."""

    def __init__(self, whole: Whole) -> None:
        self._whole, self._ended = whole, threading.Event()
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        while not self._ended.is_set():
            self.statuses[self._whole.chat(secrets.token_hex(8)).status] += 1

    def end(self) -> None:
        self._ended.set()


@contextmanager
def loaded(whole: Whole) -> Iterator[Load]:
    """Load, of which nothing may be refused."""
    load = Load(whole)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield load
    finally:
        load.end()
        thread.join()
    assert load.statuses.keys() == {200}, load.statuses
    assert load.statuses.total() >= TIMES


def root_keys(whole: Whole) -> dict[str, str]:
    """What the Secret with the root keys holds, by id."""
    data = whole.get("secret", ROOT_KEYS_SECRET)["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def change(whole: Whole, **keys: str | None) -> None:
    """Somebody adds keys to the Secret, or removes them."""
    data = {name: None if text is None else base64.b64encode(text.encode()).decode() for name, text in keys.items()}
    patch = json.dumps({"data": data})
    kubectl.run("patch", "secret", ROOT_KEYS_SECRET, "--type=merge", "-p", patch, namespace=whole.namespace)


def handed_out(whole: Whole) -> set[str]:
    """Ids of the permit keys that the pool's guards get."""
    return set(whole.get("secret", f"{POOL}-permit-keys")["data"])


def ledgers(whole: Whole) -> dict[str, tuple[str, str]]:
    """The lineage of each ledger, and the key of its seal."""
    found = kubectl.get("epochledgers", namespace=whole.namespace)["items"]
    return {item["metadata"]["name"]: (item["spec"]["lineage"]["id"], item["spec"]["mac"]["key"]) for item in found}


def lineages(whole: Whole) -> dict[str, str]:
    return {name: lineage for name, (lineage, _) in ledgers(whole).items()}


def sealed_with(whole: Whole) -> set[str]:
    return {key for _, key in ledgers(whole).values()}


def signed_with(whole: Whole, holder: str) -> set[str]:
    """Ids of the keys with which leases of a holder are signed."""
    found = [item["spec"] for item in kubectl.get("fenceleases", namespace=whole.namespace)["items"]]
    return {key_id_of(spec["statement"], most=10**6) for spec in found if spec["holder"] == holder}


def key_of(whole: Whole) -> dict[str, str]:
    return {"authorization": f"Bearer {whole.key}"}


def cache_keys(whole: Whole, text: str) -> Answer:
    return whole.client.post(CACHE_KEYS, {"path": CHAT, "body": chat_body(text)}, key_of(whole))


def handle(whole: Whole, text: str) -> str:
    found = whole.client.post(HANDLES, {"path": CHAT, "body": chat_body(text)}, key_of(whole))
    assert found.status == 200, found
    return str(json.loads(found.body)["handle"])


def presented(whole: Whole, text: str, shown: str) -> tuple[Answer, str]:
    """The answer to a request with a handle, and what the gateway counted of that."""
    before = outcomes(whole)
    found = whole.chat(text, headers={**key_of(whole), "x-cachescope-handle": shown})
    (outcome,) = (outcomes(whole) - before).elements()
    return found, outcome


def outcomes(whole: Whole) -> Counter[str]:
    metrics = Client(whole.health_port, tls=False).get("/metrics").body.decode()
    found = re.findall(r'^cachescope_handles_presented_total\{outcome="(\w+)"\} (\S+)$', metrics, re.MULTILINE)
    return Counter({name: int(float(count)) for name, count in found})


def permits_of(whole: Whole, texts: Mapping[str, str]) -> KeyRing:
    """The pool's permit keys that follow from these root keys."""
    uid = whole.get("servingpool", POOL)["metadata"]["uid"]
    return permit_keys(root_ring(texts), uid)


def status_under(whole: Whole, keys: KeyRing, key_id: str) -> int:
    """How the guard answers a permit as the gateway makes them now, signed with this key."""
    whole.chat()
    request, key = whole.tap.latest, keys.others[key_id]
    permit = {**claimed(request.permit), "id": secrets.token_hex(16)}
    return whole.tap.send(request, sign(key, "permit", permit)).status


def prompt() -> str:
    return f"{secrets.token_hex(16)} once upon a midnight dreary " * 20


def anonymous(answer: Answer) -> dict[str, str]:
    """The headers of an answer, those left out that are of its moment."""
    return {name: value for name, value in answer.headers.items() if name not in {"date", "x-request-id", "content-length"}}


def test_a_rotation_refuses_nobody_and_makes_everything_anew(whole: Whole, of_before: tuple[str, str]) -> None:
    (old,) = root_keys(whole).keys() - {"targets"}
    before, (text, shown) = lineages(whole), of_before
    keys = cache_keys(whole, text).body
    assert whole.chat(text).cached == 0
    matching, outcome = presented(whole, text, shown)
    assert (matching.cached > 0, outcome, cache_keys(whole, text).body) == (True, "Matches", keys)
    with loaded(whole):
        change(whole, **{NEW: secrets.token_hex(32)})
        whole.until(lambda: sealed_with(whole) == {NEW})
        whole.mount_permit_keys()
        whole.until(lambda: {old} == signed_with(whole, "Guard") == signed_with(whole, "Gateway"))
        assert handed_out(whole) == {old}, "the operator has the new key, and the gateway does not"
        whole.mount_root_keys()
        whole.until(lambda: handed_out(whole) == {old, NEW})
        assert signed_with(whole, "Gateway") == {NEW}
        ring = permits_of(whole, root_keys(whole))
        assert whole.tap.latest.key_id == old, "the guard has no other"
        assert status_under(whole, ring, NEW) == 401
        whole.mount_permit_keys()
        whole.until(lambda: whole.tap.latest.key_id == NEW)
        whole.until(lambda: signed_with(whole, "Guard") == {NEW})
        assert [status_under(whole, ring, key_id) for key_id in (old, NEW)] == [200, 200]
    assert lineages(whole) == before
    missed, outcome = presented(whole, text, shown)
    assert (missed.cached, outcome) == (0, "OldGeneration")
    assert anonymous(missed) == anonymous(matching)
    assert whole.chat(text).cached > 0, "the new key's own prefix is reused"
    assert cache_keys(whole, text).body != keys
    assert presented(whole, text, handle(whole, text))[1] == "Matches"


def test_a_key_that_is_dropped_opens_and_signs_nothing_and_nobody_notices(whole: Whole, of_before: tuple[str, str]) -> None:
    """Goes on from the rotation."""
    (old,) = root_keys(whole).keys() - {"targets", NEW}
    ring, before, text = permits_of(whole, root_keys(whole)), lineages(whole), prompt()
    assert whole.chat(text).cached == 0
    shown = handle(whole, text)
    with loaded(whole):
        change(whole, **{old: None})
        whole.until(lambda: handed_out(whole) == {NEW})
        whole.mount_root_keys()
        whole.mount_permit_keys()
        whole.until(lambda: status_under(whole, ring, old) == 401)
        for _ in range(TIMES):
            assert [status_under(whole, ring, key_id) for key_id in (old, NEW)] == [401, 200]
    assert (lineages(whole), sealed_with(whole)) == (before, {NEW})
    matching, outcome = presented(whole, text, shown)
    assert (matching.cached > 0, outcome) == (True, "Matches"), "what is of the new key goes on"
    unreadable, outcome = presented(whole, text, of_before[1])
    assert outcome == "Unreadable"
    assert (unreadable.cached, anonymous(unreadable)) == (matching.cached, anonymous(matching)), "and its answer tells nothing"


DAMAGES: dict[str, Callable[[dict[str, str]], Mapping[str, bytes]]] = {
    "empty": lambda _: {},
    "garbled": lambda keys: {**{name: text.encode() for name, text in keys.items()}, NEW: b"\xff\xfe not a key"},
    "without the key of targets": lambda keys: {NEW: keys[NEW].encode()},
    "with the key of targets alone": lambda keys: {"targets": keys["targets"].encode()},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_gateway_that_starts_without_whole_keys_serves_nobody_until_they_are_mended(
    running: tuple[Whole, Process], damage: Callable[[dict[str, str]], Mapping[str, bytes]]
) -> None:
    whole, processor = running
    mount(whole.mounted / "root-keys", damage(root_keys(whole)))
    whole.until(lambda: ready(whole)["configuration"] != "loaded")
    for _ in range(TIMES):
        assert whole.served(), "one that runs goes on with the keys that it has"
    before = len(whole.tap.requests)
    processor.stop()
    processor.start()
    whole.until(lambda: Client(whole.health_port, tls=False).get("/healthz").status == 200)
    for _ in range(TIMES):
        assert whole.chat().status == 503
        assert Client(whole.health_port, tls=False).get("/readyz").status == 503
    assert len(whole.tap.requests) == before, "nothing reached the engine"
    whole.mount_root_keys()
    whole.until(whole.served)


def test_a_guard_whose_keys_are_gone_serves_nobody_until_they_are_mended(whole: Whole) -> None:
    mount(whole.permit_keys, {})
    whole.until(lambda: not whole.served())
    for _ in range(TIMES):
        assert whole.chat().status == 503
    whole.mount_permit_keys()
    whole.until(whole.served)


def test_a_guard_whose_keys_are_garbled_goes_on_with_those_that_it_has(whole: Whole) -> None:
    mount(whole.permit_keys, {NEW: b"\xff\xfe not a key"})
    whole.until(lambda: "permit keys cannot be read" in (whole.folder / "engine.log").read_text())
    ring = permits_of(whole, root_keys(whole))
    for _ in range(TIMES):
        assert status_under(whole, ring, NEW) == 200
    whole.mount_permit_keys()


def test_nothing_reached_the_engine_without_a_permit(whole: Whole) -> None:
    assert whole.tap.requests
    assert whole.tap.without_permit == []
