from __future__ import annotations

import pytest

from cachescope.engines.routes import Dialect
from cachescope.gateway.bodies import BadBody, content_digest, parse_body
from cachescope.gateway.budget import ByteBudget
from cachescope.gateway.strict_json import MAX_PIECES


def test_nobody_takes_more_than_is_left_and_all_is_given_back() -> None:
    budget = ByteBudget(10)
    with budget.share() as first:
        assert first.take(6)
        with budget.share() as second:
            assert second.take(4)
            assert not second.take(1)
        assert first.take(4)
    assert budget.held == 0


def test_all_is_given_back_after_a_fault() -> None:
    budget = ByteBudget(10)

    def take_and_fail() -> None:
        with budget.share() as share:
            share.take(10)
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        take_and_fail()
    assert budget.held == 0


@pytest.mark.parametrize("piece", [b"[],", b"1,", b'{"":1},', b"[[1]],"])
def test_a_body_of_too_many_pieces_is_refused_before_it_is_parsed(piece: bytes) -> None:
    body = b'{"prompt": [' + piece * MAX_PIECES + b"1]}"
    with pytest.raises(BadBody, match="more than 200000 values"):
        parse_body(body)


def test_commas_in_a_text_are_no_pieces() -> None:
    text = ",:[{" * MAX_PIECES
    assert parse_body(b'{"prompt": "' + text.encode() + b'"}') == {"prompt": text}


def test_a_long_prompt_of_token_ids_passes() -> None:
    body = b'{"prompt": [' + b"1," * (MAX_PIECES - 10) + b"1]}"
    assert len(str(parse_body(body)["prompt"])) > MAX_PIECES


def test_many_fractions_are_refused_and_few_pass() -> None:
    assert content_digest(Dialect.CHAT, {"documents": [1.5] * 1000})
    with pytest.raises(BadBody, match="fractions"):
        content_digest(Dialect.CHAT, {"documents": [1.5] * 20_000})
