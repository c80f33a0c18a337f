"""The headers of clients: read strictly, each at most once, and never quoted back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cachescope.core.classes import Context, DataClass, NamedSource
from cachescope.gateway.context import MAX_BYTES, BadHeader, Said, said
from cachescope.gateway.envoy import _UNTRUSTED_OURS
from cachescope.gateway.exchange import RequestHead
from tests.unit.core_strategies import digest_of

CONTEXT, COMPARTMENT = "x-cachescope-context", "x-cachescope-compartment"
DIGEST = digest_of("1")


def head(*headers: tuple[str, str]) -> RequestHead:
    return RequestHead("POST", "/", headers)


def read(**fields: Any) -> Context | None:
    return said(head((CONTEXT, json.dumps(fields)))).context


def test_a_request_that_says_nothing_says_nothing() -> None:
    assert said(head(("accept", "*/*"))) == Said()


def test_all_that_may_be_said_is_read() -> None:
    sources = [{"id": "terms"}, {"id": "memory", "epoch": 3}]
    assert read(dataClass="public", sources=sources, promptBundle=DIGEST, toolset=DIGEST) == Context(
        DataClass.PUBLIC, (NamedSource("terms"), NamedSource("memory", 3)), DIGEST, DIGEST
    )
    assert read() == Context()
    assert said(head((COMPARTMENT, "matter 1"))).compartment == "matter 1"


@pytest.mark.parametrize("data", DataClass)
def test_every_data_class_has_its_name(data: DataClass) -> None:
    assert read(dataClass=data.value) == Context(data)


WRONG: dict[str, tuple[str, str]] = {
    "no JSON": ("public", "is not JSON"),
    "a list": ("[]", "is not a JSON object"),
    "a name twice": ('{"dataClass":"public","dataClass":"secret"}', "twice"),
    "too long": (json.dumps({"dataClass": "x" * MAX_BYTES}), "longer than 8192"),
    "not ASCII": ('{"dataClass":"\N{REPLACEMENT CHARACTER}"}', "not ASCII"),
    "an unknown field": ('{"dataclass":"secret"}', "dataclass is not known"),
    "an unknown data class": ('{"dataClass":"Public"}', "dataClass is none of"),
    "no data class": ('{"dataClass":null}', "dataClass is none of"),
    "sources of another kind": ('{"sources":{}}', "not a list"),
    "too many sources": (json.dumps({"sources": [{"id": str(number)} for number in range(65)]}), "at most 64"),
    "a source of another kind": ('{"sources":["a"]}', "sources[0] is not an object"),
    "a source without id": ('{"sources":[{"epoch":1}]}', "sources[0].id"),
    "a source with a long id": (json.dumps({"sources": [{"id": "a" * 254}]}), "sources[0].id"),
    "a source twice": ('{"sources":[{"id":"a"},{"id":"a","epoch":1}]}', "twice"),
    "an unknown field of a source": ('{"sources":[{"id":"a","digest":"b"}]}', "sources[0].digest is not known"),
    "a negative epoch": ('{"sources":[{"id":"a","epoch":-1}]}', "sources[0].epoch"),
    "an epoch that is true": ('{"sources":[{"id":"a","epoch":true}]}', "sources[0].epoch"),
    "an epoch with a fraction": ('{"sources":[{"id":"a","epoch":1.0}]}', "sources[0].epoch"),
    "a bundle that is no digest": ('{"promptBundle":"v1"}', "promptBundle is not"),
    "a toolset that is no digest": ('{"toolset":7}', "toolset is not"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_understood_is_refused(case: str) -> None:
    text, message = WRONG[case]
    with pytest.raises(BadHeader, match=re.escape(message)):
        said(head((CONTEXT, text)))


@pytest.mark.parametrize("name", ["contxt", "contexts", "compartement", "compartment-", "co", "handel", "h"])
def test_a_header_whose_name_is_almost_ours_is_refused_and_not_passed_over(name: str) -> None:
    assert not re.fullmatch(_UNTRUSTED_OURS, f"x-cachescope-{name}"), "Envoy lets it through"
    with pytest.raises(BadHeader, match="none of x-cachescope-compartment, x-cachescope-context, x-cachescope-handle"):
        said(head((f"x-cachescope-{name}", "m1")))


@pytest.mark.parametrize("name", [CONTEXT, COMPARTMENT])
def test_a_header_that_repeats_is_refused_also_with_the_same_value(name: str) -> None:
    assert said(head((name, "{}"))) != Said()
    with pytest.raises(BadHeader, match="more than once"):
        said(head((name, "{}"), (name, "{}")))


@pytest.mark.parametrize(
    ("value", "message"), [("", "empty"), ("m" * 254, "longer than 253"), ("\N{REPLACEMENT CHARACTER}", "ASCII")]
)
def test_a_compartment_that_nobody_can_have_is_refused(value: str, message: str) -> None:
    with pytest.raises(BadHeader, match=message):
        said(head((COMPARTMENT, value)))


def test_no_refusal_quotes_a_value() -> None:
    for text in (
        '{"dataClass":"canary"}',
        '{"promptBundle":"canary"}',
        '{"sources":[{"id":"a","epoch":"canary"}]}',
        '{"a":canary}',
    ):
        with pytest.raises(BadHeader) as caught:
            said(head((CONTEXT, text)))
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "c", "permit", "challenge", "statement", "body-length", "scope", "x", "chandle"])
def test_envoy_removes_what_is_ours_and_nobodys_to_say(name: str) -> None:
    assert re.fullmatch(_UNTRUSTED_OURS, f"x-cachescope-{name}")


@pytest.mark.parametrize("name", ["compartment", "context", "handle"])
def test_envoy_lets_through_what_clients_say(name: str) -> None:
    assert not re.fullmatch(_UNTRUSTED_OURS, f"x-cachescope-{name}")
