"""A rollback that is committed and later reverted, in a real Git repository: the epoch stays, and the loop stays quiet."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cachescope.core.ledger_documents import parse_ledger
from e2e.faults import site
from e2e.faults.declarations import POOL, is_true, rollback_of
from e2e.faults.engines import ENGINE
from e2e.faults.site import TENANTS, Site
from e2e.faults.table import TIMES
from e2e.faults.traffic import prompt
from e2e.stack import gitops, kubectl, outage
from e2e.stack.waiting import until

SYNCS = 8
FILE = "rollback.yaml"
LABELS = {"example.com/applied-by": "the-loop"}

pytestmark = [
    pytest.mark.skipif(not outage.possible(), reason="the node's addresses are none of this machine"),
    pytest.mark.parametrize("turn", range(TIMES)),
]


@pytest.fixture(scope="session")
def fenced_site() -> Iterator[Site]:
    with site.shared() as found:
        yield found


@dataclass(frozen=True)
class Repository:
    """A Git repository, and the loop that applies it.

    Attributes:
        folder: Its working tree.
        place: Where it is applied.
    """

    folder: Path
    place: Site

    def git(self, *arguments: str) -> str:
        """Run git; nobody's configuration counts."""
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"]
        command = ["git", "-C", str(self.folder), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(self, document: dict[str, Any]) -> None:
        """Commit a document."""
        labelled = {**document, "metadata": {**document["metadata"], "labels": LABELS}}
        (self.folder / FILE).write_text(yaml.safe_dump(labelled))
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "change")

    def revert(self) -> None:
        """Revert the last commit."""
        self.git("revert", "--no-edit", "HEAD")

    def sync(self) -> None:
        """One turn of the loop: apply what HEAD has, and prune what it has no more."""
        files = [name for name in self.git("ls-tree", "--name-only", "HEAD").split() if name.endswith(".yaml")]
        texts = [self.git("show", f"HEAD:{name}") for name in files]
        for text in texts:
            gitops.sync(text, self.place.namespace)
        wanted = {yaml.safe_load(text)["metadata"]["name"] for text in texts}
        labels = ",".join("=".join(item) for item in LABELS.items())
        found = kubectl.get("cacheepochs", "-l", labels, namespace=self.place.namespace)["items"]
        for name in {item["metadata"]["name"] for item in found} - wanted:
            kubectl.run("delete", "cacheepoch", name, namespace=self.place.namespace)


@pytest.fixture
def repository(fenced_site: Site, tmp_path: Path, turn: int) -> Iterator[Repository]:  # noqa: ARG001 - a repetition
    found = Repository(tmp_path, fenced_site)
    found.git("init", "--quiet")
    (tmp_path / "README").write_text("what the cluster should be\n")
    found.git("add", "-A")
    found.git("commit", "--quiet", "-m", "begin")
    yield found
    labels = ",".join("=".join(item) for item in LABELS.items())
    kubectl.run("delete", "cacheepoch", "-l", labels, namespace=fenced_site.namespace)


def test_a_reverted_incident_stays(repository: Repository) -> None:
    place, name = repository.place, f"incident-{secrets.token_hex(4)}"
    before = epoch(place)
    old, both = secrets.token_hex(4), secrets.token_hex(4)
    warm(place, old, both)
    repository.commit(rollback_of(name))
    repository.sync()
    until(lambda: is_true(place.namespace, name, "Fenced"), "the rollback is fenced")
    assert epoch(place) == before + 1
    assert cached(place, both) == 0
    repository.revert()
    repository.sync()
    assert not kubectl.exists("cacheepoch", name, place.namespace)
    _healthy_and_quiet(repository)
    assert epoch(place) == before + 1
    assert cached(place, old) == 0
    until(lambda: cached(place, both), "what was cached since the rollback is found")


def test_a_reverted_floor_is_held_and_said(repository: Repository) -> None:
    place, name = repository.place, f"floor-{secrets.token_hex(4)}"
    before = epoch(place)
    repository.commit(floor_of(name, before))
    repository.sync()
    until(lambda: is_true(place.namespace, name, "Fenced"), "the floor that stands is fenced")
    assert not is_true(place.namespace, name, "Held")
    old = secrets.token_hex(4)
    warm(place, old)
    repository.commit(floor_of(name, before + 1))
    repository.sync()
    until(lambda: epoch(place) == before + 1, "the higher floor stands")
    until(lambda: is_true(place.namespace, name, "Fenced"), "it is fenced")
    repository.revert()
    repository.sync()
    until(lambda: is_true(place.namespace, name, "Held"), "the lower floor is held")
    held = kubectl.condition(kubectl.get("cacheepoch", name, namespace=place.namespace), "Held")
    assert held["reason"] == "SpecBehindLedger"
    assert str(before + 1) in held["message"]
    _healthy_and_quiet(repository)
    assert epoch(place) == before + 1
    assert cached(place, old) == 0


def test_the_same_commit_applied_again_rolls_once(repository: Repository) -> None:
    place, name = repository.place, f"incident-{secrets.token_hex(4)}"
    before = epoch(place)
    repository.commit(rollback_of(name))
    repository.sync()
    until(lambda: is_true(place.namespace, name, "Fenced"), "the rollback is fenced")
    _healthy_and_quiet(repository)
    assert epoch(place) == before + 1
    repository.revert()
    repository.sync()
    repository.git("revert", "--no-edit", "HEAD")  # the incident is back, as somebody may do by mistake
    repository.sync()
    until(lambda: is_true(place.namespace, name, "Fenced"), "it is fenced as it was")
    assert epoch(place) == before + 1


def _healthy_and_quiet(repository: Repository) -> None:
    """Turn after turn nothing is written and nobody is told anything; then a change shows that the counts see one."""
    namespace = repository.place.namespace
    repository.sync()
    versions, told = _versions(namespace), _events(namespace)
    for _ in range(SYNCS):
        repository.sync()
    assert _versions(namespace) == versions
    assert _events(namespace) == told
    assert told, "no Event was ever posted: their number proves nothing"


def _versions(namespace: str) -> dict[str, str]:
    items = kubectl.get("cacheepochs,epochledgers", namespace=namespace)["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}


def _events(namespace: str) -> int:
    """How often anybody was told anything of an incident or a pool's ledger."""
    found = kubectl.get("events.events.k8s.io", namespace=namespace)["items"]
    ours = [item for item in found if item["regarding"].get("kind") in {"CacheEpoch", "ServingPool"}]
    return sum((item.get("series") or {}).get("count", 1) for item in ours)


def epoch(place: Site) -> int:
    """The pool's epoch that stands, by its ledger, in which no scope has one of its own here."""
    ledger = parse_ledger(kubectl.get("epochledger", POOL, namespace=place.namespace)["spec"])
    return max([ledger.base, *(floor.epoch for floor in ledger.floors.values())])


def warm(place: Site, *prefixes: str) -> None:
    """Ask until each prefix is found in the cache."""
    for prefix in prefixes:
        until(lambda prefix=prefix: cached(place, prefix), f"{prefix} is reused")  # type: ignore[misc]


def cached(place: Site, prefix: str) -> int:
    """How much of a prefix an engine found."""
    with place.client(TENANTS[0]) as who:
        return ENGINE.found(who, POOL, prompt(prefix, secrets.token_hex(4)))


def floor_of(name: str, floor: int) -> dict[str, Any]:
    """A CacheEpoch that asks for a floor of the pool."""
    document = rollback_of(name)
    document["spec"] = {"target": document["spec"]["target"], "floor": floor}
    return document
