"""Key sets: which published keys may verify, and what happens when the publisher is wrong or gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from jwt.algorithms import ECAlgorithm, OKPAlgorithm
from jwt.utils import to_base64url_uint

from cachescope.core.errors import SpecError
from cachescope.gateway.identity.credentials import KeysUnavailable
from cachescope.gateway.identity.jwks import MAX_RSA_BITS, KeyTable, NoUsableKeys, PublicKey, parse_jwks
from cachescope.gateway.identity.jwks_sources import FileKeySet, UrlKeySet, http_fetch, key_session
from tests.unit.jwt_issuer import document, ec_key, jwk, rsa_key

GOOD = jwk(ec_key("one"), kid="one")
LONG_MODULUS = to_base64url_uint((1 << MAX_RSA_BITS) + 1).decode()


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def numbers(key: PublicKey | None) -> object:
    assert key is not None
    return key.public_numbers()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param({"kty": "oct", "k": "c2VjcmV0", "kid": "x", "alg": "HS256"}, "symmetric", id="symmetric"),
        pytest.param(json.loads(ECAlgorithm.to_jwk(ec_key("leaked"))) | {"kid": "x"}, "private", id="private key published"),
        pytest.param(GOOD | {"use": "enc", "kid": "x"}, "use", id="for encryption"),
        pytest.param(GOOD | {"key_ops": ["sign"], "kid": "x"}, "use", id="for signing only"),
        pytest.param(jwk(rsa_key("weak", 1024), kid="x"), "weak", id="RSA of 1024 bits"),
        pytest.param(jwk(rsa_key(), kid="x") | {"n": LONG_MODULUS}, "unsupported", id="RSA of more bits than anybody needs"),
        pytest.param(GOOD | {"alg": "ES384", "kid": "x"}, "unsupported", id="algorithm of another curve"),
        pytest.param(GOOD | {"alg": "HS256", "kid": "x"}, "unsupported", id="symmetric algorithm on a public key"),
        pytest.param(GOOD | {"alg": ["ES256"], "kid": "x"}, "unsupported", id="a list of algorithms"),
        pytest.param(GOOD | {"crv": "P-384", "kid": "x"}, "malformed", id="wrong curve"),
        pytest.param(GOOD | {"x": GOOD["y"], "kid": "x"}, "malformed", id="point off the curve"),
        pytest.param({"kty": "RSA", "n": 5, "e": [], "kid": "x"}, "malformed", id="numbers that are none"),
        pytest.param({"kty": "XYZ", "kid": "x"}, "unsupported", id="unknown type"),
        pytest.param({"kty": ["EC"], "kid": "x"}, "unsupported", id="type that is no text"),
        pytest.param({"kid": "x"}, "unsupported", id="no type"),
        pytest.param(GOOD | {"kid": 7}, "malformed", id="kid that is no text"),
        pytest.param("key", "malformed", id="no object"),
    ],
)
def test_a_key_that_may_not_verify_is_ignored_and_counted(entry: dict[str, object], reason: str) -> None:
    table = parse_jwks(document(GOOD, entry))
    assert table.ignored == {reason: 1}
    assert table.find("one", "ES256") is not None
    assert table.find("x", "ES256") is None
    with pytest.raises(NoUsableKeys):
        parse_jwks(document(entry))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [], "keys": []}',
        b"\xff\xfe",
        b"<html>" * 10,
        b" " * (2**20 + 1),
        b'{"keys": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_a_document_without_keys_is_no_key_set(content: bytes) -> None:
    with pytest.raises(NoUsableKeys):
        parse_jwks(content)


def test_a_key_verifies_only_the_algorithms_of_its_type() -> None:
    p384 = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key()))
    edwards = json.loads(OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key()))
    table = parse_jwks(document(jwk(rsa_key(), kid="r"), GOOD, p384 | {"kid": "p"}, edwards | {"kid": "e"}))
    found = {
        (kid, algorithm)
        for kid in ("r", "one", "p", "e")
        for algorithm in ("RS256", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "none", "")
        if table.find(kid, algorithm)
    }
    assert found == {("r", "RS256"), ("r", "PS512"), ("one", "ES256"), ("p", "ES384"), ("e", "EdDSA")}


def test_a_key_id_is_needed_as_soon_as_two_keys_could_be_meant() -> None:
    one = parse_jwks(document(GOOD, jwk(rsa_key(), kid="r")))
    two = parse_jwks(document(GOOD, jwk(ec_key("two"), kid="two")))
    assert one.find(None, "ES256") is not None
    assert two.find(None, "ES256") is None
    assert two.find("two", "ES256") is not None


def test_a_key_id_that_two_keys_claim_finds_neither() -> None:
    assert parse_jwks(document(GOOD)).find("one", "ES256") is not None
    assert parse_jwks(document(GOOD, jwk(ec_key("two"), kid="one"))).find("one", "ES256") is None


async def test_a_file_is_read_again_when_its_content_changes(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "jwks.json"
    path.write_bytes(document(GOOD))
    keys = FileKeySet(path, clock)
    before = keys.revision
    assert await keys.find("one", "ES256") is not None
    path.write_bytes(document(jwk(ec_key("two"), kid="one")))
    clock.seconds += 1
    assert numbers(await keys.find("one", "ES256")) == ec_key("two").public_key().public_numbers()
    assert keys.revision > before
    assert keys.problem is None


async def test_an_unknown_key_id_reads_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(document(GOOD))
    keys = FileKeySet(path, Clock())
    assert await keys.find("two", "ES256") is None
    path.write_bytes(document(GOOD, jwk(ec_key("two"), kid="two")))
    assert await keys.find("two", "ES256") is not None


@pytest.mark.parametrize("broken", [b"", b'{"keys": []}', b"not json", None])
async def test_a_file_that_breaks_keeps_the_last_good_set_and_says_so(tmp_path: Path, broken: bytes | None) -> None:
    clock, path = Clock(), tmp_path / "jwks.json"
    path.write_bytes(document(GOOD))
    keys = FileKeySet(path, clock)
    assert keys.problem is None
    if broken is None:
        path.unlink()
    else:
        path.write_bytes(broken)
    clock.seconds += 1
    assert await keys.find("one", "ES256") is not None
    assert keys.problem is not None
    path.write_bytes(document(GOOD))
    clock.seconds += 1
    assert keys.problem is None


async def test_a_file_that_was_never_good_has_no_keys(tmp_path: Path) -> None:
    keys = FileKeySet(tmp_path / "absent.json", Clock())
    assert keys.problem is not None
    with pytest.raises(KeysUnavailable):
        await keys.find("one", "ES256")


class Publisher:
    """A URL whose answer a test sets; `None` is an outage."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.asked = 0

    async def __call__(self) -> bytes:
        self.asked += 1
        if self.content is None:
            raise TimeoutError("no answer within 5 s")
        return self.content


