"""SPIFFE ids have one spelling, and so do the subjects of ServiceAccounts; what is no such name is refused and never mended."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.errors import SpecError
from cachescope.core.service_accounts import ServiceAccount, read_subject
from cachescope.core.spiffe import MAX_BYTES, PATTERN, SpiffeId, read_spiffe_id

GOOD = "spiffe://corp.example/ns/a/sa/b"
LONGEST = "spiffe://corp/" + "a" * (MAX_BYTES - len("spiffe://corp/"))

segments = st.text("abzAZ09._-", min_size=1, max_size=8).filter(lambda text: text not in {".", ".."})
domains = st.text("abz09._-", min_size=1, max_size=12)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "spiffe://a/b",
        "spiffe://1.2.3.4/x",
        "spiffe://a_b-c/..x/...",
        "spiffe://a/x..",
        "spiffe://" + "a" * 255 + "/x",
        LONGEST,
    ],
)
def test_an_id_is_read_as_it_is_written(text: str) -> None:
    assert str(read_spiffe_id(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("spiffe://corp", id="a trust domain alone"),
        pytest.param("spiffe://corp/", id="an empty path"),
        pytest.param("spiffe:///a", id="no trust domain"),
        pytest.param("spiffe:corp/a", id="no authority"),
        pytest.param("SPIFFE://corp/a", id="a scheme in capitals"),
        pytest.param("https://corp/a", id="another scheme"),
        pytest.param("spiffe://Corp/a", id="a trust domain in capitals"),
        pytest.param("spiffe://corp:443/a", id="a port"),
        pytest.param("spiffe://me@corp/a", id="a user"),
        pytest.param("spiffe://corp/a/", id="a slash at the end"),
        pytest.param("spiffe://corp//a", id="an empty segment"),
        pytest.param("spiffe://corp/./a", id="a dot"),
        pytest.param("spiffe://corp/a/..", id="two dots at the end"),
        pytest.param("spiffe://corp/../a", id="two dots"),
        pytest.param("spiffe://corp/a?b", id="a query"),
        pytest.param("spiffe://corp/a#b", id="a fragment"),
        pytest.param("spiffe://corp/%61", id="percent-encoding"),
        pytest.param("spiffe://corp/a b", id="a blank"),
        pytest.param("spiffe://corp/ä", id="not ASCII"),
        pytest.param("spiffe://corp/a,spiffe://corp/b", id="two, joined by a comma"),
        pytest.param(f"{GOOD}\n", id="a line end"),
        pytest.param(f" {GOOD}", id="a blank before"),
        pytest.param("spiffe://" + "a" * 256 + "/x", id="a trust domain of 256 bytes"),
        pytest.param(f"{LONGEST}a", id="2,049 bytes"),
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    assert read_spiffe_id(GOOD)
    with pytest.raises(SpecError, match="no SPIFFE id"):
        read_spiffe_id(text)


@given(domains, st.lists(segments, min_size=1, max_size=5))
def test_every_id_that_the_standard_allows_is_read_and_written_alike(domain: str, path: list[str]) -> None:
    found = read_spiffe_id(f"spiffe://{domain}/{'/'.join(path)}")
    assert found == SpiffeId(domain, "/" + "/".join(path))
    assert read_spiffe_id(str(found)) == found


@given(st.text() | st.from_regex(rf"\A{PATTERN}\Z") | st.builds("{}{}".format, st.just(GOOD), st.text(max_size=3)))
def test_whatever_is_read_keeps_every_rule(text: str) -> None:
    """Said in another way than by the pattern: no text that is read needs to be normalized."""
    try:
        found = read_spiffe_id(text)
    except SpecError:
        return
    scheme, empty, domain, *path = text.split("/")
    assert (scheme, empty, domain) == ("spiffe:", "", found.trust_domain)
    assert path
    assert not {"", ".", ".."} & set(path)
    assert text.isascii()
    assert not re.search(r"[^A-Za-z0-9._/-]", text.removeprefix("spiffe:"))
    assert domain == domain.lower()
    assert max(len(text) - MAX_BYTES, len(domain) - 255) <= 0


def test_the_subject_of_a_service_account_reads_in_one_way() -> None:
    account = ServiceAccount("jobs", "nightly.batch")
    assert account.subject == "system:serviceaccount:jobs:nightly.batch"
    assert read_subject(account.subject) == account


@pytest.mark.parametrize(
    "text",
    [
        "",
        "jobs:nightly",
        "system:serviceaccount:jobs",
        "system:serviceaccount::nightly",
        "system:serviceaccount:jobs:",
        "system:serviceaccount:jobs:nightly:more",
        "system:serviceaccount:a.b:nightly",
        "system:serviceaccount:Jobs:nightly",
        "system:serviceaccount:jobs:nightly\n",
        "system:serviceaccount:jobs:../nightly",
        "system:node:jobs:nightly",
        "system:serviceaccount:" + "a" * 64 + ":nightly",
        "system:serviceaccount:jobs:" + "a" * 254,
    ],
)
def test_what_names_no_service_account_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="names no ServiceAccount"):
        read_subject(text)
