"""Requests served without a permit are zero: the engine's port, reached past the gateway."""

from __future__ import annotations

import secrets

import pytest

from cachescope.core.types import Digest
from e2e.stack.attacker import BODY, PATH, Insider

TRIES = 50
DOORS = ("/metrics", "/v1/models", "/version", "/load", "/docs", "/openapi.json", "/ping", "/invocations", "/tokenize", "//health")
OTHER = Digest("sha256:" + "f" * 64)


def test_nothing_is_served_without_a_permit(insider: Insider) -> None:
    assert [insider.post(BODY).status_code for _ in range(TRIES)] == [401] * TRIES
    assert insider.post(BODY, insider.permit(BODY)).status_code == 200


def test_a_permit_is_used_once(insider: Insider) -> None:
    permit = insider.permit(BODY)
    assert [insider.post(BODY, permit).status_code for _ in range(TRIES)] == [200] + [403] * (TRIES - 1)


def test_another_body_is_refused(insider: Insider) -> None:
    permits = [insider.permit(BODY) for _ in range(TRIES)]
    swapped = BODY.replace(b"hello", b"hullo")
    assert [insider.post(swapped, permit).status_code for permit in permits] == [403] * TRIES
    assert insider.post(BODY, permits[0]).status_code == 200


def test_a_forged_permit_is_refused(insider: Insider) -> None:
    head, mac = insider.permit(BODY).rsplit(".", 1)
    forged = [f"{head}.{secrets.token_urlsafe(len(mac) * 3 // 4)}" for _ in range(TRIES)]
    assert [insider.post(BODY, permit).status_code for permit in forged] == [401] * TRIES
    assert insider.post(BODY, f"{head}.{mac}").status_code == 200


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("pool_uid", "another-pool", 403),
        ("pod_uid", "another-pod", 403),
        ("boot_id", "0" * 32, 409),
        ("tick", 2**40, 403),
        ("tick", -10_000_000, 409),
        ("method", "GET", 403),
        ("path", "/v1/completions", 403),
        ("runtime_digest", OTHER, 409),
        ("lineage", "another", 409),
        ("sequence", 2**40, 409),
        ("authorization_lineage", "another", 409),
        ("authorization_sequence", 2**40, 409),
    ],
)
def test_a_permit_for_something_else_is_refused(insider: Insider, field: str, value: object, status: int) -> None:
    assert insider.post(BODY, insider.permit(BODY, **{field: value})).status_code == status
    assert insider.post(BODY, insider.permit(BODY)).status_code == 200


@pytest.mark.parametrize("path", [*DOORS, PATH + "/"])
def test_no_other_door_stands_open(insider: Insider, path: str) -> None:
    assert insider.post(BODY, path=path).status_code == 401