def url_keys(content: bytes | None) -> tuple[UrlKeySet, Publisher, Clock]:
    publisher, clock = Publisher(content), Clock()
    return UrlKeySet(publisher, clock, source="test"), publisher, clock


async def test_an_unknown_key_id_fetches_at_most_every_ten_seconds() -> None:
    keys, publisher, clock = url_keys(document(GOOD))
    assert await keys.find("one", "ES256") is not None
    for _ in range(50):
        assert await keys.find("../../etc/passwd", "ES256") is None
    assert publisher.asked == 1
    publisher.content = document(GOOD, jwk(ec_key("two"), kid="two"))
    assert await keys.find("two", "ES256") is None
    clock.seconds += 10
    assert await keys.find("two", "ES256") is not None
    assert publisher.asked == 2


async def test_an_outage_is_bridged_until_the_keys_are_too_old() -> None:
    keys, publisher, clock = url_keys(document(GOOD))
    await keys.refresh()
    publisher.content = None
    clock.seconds += 3600
    await keys.refresh()
    assert keys.problem is not None
    assert keys.revision >= 0
    assert await keys.find("one", "ES256") is not None
    clock.seconds += 1
    assert keys.revision == -1
    with pytest.raises(KeysUnavailable):
        await keys.find("one", "ES256")
    publisher.content = document(GOOD)
    clock.seconds += 10
    assert await keys.find("one", "ES256") is not None
    assert keys.problem is None


@pytest.mark.parametrize("broken", [b'{"keys": []}', b"<html>", b""])
async def test_an_emptied_set_keeps_the_last_good_one_and_says_so(broken: bytes) -> None:
    keys, publisher, _ = url_keys(document(GOOD))
    await keys.refresh()
    publisher.content = broken
    await keys.refresh()
    assert keys.problem is not None
    assert await keys.find("one", "ES256") is not None


async def test_a_set_that_was_never_fetched_refuses() -> None:
    keys, publisher, _ = url_keys(None)
    assert keys.problem is not None
    for _ in range(5):
        with pytest.raises(KeysUnavailable):
            await keys.find("one", "ES256")
    assert publisher.asked == 1


async def test_a_rotated_set_changes_the_revision_and_an_equal_one_does_not() -> None:
    keys, publisher, _ = url_keys(document(GOOD))
    await keys.refresh()
    before = keys.revision
    publisher.content = document(GOOD) + b"\n"
    await keys.refresh()
    assert keys.revision == before
    publisher.content = document(jwk(ec_key("two"), kid="one"))
    await keys.refresh()
    assert keys.revision > before


@pytest.mark.parametrize(
    "url", ["http://keys.example/jwks", "file:///etc/passwd", "https://", "https://user:pass@keys.example/", "//keys.example/", ""]
)
async def test_only_absolute_https_addresses_are_taken(url: str) -> None:
    async with key_session() as session:
        assert callable(http_fetch(session, "https://keys.example/jwks"))
        with pytest.raises(SpecError):
            http_fetch(session, url)


def test_an_empty_table_finds_nothing() -> None:
    assert KeyTable(()).find(None, "ES256") is None
