"""What a tenant is called, holds and says shows nowhere: not in a log, a metric, an event, a header or an error.

The canaries are planted here, and everything is searched that the whole run left behind. Each search has its control: something
that must be found in the same place.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx2 as httpx
import pytest

from cachescope.core.labels import GUARD_METRICS_PORT
from e2e.stack import client, kubectl
from e2e.stack.credentials import api_key_secret, new_key
from e2e.stack.install import ENGINE_PODS, GATEWAY_METRICS_PORT, GATEWAY_PODS, OPERATOR_PODS, POOL, Stack
from e2e.stack.tenancy import tenant
from e2e.stack.waiting import until

OPERATOR_METRICS_PORT = 9090
ROUTE, HANDLES = "/v1/responses", "/cachescope/v1/handles"
# 32 bytes in URL-safe base64, as salts and keys are written; a digest of an image or a record is hexadecimal.
SECRET_OF_32_BYTES = re.compile(
    r"(?<![A-Za-z0-9_\-/+=])(?=[A-Za-z0-9_-]*[A-Z])(?=[A-Za-z0-9_-]*[a-z])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_\-/+=])"
)


@dataclass
class Planted:
    """A tenant that is made of canaries, and everything that it was answered.

    Attributes:
        name: Its name.
        principal: Whom its key speaks for.
        key: Its API key.
        prompt: What it says, always.
        uid: UID of its Tenant.
        handle: What it was given for its prompt.
        served: Headers of the answers that it got.
        refused: Headers and bodies of its refusals.
    """

    name: str = field(default_factory=lambda: f"canary-{secrets.token_hex(6)}")
    principal: str = field(default_factory=lambda: f"principal-{secrets.token_hex(6)}")
    key: str = field(default_factory=new_key)
    prompt: str = field(default_factory=lambda: f"prompt-{secrets.token_hex(12)}")
    uid: str = ""
    handle: str = ""
    served: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def words(self) -> dict[str, str]:
        """What must show nowhere, by what it is."""
        _, _, secret = self.key.partition(".")
        who = {"tenant": self.name, "principal": self.principal, "key": secret, "uid": self.uid}
        return {**who, "prompt": self.prompt, "handle": self.handle}


@pytest.fixture(scope="module")
def planted(stack: Stack, gateway: str) -> Iterator[Planted]:  # noqa: ARG001 - the installation must be up
    """The tenant; it asked on every route that the engine serves, for a handle, and for what is refused."""
    found = Planted()
    kubectl.apply([api_key_secret(found.key, kubectl.NAMESPACE, found.name, found.principal), tenant(found.name, found.name)])
    found.uid = kubectl.get("tenant", found.name)["metadata"]["uid"]
    until(lambda: kubectl.condition(kubectl.get("tenant", found.name), "Accepted").get("status") == "True", "it is accepted")
    client.wait_routable(client.client(gateway, found.key))
    _ask(found, f"http://{gateway}")
    yield found
    kubectl.run("delete", f"tenant/{found.name}", f"secret/{found.name}", "--wait=true", "--timeout=60s")


def _ask(planted: Planted, url: str) -> None:
    says = {"model": client.MODEL, "max_tokens": 2}
    message = {"role": "user", "content": planted.prompt}
    bodies: dict[str, dict[str, object]] = {
        "/v1/chat/completions": {**says, "messages": [message]},
        "/v1/completions": {**says, "prompt": planted.prompt},
        ROUTE: {"model": client.MODEL, "max_output_tokens": 2, "input": planted.prompt},
        "/v1/chat/completions/batch": {**says, "messages": [[message]]},
        "/v1/messages": {**says, "messages": [message]},
        "/v1/messages/count_tokens": {"model": client.MODEL, "messages": [message]},
        "/tokenize": {"model": client.MODEL, "prompt": planted.prompt},
    }
    refused: dict[str, dict[str, object]] = {
        "/v1/chat/completions": {**says, "messages": [message], "cache_salt": planted.prompt, "vllm_xargs": {"a": planted.prompt}},
        "/v1/completions": {**says, "model": planted.prompt, "prompt": planted.prompt},
        ROUTE: {"model": client.MODEL, "input": [{"type": planted.prompt}]},
        "/v1/messages": {**says, "messages": [message], "vllm_xargs": {"a": planted.prompt}},
        HANDLES: {"path": planted.prompt, "body": {}},
        f"/v1/{planted.prompt}": {},
    }
    headers = {"authorization": f"Bearer {planted.key}", "x-cachescope-permit": planted.prompt}
    with httpx.Client(base_url=url, timeout=60) as who:
        given = who.post(HANDLES, json={"path": "/v1/completions", "body": bodies["/v1/completions"]}, headers=headers)
        planted.handle = given.json()["handle"]
        for path, body in bodies.items():
            answer = who.post(path, json=body, headers={**headers, "x-cachescope-handle": planted.handle})
            assert answer.status_code == 200, f"{path}: the control is served"
            planted.served.append(f"{dict(answer.headers)}")  # the engine may say of the prompt what it likes
        for path, body in refused.items():
            answer = who.post(path, json=body, headers=headers)
            assert 400 <= answer.status_code < 500
            planted.refused.append(f"{dict(answer.headers)} {answer.text}")
        wrong = who.post(
            "/v1/chat/completions", json=bodies["/v1/completions"], headers={**headers, "authorization": f"Bearer {planted.key}x"}
        )
        assert wrong.status_code == 401
        planted.refused.append(f"{dict(wrong.headers)} {wrong.text}")


def _logs() -> dict[str, str]:
    """What every container of the installation logged, those that ended included as far as they are kept."""
    found = {}
    for labels in (GATEWAY_PODS, OPERATOR_PODS, ENGINE_PODS):
        for pod in kubectl.pods(labels):
            name = pod["metadata"]["name"]
            found[name] = kubectl.run("logs", name, "--all-containers", "--tail=-1", "--ignore-errors")
    return found


def _metrics() -> dict[str, str]:
    ports = {GATEWAY_PODS: GATEWAY_METRICS_PORT, OPERATOR_PODS: OPERATOR_METRICS_PORT, ENGINE_PODS: GUARD_METRICS_PORT}
    found = {}
    for labels, port in ports.items():
        with kubectl.forwarded_pod(labels, port) as address:
            found[labels] = httpx.get(f"http://{address}/metrics", timeout=30).text
    return found


def _events() -> dict[str, str]:
    """Words of events; the object that one is about has its name, and everybody who may read the event may read that."""
    return {item["metadata"]["name"]: f"{item.get('reason')} {item.get('message')}" for item in kubectl.get("events")["items"]}


def _shown(places: Mapping[str, str], words: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(place, what) for place, text in places.items() for what, word in words.items() if word in text]


def test_no_log_shows_a_canary(stack: Stack, planted: Planted) -> None:
    logs = _logs()
    assert any(ROUTE in text for text in logs.values()), "the control: its requests are in the audit log"
    people = {f"key of {person}": key.partition(".")[2] for person, key in stack.credentials.api_keys.items()}
    keys = {f"root key {name}": key.secret.hex() for name, key in stack.root_keys.others.items()}
    assert _shown(logs, {**planted.words, **people, **keys}) == []


def test_no_log_holds_a_salt_or_a_key() -> None:
    assert SECRET_OF_32_BYTES.search(f"salt={secrets.token_urlsafe(32)}A") is None
    assert SECRET_OF_32_BYTES.search(f'"salt": "{"aB3_" * 10}xyZ"'), "the control: one would be found"
    assert [(name, found.group()) for name, text in _logs().items() for found in SECRET_OF_32_BYTES.finditer(text)] == []


def test_no_metric_shows_a_canary(planted: Planted) -> None:
    metrics = _metrics()
    assert f'pool="{POOL}"' in metrics[GATEWAY_PODS], "the control: pools have names"
    assert _shown(metrics, planted.words) == []


def test_no_event_shows_a_canary(planted: Planted) -> None:
    events = _events()
    assert events, "the control: there are events"
    assert _shown(events, planted.words) == []


def test_no_answer_shows_a_canary_but_what_its_own_request_named(planted: Planted) -> None:
    # The name of a field, a model or a route that it asked for may be told to whoever asked; who it is may not.
    own = {name: word for name, word in planted.words.items() if name != "prompt"}
    assert _shown({f"refusal {at}": text for at, text in enumerate(planted.refused)}, own) == []
    assert _shown({f"headers {at}": text for at, text in enumerate(planted.served)}, planted.words) == []
