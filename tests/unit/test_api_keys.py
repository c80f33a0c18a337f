"""API keys: only the exact text of a key opens its tenant's door."""

from __future__ import annotations

import hmac
import re
from dataclasses import replace

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.scopes import Credential
from cachescope.gateway.identity.api_keys import ApiKeyEntry, ApiKeys, hash_key, make_key, parse
from cachescope.gateway.identity.credentials import Identity, Unauthenticated

RED = make_key(bytes(range(32)), "red/ci")
BLUE = make_key(bytes(range(1, 33)), "blue/ci")
ENTRY = ApiKeyEntry(RED.hash, "uid-red", "ci", "red/ci")
ENTRIES = {RED.key_id: [ENTRY], BLUE.key_id: [ApiKeyEntry(BLUE.hash, "uid-blue", "ci", "blue/ci")]}
RED_ID, RED_SECRET = parse(RED.token)
BLUE_ID, BLUE_SECRET = parse(BLUE.token)


@pytest.fixture(scope="module")
def keys() -> ApiKeys:
    return ApiKeys(ENTRIES)


def test_a_key_opens_its_own_tenant(keys: ApiKeys) -> None:
    assert keys.authenticate(RED.token) == Identity("uid-red", Credential("api-key", "", "ci"))
    assert keys.authenticate(BLUE.token) == Identity("uid-blue", Credential("api-key", "", "ci"))


@pytest.mark.parametrize("created", [None, 1_700_000_000])
def test_an_identity_says_which_key_it_was_and_when_that_was_made(created: int | None) -> None:
    found = ApiKeys({RED.key_id: [replace(ENTRY, created=created)]}).authenticate(RED.token)
    assert (found.issued_at, found.key_id) == (created, RED.key_id)
    assert found == Identity("uid-red", Credential("api-key", "", "ci")), "what is remembered of a principal serves all of its keys"


def test_a_made_key_has_256_random_bits_and_the_documented_form() -> None:
    assert re.fullmatch(r"cs-[0-9a-f]{16}\.[A-Za-z0-9_-]{43}", RED.token)
    assert RED.hash == hash_key(RED_ID, RED_SECRET, "red/ci")
    assert RED_SECRET not in RED.hash
    assert make_key(bytes(range(32)), "red/ci") == RED
    with pytest.raises(ValueError, match="32 random bytes, not 16"):
        make_key(bytes(16), "red/ci")


def test_the_stored_hash_of_a_key_is_stable() -> None:
    expected = "sha256:32a47e30b66759b0be65932e79ba7a6bb9aae28d331d345d7a8ebdb31e6b3e90"
    assert hash_key("abcdefgh", "A" * 22, "team/keys") == expected, "published format: stored hashes of deployed keys depend on it"


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(f"cs-{BLUE_ID}.{RED_SECRET}", id="another tenant's key id with the own secret"),
        pytest.param(f"cs-{'0' * 16}.{RED_SECRET}", id="unknown key id"),
        pytest.param(f"cs-{RED_ID}.{RED_SECRET[:-1]}", id="secret cut short"),
        pytest.param(f"cs-{RED_ID}.{RED_SECRET}A", id="secret made longer"),
        pytest.param(f"cs-{RED_ID}.{RED_SECRET}=", id="padding added"),
        pytest.param(f"cs-{RED_ID}.{RED_SECRET[:-1]}9", id="other spare bits in the last character, same bytes"),
        pytest.param(f"cs-{RED_ID}.{RED_SECRET.swapcase()}", id="case of the secret"),
        pytest.param(f"cs-{RED_ID.upper()}.{RED_SECRET}", id="case of the key id"),
        pytest.param(f"CS-{RED_ID}.{RED_SECRET}", id="case of the prefix"),
        pytest.param(f"cs-{RED_ID}.{RED_SECRET}\n", id="line end"),
        pytest.param(f" cs-{RED_ID}.{RED_SECRET}", id="leading blank"),
        pytest.param(f"cs-{RED_ID}..{RED_SECRET}", id="two dots"),
        pytest.param(f"cs-{RED_ID}{RED_SECRET}", id="no dot"),
        pytest.param(f"cs-{RED_ID}.", id="no secret"),
        pytest.param(f"cs-.{RED_SECRET}", id="no key id"),
        pytest.param(f"cs-{RED_ID}.{RED.hash}", id="the stored hash as the secret"),
        pytest.param(f"cs-{RED_ID}.{RED.hash[7:]}", id="the digits of the stored hash as the secret"),
        pytest.param(f"cs-{RED_ID}.{'é' * 43}", id="not ASCII"),
        pytest.param("cs-" + "a" * 100_000, id="huge"),
    ],
)
def test_no_other_text_opens_a_door(keys: ApiKeys, token: str) -> None:
    assert keys.authenticate(RED.token).tenant_uid == "uid-red"
    with pytest.raises(Unauthenticated) as refused:
        keys.authenticate(token)
    assert RED_SECRET[:8] not in str(refused.value)


def test_an_unknown_key_id_costs_a_comparison_too(keys: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with pytest.raises(Unauthenticated):
        keys.authenticate(f"cs-{'0' * 16}.{RED_SECRET}")
    assert keys.authenticate(RED.token)
    assert [len(right) for _, right in compared] == [71, 71]


@pytest.mark.parametrize(
    ("key_id", "entry"),
    [
        ("short", ENTRY),
        ("UPPERCASE1", ENTRY),
        (RED_ID, replace(ENTRY, hash="sha256:abc")),
        (RED_ID, replace(ENTRY, hash=RED.hash.upper())),
        (RED_ID, replace(ENTRY, hash=RED.token)),
        (RED_ID, replace(ENTRY, tenant_uid="")),
        (RED_ID, replace(ENTRY, principal="")),
    ],
)
def test_an_entry_that_could_match_nobody_is_refused_when_it_is_loaded(key_id: str, entry: ApiKeyEntry) -> None:
    assert ApiKeys(ENTRIES)
    with pytest.raises(SpecError):
        ApiKeys({key_id: [entry]})


@pytest.mark.parametrize("order", [1, -1])
def test_a_hash_that_was_copied_to_another_secret_is_worth_nothing_and_takes_nothing(order: int) -> None:
    thief = ApiKeyEntry(RED.hash, "uid-thief", "thief", "thief/ci")
    with pytest.raises(Unauthenticated):
        ApiKeys({RED_ID: [thief]}).authenticate(RED.token)
    assert ApiKeys({RED_ID: [ENTRY, thief][::order]}).authenticate(RED.token).tenant_uid == "uid-red"


def test_two_secrets_with_one_key_id_hold_two_keys(keys: ApiKeys) -> None:
    other = "B" * 43
    both = ApiKeys({RED_ID: [ApiKeyEntry(hash_key(RED_ID, other, "blue/x"), "uid-blue", "ci", "blue/x"), ENTRY]})
    assert both.authenticate(RED.token) == keys.authenticate(RED.token)
    assert both.authenticate(f"cs-{RED_ID}.{other}").tenant_uid == "uid-blue"
