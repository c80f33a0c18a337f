"""Workloads on the whole path of real processes: by certificate through Envoy, and by tokens that the API server issued."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.stack import kubectl
from tests.integration import namespaces
from tests.integration.certificates import Authority
from tests.integration.operator_process import resource
from tests.integration.tls_client import CHAT, Client, chat_body, post
from tests.integration.whole_installation import AUDIENCE, TRUST_DOMAIN, Process, Whole, installed

RED, BLUE, NOBODY = (f"spiffe://{TRUST_DOMAIN}/{name}" for name in ("red", "blue", "nobody"))
APP, LEAVER, STRANGER = "app", "leaver", "stranger"
TIMES = 20
FORGED = (
    {"x-forwarded-client-cert": f"Hash=1;URI={RED}"},
    {"x-cachescope-peer": f"1 9999999999 {RED}"},
    {"cachescope.peer": f"1 9999999999 {RED}"},
    {"x-spiffe-id": RED, "x-client-cert": RED, "ssl-client-subject-dn": RED},
    {"forwarded": f"by={RED}", "x-tenant-id": "red"},
)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    with namespaces.made("whole") as name:
        yield name


@pytest.fixture(scope="module")
def running(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Whole, Process]]:
    with installed(namespace, tmp_path_factory.mktemp("whole")) as (whole, processor):
        for name in (APP, LEAVER, STRANGER):
            kubectl.run("create", "serviceaccount", name, namespace=namespace)
        whole.tenant("red", apiKeys=[{"secretName": "red"}], mtls=[{"spiffeId": RED}])
        whole.tenant("blue", mtls=[{"spiffeId": BLUE}], serviceAccounts=[{"name": APP}, {"name": LEAVER}])
        yield whole, processor


@pytest.fixture(scope="module")
def whole(running: tuple[Whole, Process]) -> Whole:
    found = running[0]
    for pair in (certificate(found, RED), certificate(found, BLUE)):
        found.until(lambda pair=pair: found.chat(client=Client(found.port, pair)).status == 200)
    return found


def certificate(whole: Whole, uri: str, authority: Authority | None = None, **changes: Any) -> Path:
    return (authority or whole.ours).issue(whole.folder / secrets.token_hex(4), [uri], **changes)


def workload(whole: Whole, uri: str) -> Client:
    return Client(whole.port, certificate(whole, uri))


def token(whole: Whole, account: str, *audiences: str, seconds: int = 3600) -> str:
    asked = [f"--audience={audience}" for audience in audiences]
    return kubectl.run("create", "token", account, f"--duration={seconds}s", *asked, namespace=whole.namespace).strip()


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def prompt() -> str:
    """A text of many words that nobody sent before."""
    return f"{secrets.token_hex(16)} once upon a midnight dreary " * 20


def verdict(whole: Whole, headers: dict[str, str], client: Client | None = None) -> str:
    """The status of an answer, and the code of its error."""
    found = whole.chat("hello", client, headers)
    return "200" if found.status == 200 else f"{found.status} {found.code}"


def test_a_certificate_is_its_tenants_and_no_other_tenant_meets_it(whole: Whole) -> None:
    red, blue = workload(whole, RED), workload(whole, BLUE)
    for text in (prompt() for _ in range(TIMES)):
        assert whole.chat(text, red).cached == 0
        assert whole.chat(text, blue).cached == 0
        assert whole.chat(text, red).cached > 0
        assert whole.chat(text).cached > 0, "the API key is the same tenant's"


def test_a_certificate_of_nobody_here_gets_nothing(whole: Whole) -> None:
    others, before = Authority.made("others"), len(whole.tap.requests)
    for _ in range(TIMES):
        assert verdict(whole, {}, workload(whole, NOBODY)) == "403 permission_denied"
        assert verdict(whole, {}, workload(whole, "spiffe://other/red")) == "401 invalid_api_key"
        assert verdict(whole, {}) == "401 invalid_api_key"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            whole.chat(client=Client(whole.port, certificate(whole, RED, others)))
    assert len(whole.tap.requests) == before
    assert verdict(whole, {}, workload(whole, RED)) == "200"
    assert len(whole.tap.requests) == before + 1


@pytest.mark.parametrize("headers", FORGED, ids=lambda item: next(iter(item)))
def test_no_header_is_a_certificate_nor_changes_one(whole: Whole, headers: dict[str, str]) -> None:
    red, blue, text = workload(whole, RED), workload(whole, BLUE), prompt()
    whole.chat(text, red)
    for _ in range(TIMES):
        assert verdict(whole, headers) == "401 invalid_api_key"
    assert whole.chat(text, blue, headers).cached == 0, "it is blue's request all the same"
    assert whole.chat(text, red, headers).cached > 0, "and red's is red's"
    seen = whole.tap.latest.headers
    assert not [name for name in headers if name in seen], "none of them reaches the engine"


def test_a_renewed_certificate_finds_what_the_one_before_left(whole: Whole) -> None:
    text = prompt()
    assert whole.chat(text, workload(whole, RED)).cached == 0
    assert whole.chat(text, workload(whole, RED)).cached > 0


def refused(whole: Whole, pair: Path) -> bool:
    try:
        return whole.chat(client=Client(whole.port, pair)).status != 200
    except (ssl.SSLError, ConnectionError):
        return True


def test_authorities_of_clients_are_replaced_without_a_restart(whole: Whole) -> None:
    theirs = Authority.made("theirs")
    old, new = certificate(whole, RED), certificate(whole, RED, theirs)
    assert refused(whole, new)
    whole.trust(whole.ours, theirs)
    whole.until(lambda: not refused(whole, new))
    assert not refused(whole, old), "both, while both are there"
    with closing(Client(whole.port, old).connected()) as lasting:
        assert post(lasting, CHAT, chat_body("hello"), {}).status == 200
        whole.trust(theirs)
        whole.until(lambda: refused(whole, old))
        assert not refused(whole, new)
        assert post(lasting, CHAT, chat_body("hello"), {}).status == 200, "a connection that there is goes on"
    whole.trust(whole.ours)
    whole.until(lambda: not refused(whole, old))
    assert refused(whole, new)


def presented(whole: Whole) -> bytes:
    """The certificate of the door."""
    return ssl.get_server_certificate(("127.0.0.1", whole.port)).encode()


def test_the_certificate_of_the_door_is_replaced_without_a_restart(whole: Whole) -> None:
    before = presented(whole)
    whole.open_door(whole.ours)
    whole.until(lambda: presented(whole) != before)
    assert whole.served()


def test_a_token_for_the_audience_is_its_service_accounts_tenant(whole: Whole) -> None:
    app, blue = bearer(token(whole, APP, AUDIENCE)), workload(whole, BLUE)
    whole.until(lambda: verdict(whole, app) == "200")
    for text in (prompt() for _ in range(TIMES)):
        assert whole.chat(text, headers=app).cached == 0
        assert whole.chat(text).cached == 0, "red's"
        assert whole.chat(text, headers=app).cached > 0
        assert whole.chat(text, blue).cached > 0, "the certificate is the same tenant's"


def test_a_token_that_is_not_for_this_service_alone_or_of_nobody_here_is_refused(whole: Whole) -> None:
    bad = [token(whole, APP), token(whole, APP, "other"), token(whole, APP, AUDIENCE, "other"), lasting_token(whole, APP)]
    stranger = token(whole, STRANGER, AUDIENCE)
    for _ in range(TIMES):
        assert [verdict(whole, bearer(text)) for text in bad] == ["401 invalid_api_key"] * len(bad)
        assert verdict(whole, bearer(stranger)) == "403 permission_denied"
    assert verdict(whole, bearer(token(whole, APP, AUDIENCE))) == "200"


def lasting_token(whole: Whole, account: str) -> str:
    """A token without an end, as the token controller writes it into a Secret."""
    metadata = {"name": "lasting", "annotations": {"kubernetes.io/service-account.name": account}}
    whole.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/service-account-token"})
    whole.until(lambda: "token" in (whole.get("secret", "lasting").get("data") or {}))
    return base64.b64decode(whole.get("secret", "lasting")["data"]["token"]).decode()


def test_a_token_that_another_key_signed_is_refused_whatever_it_says(whole: Whole) -> None:
    real = token(whole, APP, AUDIENCE)
    header, claims = jwt.get_unverified_header(real), jwt.decode(real, options={"verify_signature": False})
    another = rsa.generate_private_key(65537, 2048)
    kid, algorithm = {"kid": header["kid"]}, header["alg"]
    forged = [
        jwt.encode(claims, another, "RS256", headers=kid),
        jwt.encode(claims, another, "RS256", headers={"kid": "another"}),
        jwt.encode(claims, another, "RS256"),
        jwt.encode(claims, "", "none", headers=kid),
        jwt.encode(claims, json.dumps(header).encode(), "HS256", headers=kid),
        f"{real.rpartition('.')[0]}.{'A' * len(real.rpartition('.')[2])}",
    ]
    assert algorithm == "RS256"
    for text in forged:
        for _ in range(TIMES):
            assert verdict(whole, bearer(text)) == "401 invalid_api_key"
    assert verdict(whole, bearer(real)) == "200"


@contextmanager
def later(whole: Whole, processor: Process) -> Iterator[None]:
    """A quarter of an hour later, as far as the gateway knows: the API server issues no token for less than ten minutes."""
    other = whole.processor(ahead=900)
    processor.stop()
    other.start()
    try:
        whole.until(whole.served)
        yield
    finally:
        other.stop()
        processor.start()
        whole.until(whole.served)


def test_what_has_ended_is_refused_also_on_a_connection_that_lasts(whole: Whole, running: tuple[Whole, Process]) -> None:
    ending, lasting = (Client(whole.port, certificate(whole, RED, ends=timedelta(minutes=minutes))) for minutes in (10, 60))
    short, long = (bearer(token(whole, APP, AUDIENCE, seconds=seconds)) for seconds in (600, 3600))
    open_since, also = ending.connected(), lasting.connected()
    with closing(open_since), closing(also):
        for good in (open_since, also):
            assert post(good, CHAT, chat_body("hello"), {}).status == 200
        assert [verdict(whole, headers) for headers in (short, long)] == ["200", "200"]
        with later(whole, running[1]):
            whole.until(lambda: verdict(whole, long) == "200")
            for _ in range(TIMES):
                assert verdict(whole, short) == "401 invalid_api_key"
                assert verdict(whole, {}, ending) == "401 invalid_api_key"
                assert post(open_since, CHAT, chat_body("hello"), {}).status == 401
            assert post(also, CHAT, chat_body("hello"), {}).status == 200
            assert verdict(whole, long) == "200"


def test_a_deleted_service_accounts_token_is_good_until_it_ends_or_is_revoked(whole: Whole) -> None:
    leaver = bearer(token(whole, LEAVER, AUDIENCE))
    kubectl.run("delete", "serviceaccount", LEAVER, namespace=whole.namespace)
    assert verdict(whole, leaver) == "200", "it is verified offline, as documented"
    principal = {"kind": "service-account", "subject": f"system:serviceaccount:{whole.namespace}:{LEAVER}"}
    target = {"kind": "Principal", "name": "blue", "principal": principal}
    whole.apply(resource("CacheEpoch", "leaver", {"target": target, "incident": {"id": "i-1", "reason": "he left"}, "deny": True}))
    whole.until(lambda: verdict(whole, leaver) == "403 revoked")
    for _ in range(TIMES):
        assert verdict(whole, leaver) == "403 revoked"
    assert verdict(whole, bearer(token(whole, APP, AUDIENCE))) == "200"
    assert verdict(whole, {}, workload(whole, BLUE)) == "200"


def test_nothing_reached_the_engine_without_a_permit(whole: Whole) -> None:
    assert whole.tap.requests
    assert whole.tap.without_permit == []
