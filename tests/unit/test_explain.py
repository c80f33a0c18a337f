"""`explain` says what the gateway does: the same class, the same refusal, the same digests, from resources in files."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cachescope.cli.main import app
from cachescope.core.digests import sha256
from cachescope.core.errors import SpecError
from cachescope.core.scopes import Credential
from cachescope.gateway.context import said
from cachescope.gateway.envoy import COMPARTMENT_HEADER, CONTEXT_HEADER
from cachescope.gateway.exchange import Answer, RequestHead
from cachescope.gateway.explaining import Question, Who, explain
from tests.unit.test_sharing import ALICE, BOB, CAROL, MATTERS, PUBLIC, TEXT, World
from tests.unit.whole_path import CHAT, EXAMPLES, NAMESPACE, POOL

BODY: dict[str, Any] = {"model": POOL, "messages": [{"role": "user", "content": TEXT}]}
PEOPLE = {ALICE: ("red", "alice"), BOB: ("red", "bob"), CAROL: ("blue", "carol")}
KINDS = ("ServingPool", "Tenant", "CacheScope", "PublicSource", "Namespace")


def documents(world: World) -> list[dict[str, Any]]:
    return [{"kind": kind, **item} for kind in KINDS for item in world.cluster.store(kind).documents.values()]


def question(world: World, who: str, headers: Mapping[str, str] = MappingProxyType({})) -> Question:
    tenant, principal = PEOPLE[who]
    head = RequestHead("POST", CHAT, tuple(headers.items()))
    whose = Who(tenant, Credential("api-key", "", principal))
    return Question(NAMESPACE, POOL, whose, CHAT, dict(BODY), said(head), world.seconds)


CASES: list[tuple[str, dict[str, Any] | None, str | None]] = [
    (ALICE, None, None),
    (ALICE, PUBLIC, None),
    (CAROL, PUBLIC, None),
    (CAROL, {"dataClass": "personal"}, None),
    (CAROL, {"dataClass": "secret"}, None),
    (CAROL, None, "m1"),
    (CAROL, {"dataClass": "confidential"}, "m2"),
    (ALICE, None, "m1"),
    (BOB, {"dataClass": "internal"}, None),
]


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.prove()
    made.approve()
    made.stage("Public")
    made.declare("Public")
    made.edit("Tenant", "blue", lambda tenant: tenant["spec"].update({"compartments": MATTERS}))
    return made


@pytest.mark.parametrize(("who", "context", "compartment"), CASES)
async def test_it_says_what_the_gateway_does(
    world: World, caplog: pytest.LogCaptureFixture, who: str, context: dict[str, Any] | None, compartment: str | None
) -> None:
    with caplog.at_level(logging.INFO):
        decided = await world.ask(who, context, **({"compartment": compartment} if compartment else {}))
    headers = {CONTEXT_HEADER: json.dumps(context)} if context else {}
    headers |= {COMPARTMENT_HEADER: compartment} if compartment else {}
    found = explain(documents(world), question(world, who, headers))
    if isinstance(decided, Answer):
        assert (found.verdict, found.message) == (decided.reason, json.loads(decided.body)["error"]["message"])
        return
    (line,) = [record.__dict__ for record in caplog.records if record.message == "forwarded"]
    assert found.scope_class is not None
    assert found.reuse is not None
    assert (found.scope_class.value, found.reuse.value) == (line["scope_class"], line["reuse"])


async def test_every_field_of_the_record_has_a_line_and_a_rule(world: World) -> None:
    found = explain(documents(world), question(world, ALICE, {CONTEXT_HEADER: json.dumps(PUBLIC)}))
    assert {line.name for line in found.lines} == {
        "scope", "cacheObject", "namespace", "contentDigest", "modelDigest", "tokenizerDigest", "runtimeDigest", "adapterDigest",
        "promptBundleDigest", "toolsetDigest", "policyRevision", "authorizationEpoch", "cacheEpoch", "sources",
    }  # fmt: skip
    assert all(line.value and line.rule for line in found.lines)
    assert sha256(TEXT.encode()) in next(line.value for line in found.lines if line.name == "namespace")


async def test_an_adapter_has_its_digest_and_its_rule_and_the_model_has_none(world: World) -> None:
    adapters = [{"name": "x", "source": {"imagePath": "/x"}}]
    world.edit("ServingPool", POOL, lambda pool: pool["spec"]["engine"].update(adapters=adapters))
    shown = {}
    for model in (POOL, "x", "y"):
        asked = question(world, ALICE)
        asked.body["model"] = model
        found = explain(documents(world), asked)
        shown[model] = [found.verdict, *(line.value for line in found.lines if line.name == "adapterDigest")]
    assert shown == {POOL: ["forwarded", "none"], "x": ["forwarded", "of the chosen engine"], "y": ["model_not_found"]}


async def test_what_the_prompt_says_is_not_shown(world: World) -> None:
    assert TEXT[:32] not in str(explain(documents(world), question(world, ALICE)))


async def test_a_resource_at_fault_is_named_and_harms_its_own(world: World) -> None:
    broken = {"kind": "CacheScope", "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"class": "Everybody"}}
    found = explain([*documents(world), broken], question(world, ALICE))
    assert found.scope_class is not None
    assert found.scope_class.value == "Request"
    assert [fault.partition(":")[0] for fault in found.faults] == [f"CacheScope {NAMESPACE}/bad"]


async def test_what_the_gateway_would_refuse_is_said_with_its_reason(world: World) -> None:
    asked = question(world, ALICE)
    assert explain(documents(world), asked).verdict == "forwarded"
    world.edit("Tenant", "red", lambda tenant: tenant["spec"].update({"suspended": True}))
    assert explain(documents(world), asked).verdict == "permission_denied"
    world.edit("Tenant", "red", lambda tenant: tenant["spec"].update({"suspended": False}))
    other = replace(asked, body={**BODY, "model": "huge"})
    assert explain(documents(world), other).verdict == "model_not_found"


async def test_a_model_that_goes_to_another_pool_is_said_with_that_pool(world: World) -> None:
    (pool,) = [item for item in documents(world) if item["kind"] == "ServingPool"]
    spare = copy.deepcopy(pool)
    spare["metadata"] |= {"name": "spare", "uid": "uid-of-spare"}
    spare["spec"]["model"] |= {"name": POOL}
    declared = [*documents(world), spare]
    found = explain(declared, replace(question(world, ALICE), pool="spare"))
    assert (found.verdict, found.scope_class) == ("other_pool", None)
    assert f"goes to {NAMESPACE}/{POOL}" in found.message
    assert explain(declared, question(world, ALICE)).verdict == "forwarded"


async def test_a_pool_or_a_tenant_that_is_not_there_is_an_error_that_says_so(world: World) -> None:
    tenants = [item for item in documents(world) if item["kind"] != "Tenant"]
    with pytest.raises(SpecError, match="0 Tenants among the resources are named red"):
        explain(tenants, question(world, ALICE))
    with pytest.raises(SpecError, match="the pool models/tiny is not among the resources"):
        explain([], question(world, ALICE))


def run(tmp_path: Path, *arguments: str, body: object = BODY) -> tuple[int, str]:
    request = tmp_path / "request.json"
    request.write_text(json.dumps(body))
    options = ["--pool", POOL, "-n", "models", "-f", str(EXAMPLES / "quickstart.yaml")]
    result = CliRunner().invoke(app, ["explain", str(request), *options, *arguments])
    return result.exit_code, result.output + str(result.exception or "")


def test_the_command_reads_files_and_prints_a_table(tmp_path: Path) -> None:
    code, shown = run(tmp_path, "--as", "red/alice", body={**BODY, "cache_salt": "mine"})
    assert code == 0
    assert "removed from the body: cache_salt" in shown
    assert "policyRevision" in shown


def test_the_command_prints_json(tmp_path: Path) -> None:
    _, shown = run(tmp_path, "--as", "blue/carol", "-o", "json")
    assert (json.loads(shown)["verdict"], json.loads(shown)["scope_class"]) == ("forwarded", "Tenant")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--as", "red"), "TENANT/PRINCIPAL"),
        (("--as", "red/alice", "--path", "/v1/files"), "no route of vLLM"),
        (("--as", "red/alice", "--context", "{}{}"), "x-cachescope-context"),
        (("--as", "red/alice", "-f", "/nowhere.yaml"), "cannot be read"),
    ],
)
def test_what_the_command_cannot_use_is_said(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    code, shown = run(tmp_path, *arguments)
    assert code == 1
    assert says in shown


def test_a_list_and_a_folder_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    items = [item for item in yaml.safe_load_all((EXAMPLES / "quickstart.yaml").read_text()) if item]
    (folder / "all.yaml").write_text(yaml.safe_dump({"kind": "List", "items": items}))
    request = tmp_path / "request.json"
    request.write_text(json.dumps(BODY))
    result = CliRunner().invoke(
        app, ["explain", str(request), "--pool", POOL, "--as", "red/alice", "-n", "models", "-f", str(folder)]
    )
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("metadata", [None, "x", {}, {"name": None}, {"name": ["x"]}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_resource_without_a_name_is_an_error_that_says_so(world: World, kind: str, metadata: object) -> None:
    with pytest.raises(SpecError, match=f"a {kind} among the resources has no metadata with a name"):
        explain([*documents(world), {"kind": kind, "metadata": metadata}], question(world, ALICE))
    others: list[dict[str, Any]] = [{"kind": "Kustomization", "metadata": metadata}, {"kind": ["x"]}, {}]
    assert explain([*documents(world), *others], question(world, ALICE)).verdict == "forwarded", (
        "control: other kinds count for nothing"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [None, "x", [1]], ids=str)
async def test_a_resource_of_another_shape_is_a_fault_and_no_crash(world: World, kind: str, wrong: object) -> None:
    broken = {"kind": kind, "metadata": {"name": "bad", "namespace": "elsewhere", "labels": wrong}, "spec": wrong}
    found = explain([*documents(world), broken], question(world, ALICE))
    assert found.verdict == "forwarded"
    assert bool(found.faults) is (kind != "Namespace" or wrong is not None)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"kind: List", b"{kind: List, items: 7}", b"{kind: List, items: [1, null]}"], ids=str
)
def test_a_file_of_something_else_is_no_crash(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.yaml").write_bytes(content)
    code, shown = run(tmp_path, "--as", "red/alice", "-f", str(tmp_path / "other.yaml"))
    assert (code, "cannot be read" in shown) == ((1, True) if content.startswith(b"\xff") else (0, False)), shown


async def test_a_selector_counts_where_the_installation_is(world: World) -> None:
    labels = {"kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {"team": "red"}}}
    (pool,) = [copy.deepcopy(item) for item in documents(world) if item["kind"] == "ServingPool"]
    pool["metadata"] |= {"namespace": "elsewhere", "uid": "uid-of-another"}
    pool["spec"] |= {"allowedTenants": {"namespaces": {"from": "Selector", "matchLabels": {"team": "red"}}}}
    declared = [labels, pool, *(item for item in documents(world) if item["kind"] == "Tenant")]
    asked = replace(question(world, ALICE), namespace="elsewhere")
    assert explain(declared, asked).verdict == "forwarded", "control: its namespace is the installation's"
    assert explain(declared, replace(asked, home="system")).verdict == "model_not_found"
