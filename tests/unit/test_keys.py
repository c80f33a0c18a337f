"""Keys: one for each purpose, named by ids, and never shown."""

from __future__ import annotations

import itertools

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing, derive, handed_out, matches, passed_over, read_key
from cachescope.core.permits import permit_keys
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY


def test_every_purpose_context_root_and_id_derives_another_key() -> None:
    derived = [
        derive(root, purpose, *context).secret
        for root in (KEY, OTHER_KEY, NEWER_KEY)
        for purpose, context in itertools.product(
            ("permit", "salt", "permitsalt"), ((), ("",), ("a",), ("b",), ("a", "b"), ("ab",))
        )
    ]
    assert len(set(derived)) == len(derived) == 54
    assert all(len(secret) == 32 for secret in derived)


def test_a_purpose_and_its_context_do_not_run_together() -> None:
    assert derive(KEY, "permit", "a").secret != derive(KEY, "permita").secret


def test_pools_have_different_permit_keys_under_the_same_ids() -> None:
    root = KeyRing.of(KEY, NEWER_KEY)
    left, right = permit_keys(root, "left"), permit_keys(root, "right")
    assert left.current.id == right.current.id == NEWER_KEY.id
    assert set(left.others) == set(root.others)
    assert left.current.secret != right.current.secret


def test_the_greatest_id_is_current_and_the_others_verify() -> None:
    ring = KeyRing.of(NEWER_KEY, KEY)
    assert (ring.current, ring.find(KEY.id), ring.find("other")) == (NEWER_KEY, KEY, None)


@pytest.mark.parametrize(
    ("ids", "among", "behind", "latest"),
    [
        ({"k10"}, {"k9", "k10", "targets"}, "k10 is", "k9"),
        ({"2026-12-01"}, {"k20261130T091500Z", "2026-12-01", "targets"}, "2026-12-01 is", "k20261130T091500Z"),
        ({"K2"}, {"k1", "K2", "targets"}, "K2 is", "k1"),
        ({"k1", "k10"}, {"k1", "k9", "k10"}, "k1, k10 are", "k9"),
    ],
)
def test_a_key_whose_id_does_not_come_last_is_said_with_one_that_would(
    ids: set[str], among: set[str], behind: str, latest: str
) -> None:
    said = passed_over(ids, among)
    assert said.startswith(f"{behind} not in force")
    assert said.endswith(f"an id that comes after {latest}, such as {latest}-1")
    ring = KeyRing.of(*(Key(name, b"k" * 32) for name in {*among, f"{latest}-1"} - {"targets"}))
    assert ring.current.id == f"{latest}-1"


@pytest.mark.parametrize("ids", [{"k9"}, {"targets"}, set()])
def test_nothing_is_said_of_the_key_in_force(ids: set[str]) -> None:
    assert passed_over({*ids, "k10"}, {"k9", "k10", "targets"}), "control"
    assert passed_over(ids, {"k9", "k10", "targets"}) == ""
    assert passed_over({"targets"}, {"targets"}) == ""


def test_an_empty_ring_and_a_short_key_are_refused() -> None:
    with pytest.raises(SpecError, match="at least one key"):
        KeyRing.of()
    with pytest.raises(SpecError, match="has 31 bytes"):
        Key("k", b"k" * 31)


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "AB" * 32, "zz" * 32, "ab" * 31 + "\u00e9b"])
def test_a_text_that_is_no_key_is_refused_without_showing_it(text: str) -> None:
    assert read_key("k1", f" {'ab' * 32}\n") == Key("k1", b"\xab" * 32)
    with pytest.raises(SpecError, match="k1 does not hold 64 lower-case") as caught:
        read_key("k1", text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    ("oldest", "given", "ids"),
    [
        (None, (), "abc"),
        ("c", (), "abc"),
        ("b", (), "ab"),
        ("a", (), "a"),
        ("a", ("c",), "ac"),
        ("b", ("b", "x"), "ab"),
        ("", (), "abc"),
    ],
)
def test_guards_get_the_keys_that_every_gateway_has_and_keep_those_that_they_have(
    oldest: str | None, given: tuple[str, ...], ids: str
) -> None:
    ring = KeyRing.of(*(Key(name, name.encode() * 32) for name in "abc"))
    assert "".join(sorted(handed_out(ring, oldest=oldest, given=given).others)) == ids


def test_a_key_is_never_shown() -> None:
    secret = b"\xabsecret" + b"k" * 32
    shown = f"{Key('id', secret)!r} {Key('id', secret)} {KeyRing.of(Key('id', secret))!r}"
    assert "secret" not in shown.replace("secret=", "")
    assert "id" in shown


def test_macs_of_different_fields_do_not_match() -> None:
    assert matches(KEY.mac("a", "b"), KEY.mac("a", "b"))
    for other in (KEY.mac("ab"), KEY.mac("a", b"b"), OTHER_KEY.mac("a", "b")):
        assert not matches(KEY.mac("a", "b"), other)
