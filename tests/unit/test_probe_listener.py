"""Envoy's door for the operator's probe: one of its own, without certificates, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.core.probes import SCHEME, Pair, Prober, write_credential
from cachescope.gateway.envoy import EnvoySettings, bootstrap
from tests.unit.core_strategies import KEY

TLS = {"secret_file": "/tls.json", "authorities_file": "/ca.json"}


def listeners(**settings: Any) -> dict[str, dict[str, Any]]:
    found = bootstrap(EnvoySettings(processor_socket="/p", **settings))["static_resources"]["listeners"]
    return {item["name"]: item for item in found}


def port(listener: dict[str, Any]) -> int:
    return int(listener["address"]["socket_address"]["port_value"])


def http(listener: dict[str, Any]) -> dict[str, Any]:
    (chain,) = listener["filter_chains"]
    found: dict[str, Any] = chain["filters"][0]["typed_config"]
    return found


def routes(listener: dict[str, Any]) -> list[dict[str, Any]]:
    (host,) = http(listener)["route_config"]["virtual_hosts"]
    return list(host["routes"])


def test_without_a_port_there_is_no_door_but_the_clients() -> None:
    assert list(listeners()) == list(listeners(probe_port=0)) == ["clients"]
    found = listeners(probe_port=8082)
    assert {name: port(item) for name, item in found.items()} == {"clients": 8080, "probes": 8082}


@pytest.mark.parametrize("tls", [{}, {"secret_file": "/tls.json"}, TLS], ids=["plain", "tls", "certificates of clients"])
def test_the_clients_door_is_as_it_was(tls: dict[str, str]) -> None:
    assert listeners(**tls, probe_port=8082)["clients"] == listeners(**tls)["clients"]


def test_the_door_asks_for_no_certificate_and_knows_of_none() -> None:
    found = listeners(**TLS, probe_port=8082)
    for word in ("transport_socket", "validation_context", "set_filter_state", "filter_state"):
        assert word in str(found["clients"])
        assert word not in str(found["probes"])
    assert http(found["probes"])["http_filters"] == http(listeners()["clients"])["http_filters"], "and decides the same"


def test_who_shows_no_credential_of_the_probe_meets_nothing() -> None:
    found = listeners(probe_port=8082)
    first, *rest = routes(found["probes"])
    (shown,) = first["match"]["headers"]
    assert (first["match"]["prefix"], first["direct_response"], "route" in first) == ("/", {"status": 404}, False)
    assert (shown["name"], shown["invert_match"]) == ("authorization", True)
    assert "ExtProcPerRoute" in str(first["typed_per_filter_config"]), "nobody decides for him"
    prefix = shown["string_match"]["prefix"]
    assert write_credential(KEY, Prober("pool", "boot", Pair.CASE, 0), until=1).startswith(prefix)
    assert not f"Bearer {SCHEME} ".startswith(prefix)
    assert rest == routes(found["clients"]), "whoever does is decided as everybody is"


def test_what_an_address_may_send_is_bounded_alike() -> None:
    found = listeners(probe_port=8082)
    own = {"stat_prefix", "route_config"}
    clients, probes = (http(found[name]) for name in ("clients", "probes"))
    assert {name: value for name, value in probes.items() if name not in own} == {
        name: value for name, value in clients.items() if name not in own
    }
    assert found["probes"]["per_connection_buffer_limit_bytes"] == found["clients"]["per_connection_buffer_limit_bytes"]
    assert clients["stat_prefix"] != probes["stat_prefix"], "each is counted by itself"
