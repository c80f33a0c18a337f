"""What the engine calls somebody's answer or job is worth nothing in another's hands, and asking for it tells nothing.

Nothing is stored for anybody: so the owner is refused too, and whether an id was ever given shows in no answer.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

import pytest

from e2e.stack import client
from e2e.stack.attacker import send
from e2e.stack.client import MODEL
from e2e.stack.install import Stack

TRIES = 50
ASKED = {"model": MODEL, "input": "go on", "max_output_tokens": 2}


@dataclass(frozen=True)
class Way:
    """A way to ask for something by its id.

    Attributes:
        method: HTTP method.
        path: With `{id}` where the id stands.
        fields: Fields of the body that hold the id.
    """

    method: str
    path: str
    fields: tuple[str, ...] = ()

    def ask(self, gateway: str, headers: dict[str, str], name: str) -> tuple[int, str, frozenset[str]]:
        """Status, body and names of the headers of the answer."""
        body = json.dumps({**ASKED, **dict.fromkeys(self.fields, name)}).encode() if self.method == "POST" else b""
        answer = send(f"http://{gateway}{self.path.replace('{id}', name)}", body, headers, method=self.method)
        # Whether a connection ends with an answer depends on how much of the request had come.
        return answer.status_code, answer.text.replace(name, "ID"), frozenset(answer.headers) - {"connection"}


WAYS = (
    Way("GET", "/v1/responses/{id}"),
    Way("GET", "/v1/responses/{id}/input_items"),
    Way("DELETE", "/v1/responses/{id}"),
    Way("POST", "/v1/responses/{id}/cancel"),
    Way("POST", "/v1/responses", ("previous_response_id",)),
    Way("POST", "/v1/responses", ("conversation",)),
    Way("GET", "/v1/chat/completions/{id}"),
    Way("GET", "/v1/batches/{id}"),
    Way("POST", "/v1/batches/{id}/cancel"),
    Way("GET", "/v1/files/{id}/content"),
)


@pytest.fixture(scope="module")
def given(stack: Stack, gateway: str) -> list[str]:
    """Ids of answers that the engine gave to a person of `blue`."""
    carol = client.client(gateway, stack.credentials.api_keys["blue-carol"])

    def asked(number: int) -> str:
        return carol.responses.create(model=MODEL, input=f"question {number}", max_output_tokens=2, store=True).id

    found = client.at_once(asked, range(TRIES))
    assert len(set(found)) == TRIES
    return found


@pytest.mark.parametrize("owner", [False, True], ids=["another", "the owner"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.method} {way.path} {' '.join(way.fields)}".strip())
def test_a_given_id_is_answered_as_one_that_nobody_has(stack: Stack, gateway: str, given: list[str], way: Way, owner: bool) -> None:
    headers = _of(stack, owner=owner)
    unknown = way.ask(gateway, headers, _like(given[0]))
    assert 400 <= unknown[0] < 500
    assert [way.ask(gateway, headers, name) for name in given] == [unknown] * TRIES


@pytest.mark.parametrize("owner", [False, True], ids=["another", "the owner"])
def test_the_control_whoever_names_no_id_is_served(stack: Stack, gateway: str, owner: bool) -> None:
    answer = send(f"http://{gateway}/v1/responses", json.dumps(ASKED).encode(), _of(stack, owner=owner))
    assert answer.status_code == 200


def _of(stack: Stack, *, owner: bool) -> dict[str, str]:
    key = stack.credentials.api_keys["blue-carol"] if owner else stack.credentials.token("south", "kim", "tiny")
    return {"authorization": f"Bearer {key}", "content-type": "application/json"}


def _like(name: str) -> str:
    """An id of the same form."""
    kind, _, rest = name.rpartition("_")
    return f"{kind}_{secrets.token_hex(len(rest) // 2 + 1)[: len(rest)]}"
