"""An API server in memory for the commands of an incident, whose statuses move on as a script says."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.epochs import CacheEpochSpec
from cachescope.cli import declaring, kubectl
from cachescope.cli.incidents import cache_epoch
from cachescope.kube import rest
from cachescope.kube.rest import ApiError, ConflictError, NotFoundError

Document = dict[str, Any]
ROOT = "/apis/cachescope.dev/v1alpha1/namespaces/ns"
EPOCHS = f"{ROOT}/cacheepochs"
NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
MOST_READS = 200
RUN = CliRunner(env={"CACHESCOPE_NAMESPACE": "ns", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def condition(kind: ConditionType, status: str, reason: Reason, message: str = "said", generation: int = 1) -> Document:
    stamp = {"lastTransitionTime": "t", "observedGeneration": generation}
    return {"type": kind.value, "status": status, "reason": reason.value, "message": message, **stamp}


ACCEPTED = condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
WAITING = condition(ConditionType.FENCED, "False", Reason.WAITING_FOR_PROCESSES, "waiting for FenceLeases: p.b")


def fencing(acknowledged: int, expired: int = 0, gateways: int = 0) -> Document:
    counts = {"guards": {"total": 3, "acknowledged": acknowledged, "expired": expired}, "gateways": {"total": gateways}}
    return {"epoch": 7, "phase": "Fencing", **counts, "conditions": [ACCEPTED, WAITING]}


def fenced(generation: int = 1, seconds: float = 0.42) -> Document:
    done = condition(ConditionType.FENCED, "True", Reason.ACKNOWLEDGED, "every process acknowledged it", generation)
    accepted = condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, "", generation)
    guards = {"total": 3, "acknowledged": 3, "expired": 0}
    return {"epoch": 7, "phase": "Fenced", "seconds": seconds, "guards": guards, "conditions": [accepted, done]}


def refused(reason: Reason = Reason.LEDGER_UNUSABLE) -> Document:
    return {"conditions": [condition(ConditionType.ACCEPTED, "False", reason, "the ledger cannot be read; restore it")]}


def held() -> Document:
    return {"conditions": [ACCEPTED, condition(ConditionType.HELD, "True", Reason.JUMP_TOO_LARGE, "no number is left")]}


UNCONFIRMED = {"epoch": 2, "conditions": [ACCEPTED, condition(ConditionType.FENCED, "False", Reason.RESTORE_UNCONFIRMED)]}


class Server:
    """An API server in memory; each read of a CacheEpoch shows the next status of the script, and the last one for ever."""

    def __init__(self, script: Sequence[Document | ApiError] = ()) -> None:
        self.script = list(script) or [fenced()]
        self.objects: dict[str, Document] = {}
        self.reads = 0
        self.created: list[str] = []
        self.patches: list[Document] = []
        for plural, name in (("servingpools", "tiny"), ("servingpools", "big"), ("tenants", "red")):
            self.objects[f"{ROOT}/{plural}/{name}"] = {"metadata": {"name": name, "namespace": "ns"}, "spec": {}}

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def get(self, path: str, **query: str) -> Document:
        if "/leases" in path or query:
            return {"items": []}
        if path not in self.objects:
            found = [item for name, item in sorted(self.objects.items()) if name.rpartition("/")[0] in (path, _namespaced(path))]
            if found or path.rpartition("/")[2] in ("cacheepochs", "epochledgers", "servingpools"):
                return {"items": copy.deepcopy(found)}
            raise NotFoundError(404, f"{path} is not there")
        return self._epoch(path) if path.startswith(EPOCHS) else copy.deepcopy(self.objects[path])

    def _epoch(self, path: str) -> Document:
        self.reads += 1
        assert self.reads < MOST_READS, "somebody waits for what never comes"
        status = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(status, ApiError):
            raise status
        return {**copy.deepcopy(self.objects[path]), "status": status}

    async def create(self, path: str, document: Document) -> Document:
        name = document["metadata"]["name"]
        if f"{path}/{name}" in self.objects:
            raise ConflictError(409, "it is there already")
        CacheEpochSpec.model_validate(document["spec"])
        metadata = {**document["metadata"], "generation": 1, "creationTimestamp": "2030-01-01T00:00:00Z"}
        self.objects[f"{path}/{name}"] = {**copy.deepcopy(document), "metadata": metadata}
        self.created.append(name)
        return copy.deepcopy(self.objects[f"{path}/{name}"])

    async def merge(self, path: str, patch: Document) -> Document:
        self.patches.append(patch)
        found = self.objects[path]
        found["spec"] = _merged(found["spec"], patch["spec"])
        CacheEpochSpec.model_validate(found["spec"])
        found["metadata"]["generation"] += 1
        return copy.deepcopy(found)


def _namespaced(path: str) -> str:
    return path.replace("/v1alpha1/", "/v1alpha1/namespaces/ns/")


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    left = {name: value for name, value in old.items() if patch.get(name, ...) is not None}
    return {**left, **{name: _merged(old.get(name, {}), value) for name, value in patch.items() if value is not None}}


def served(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server of every command that runs in a test."""
    made = Server()
    monkeypatch.setattr(rest, "Rest", lambda: made)
    monkeypatch.setattr(declaring, "POLL_SECONDS", 0)
    return made


def run(*arguments: str) -> Result:
    return RUN.invoke(kubectl.app, [*arguments])


def spec(server: Server, name: str) -> Document:
    found: Document = server.objects[f"{EPOCHS}/{name}"]["spec"]
    return found


ROLLBACK = ("rollback", "tiny", "--reason", "a leak", "--incident", "inc-1")


class Clock:
    """Rises by a second with each pause."""

    def __init__(self) -> None:
        self.now = 0.0

    async def pause(self, _: float) -> None:
        self.now += 1


def epoch_named(name: str) -> Document:
    """A CacheEpoch that a command made."""
    found = cache_epoch("ns", {"target": {"name": "tiny"}, "incident": {"id": "inc-1"}})
    return {**found, "metadata": {"name": name, "namespace": "ns"}}
