"""The real pool behind gateways of a test build, in which all digests of records collide: the whole record decides all the same.

Beside it stands the build that trusts those digests: with it two tenants share, and anybody's handle matches.
"""

from __future__ import annotations

from collections import Counter

from cachescope.core.handles import Outcome
from e2e.stack import client
from e2e.stack.handles import handle, presenting
from e2e.stack.install import Stack
from e2e.stack.waiting import until
from e2e.test_builds import short_digests
from e2e.test_builds.gateways import Built, gateways

TRIES, FEW = 50, 5
TOKENS = 300
CAROL, KIM = "blue-carol", "green-kim"


def presented(built: Built, owner: str, person: str, texts: list[str]) -> Counter[str]:
    """What became of the handles that one was given, when another presented them with the same prompts."""
    given = [handle(built.address, built.key(owner), text) for text in texts]
    before = len(built.forwarded())
    for text, found in zip(texts, given, strict=True):
        client.chat(presenting(built.client(person), found), text)
    until(lambda: len(built.forwarded()) >= before + len(texts), "every request is in the audit log")
    return Counter(line["handle"] for line in built.forwarded()[before:])


def test_where_digests_collide_the_whole_record_decides(stack: Stack) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    with gateways(stack, short_digests.shortened) as built:
        client.found(built.client(CAROL), texts)
        assert client.found(built.client(KIM), texts) == [0] * TRIES
        assert min(client.found(built.client(CAROL), texts)) > 0, "the control: each finds his own"
        others = presented(built, CAROL, KIM, texts)
        assert (others.total(), others[Outcome.MATCHES.value]) == (TRIES, 0)
        assert presented(built, CAROL, CAROL, texts[:FEW]) == {Outcome.MATCHES.value: FEW}, "the control: it is his"
        assert {line["record_digest"] for line in built.forwarded()} == {short_digests.RECORD}, "the control: all collide"
        assert len({line["namespace_digest"] for line in built.forwarded()}) == 1


def test_the_control_whoever_trusts_the_digest_is_wrong(stack: Stack) -> None:
    texts = [client.prompt(TOKENS) for _ in range(FEW)]
    with gateways(stack, short_digests.trusting) as built:
        client.found(built.client(CAROL), texts)
        assert min(client.found(built.client(KIM), texts)) > 0
        assert presented(built, CAROL, KIM, texts) == {Outcome.MATCHES.value: FEW}
