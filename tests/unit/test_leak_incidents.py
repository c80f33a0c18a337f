"""A leak becomes a CacheEpoch as people make it, once for each run that found one."""

from __future__ import annotations

import pytest

from cachescope.api.documents import parse
from cachescope.api.epochs import CacheEpoch
from cachescope.controller.leak_incidents import declare, incident_of, leak_incident, name_of
from cachescope.controller.store import Key, Store
from cachescope.core.errors import ClusterError
from cachescope.kube.kinds import path_of
from tests.unit.controller_bench import HeardApi

POOL = Key("ServingPool", "models", "tiny")
INCIDENT = incident_of("0123456789abcdef")
UID = "uid-of-pool"


def test_it_switches_reuse_off_and_stops_public_sharing() -> None:
    document = leak_incident(POOL, UID, INCIDENT, "/v1/messages of p: found")
    declared = parse(CacheEpoch, {**document, "metadata": {**document["metadata"], "uid": "uid-of-epoch"}}, "test")
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ServingPool", "tiny", UID), "it goes with the pool"
    assert (declared.metadata.namespace, declared.spec.target.kind, declared.spec.target.name) == ("models", "ServingPool", "tiny")
    incident = declared.spec.incident
    assert incident is not None
    assert (incident.id, incident.bypass_reuse, incident.stop_public_sharing) == (INCIDENT, True, True)
    assert incident.reason == "the isolation probe found a leak: /v1/messages of p: found"


def test_whatever_leaked_it_can_be_declared() -> None:
    document = leak_incident(Key("ServingPool", "models", "p" * 40), UID, INCIDENT, "x" * 5000)
    parse(CacheEpoch, {**document, "metadata": {**document["metadata"], "uid": "uid-of-epoch"}}, "test")
    assert len(document["spec"]["incident"]["reason"]) == 1024
    assert len(document["metadata"]["name"]) <= 253


def test_runs_and_pools_have_incidents_of_their_own() -> None:
    names = {name_of(pool, incident_of(seed)) for pool in ("a", "b") for seed in ("1", "2")}
    assert len(names) == 4
    assert leak_incident(POOL, UID, INCIDENT, "")["metadata"]["name"] == name_of("tiny", INCIDENT)


async def test_it_is_created_once_however_often_it_is_declared() -> None:
    api = HeardApi(Store())
    document = leak_incident(POOL, UID, INCIDENT, "what")
    for _ in range(3):
        await declare(api, document)
    assert list(api.objects) == [path_of(document)]
    assert api.objects[path_of(document)]["spec"] == document["spec"]


async def test_a_cluster_that_does_not_do_it_is_said() -> None:
    api = HeardApi(Store())
    document = leak_incident(POOL, UID, INCIDENT, "what")
    api.refused = {document["metadata"]["name"]}
    with pytest.raises(ClusterError):
        await declare(api, document)
    assert not api.objects
