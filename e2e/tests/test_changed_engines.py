"""What an engine loaded changes under one name, restarts, or runs out of room: nothing of before is found, and no permit of before.

A pool of its own, whose model lies in a folder of this machine, and whose engine keeps few blocks.
"""

from __future__ import annotations

import itertools
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from cachescope.core.labels import ENGINE_PORT
from cachescope.core.statements import Statement
from e2e.demo.cases import BLOCK_TOKENS
from e2e.stack import client, decisions, kubectl, model_files, outage, stub_pool, vllm_pool, volumes
from e2e.stack.attacker import Insider, chat_body
from e2e.stack.install import ENGINE_PODS, READY_SECONDS, Stack
from e2e.stack.traffic import Traffic, flowing
from e2e.stack.waiting import until

NAME = "versions"
# A volume says for ever which folder it is.
VOLUME = f"{NAME}-{secrets.token_hex(4)}"
PODS = stub_pool.pods(NAME)
TRIES, FEW = 50, 5
TOKENS, LONG = 300, 3000
# Few enough to be filled within seconds, and enough for some hundred prompts, each of which takes three.
BLOCKS = 1024
BODY = chat_body("hello", model=NAME)
# The end of a prompt alone: all full blocks of it have the same tokens as before.
TEMPLATE, OLD_END, NEW_END = "chat_template.jinja", b"assistant:", b"the assistant:"
Clients = dict[str, openai.OpenAI]

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's folders are none of this machine")


@pytest.fixture(scope="module")
def models(stack: Stack, gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - engines must be up
    """The image's models in a folder of this machine."""
    folder = tmp_path_factory.mktemp("volume") / "models"
    folder.mkdir()
    model_files.copied(kubectl.ready_pod(ENGINE_PODS)["metadata"]["name"], folder)
    shutil.copytree(folder / "tiny", folder / "tiny-a")
    return folder


@pytest.fixture(scope="module", autouse=True)
def versions(stack: Stack, models: Path) -> Iterator[Stack]:
    """The installation, where this pool is meant."""
    pool = vllm_pool.document(stack, NAME)
    pool["spec"]["model"]["source"] = _source("tiny")
    pool["spec"]["engine"]["args"] += ["--num-gpu-blocks-override", str(BLOCKS)]
    with volumes.claimed(VOLUME, models):
        kubectl.apply([pool])
        try:
            until(lambda: stub_pool.is_ready(NAME), f"the pool {NAME} is Ready", READY_SECONDS)
            yield stack.with_pool(NAME)
        finally:
            kubectl.run("delete", "servingpool", NAME, "--wait=true", "--timeout=60s")


@dataclass(frozen=True)
class Version:
    """One process of the pool's engine.

    Attributes:
        statement: What its guard said.
        permits: Permits for it.
    """

    statement: Statement
    permits: list[str]


def test_what_is_evicted_under_load_is_found_by_nobody_else(who: Clients) -> None:
    carol, kim = who["blue-carol"], who["green-south"]
    texts = _kept(carol)
    floods = [Traffic(kim, (client.prompt(LONG) for _ in itertools.count()), model=NAME) for _ in range(2)]
    with flowing(*floods):
        found = _found(kim, texts[: TRIES // 2])
        until(lambda: _blocks(floods) > BLOCKS, "the cache was filled once over")
        found += _found(kim, texts[TRIES // 2 :])
    assert found == [0] * TRIES
    assert 0 in _found(carol, texts), "the control: the tenant's own blocks have gone"
    assert min(_found(carol, texts[:FEW])) > 0, "the control: what it sent since is there"


def test_a_restart_on_other_weights_under_the_same_path_brings_nothing_back(versions: Stack, models: Path, who: Clients) -> None:
    carol, texts = who["blue-carol"], _kept(who["blue-carol"])
    with _insider(versions) as insider:
        before = _version(insider)
        for file in _weights(_another(models)):
            model_files.put(models / "tiny" / file.name, file.read_bytes())
        kubectl.run("exec", _pod(), "-c", "engine", "--", "/bin/sh", "-c", "kill -TERM 1")
        until(lambda: _boot(insider) not in {"", before.statement.boot_id}, "the engine has restarted", READY_SECONDS)
        client.wait_routable(carol, READY_SECONDS, model=NAME)
        until(lambda: _reuses(carol), "the new process reuses, once it was probed", READY_SECONDS)
        now, old = insider.statement().engine, before.statement.engine
        assert now.model != old.model
        assert (now.tokenizer, now.runtime) == (old.tokenizer, old.runtime)
        assert [_refused(insider, permit) for permit in before.permits] == [(409, "permit_before_restart")] * TRIES
        assert insider.post(BODY, insider.permit(BODY)).status_code == 200, "the control: a permit for this process is served"
        assert _found(carol, texts) == [0] * TRIES
        _assert_unreachable(versions, insider, carol, texts, {"model": old.model})


def test_two_versions_never_meet_while_one_follows_the_other(versions: Stack, models: Path, who: Clients) -> None:
    carol, texts = who["blue-carol"], _kept(who["blue-carol"])
    with _insider(versions) as insider:
        old = insider.statement()
    _prepare_next(models)
    traffic = Traffic(carol, itertools.cycle(texts), model=NAME)
    with flowing(traffic):
        until(lambda: len(traffic.answers) >= TRIES, "every prompt was answered by the first version")
        first = traffic.answers[0].measured.prompt_tokens
        second = first + len(NEW_END) - len(OLD_END)
        patch = {"spec": {"model": {"source": _source("next")}}}
        kubectl.run("patch", "servingpool", NAME, "--type=merge", "-p", json.dumps(patch))
        until(lambda: all(any(traffic.cached(text, second)) for text in texts), "the second one reuses its own", READY_SECONDS)
        until(lambda: stub_pool.is_ready(NAME) and len(kubectl.pods(PODS)) == 1, "the first one is gone", READY_SECONDS)
    assert {answer.measured.prompt_tokens for answer in traffic.answers} == {first, second}
    assert min(min(traffic.cached(text, first)) for text in texts) > 0, "the control: the first version had them all"
    assert [traffic.cached(text, second)[0] for text in texts] == [0] * TRIES
    _assert_records_apart(versions, old)
    with _insider(versions) as insider:
        for name in ("model", "tokenizer"):
            assert getattr(insider.statement().engine, name) != getattr(old.engine, name)
            _assert_unreachable(versions, insider, carol, texts, {name: getattr(old.engine, name)})


def _assert_unreachable(versions: Stack, insider: Insider, who: openai.OpenAI, texts: list[str], old: dict[str, Any]) -> None:
    """Neither does the engine find what it has under digests of before, nor does anybody find what it has under those."""
    forger, uid = versions.forger(), kubectl.get("tenant", "blue")["metadata"]["uid"]
    record = forger.record(uid, insider.statement())
    before = forger.salt(replace(record, engine=replace(record.engine, **old)))
    assert client.at_once(lambda text: insider.found(text, before), texts) == [0] * TRIES
    assert min(client.at_once(lambda text: insider.found(text, forger.salt(record)), texts)) > 0, "the control: its own has them"
    fresh = [client.prompt(TOKENS) for _ in range(TRIES)]
    client.at_once(lambda text: insider.found(text, before), fresh)
    assert _found(who, fresh) == [0] * TRIES
    assert min(client.at_once(lambda text: insider.found(text, before), fresh[-FEW:])) > 0, "the control: they are there"


def _assert_records_apart(versions: Stack, old_guard: Statement) -> None:
    """No record, so no salt, was ever made for two versions, as the gateways say."""
    lines = decisions.forwarded_by_all(versions.pool_name)
    old = {line["record_digest"] for line in lines if line["pod_uid"] == old_guard.pod_uid}
    new = {line["record_digest"] for line in lines if line["pod_uid"] == kubectl.ready_pod(PODS)["metadata"]["uid"]}
    assert (len(old) >= TRIES, len(new) >= TRIES) == (True, True), "the control: each had all prompts"
    assert old & new == set()


def _source(path: str) -> dict[str, Any]:
    """Where the pool's model comes from."""
    return {"persistentVolumeClaim": {"claimName": VOLUME, "path": path}}


def _kept(who: openai.OpenAI) -> list[str]:
    """Prompts that the engine has for somebody."""
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    _found(who, texts)
    assert min(_found(who, texts)) > 0, "the control: they are there"
    return texts


def _reuses(who: openai.OpenAI) -> bool:
    """Whether somebody finds a prompt again that he sent a moment ago."""
    text = client.prompt(TOKENS)
    return _found(who, [text]) == [0] and _found(who, [text]) > [0]


def _found(who: openai.OpenAI, texts: list[str]) -> list[int]:
    return client.found(who, texts, model=NAME)


def _blocks(floods: list[Traffic]) -> int:
    """How many blocks they have filled."""
    return sum(len(flood.answers) for flood in floods) * (LONG // BLOCK_TOKENS)


def _pod() -> str:
    return str(kubectl.ready_pod(PODS)["metadata"]["name"])


@contextmanager
def _insider(versions: Stack) -> Iterator[Insider]:
    """A way to the engine that is ready now."""
    with kubectl.forwarded_pod(PODS, ENGINE_PORT) as address:
        yield Insider(versions, address)


def _version(insider: Insider) -> Version:
    return Version(insider.statement(), [insider.permit(BODY) for _ in range(TRIES)])


def _boot(insider: Insider) -> str:
    """Boot id of the guard; empty while it says nothing."""
    try:
        return insider.statement().boot_id
    except (ConnectionError, KeyError, httpx.HTTPError):
        return ""


def _refused(insider: Insider, permit: str) -> tuple[int, str]:
    """Status and code of the refusal of a permit."""
    answer = insider.post(BODY, permit)
    told: dict[str, Any] = answer.json().get("error", {})
    return answer.status_code, str(told.get("code"))


def _weights(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.safetensors"))
    assert found, f"{folder} has no weights"
    return found


def _another(models: Path) -> Path:
    """The model whose weights are not those that the pool's path holds now."""
    now = [file.read_bytes() for file in _weights(models / "tiny")]
    return next(folder for folder in (models / "tiny-a", models / "tiny-b") if [f.read_bytes() for f in _weights(folder)] != now)


def _prepare_next(models: Path) -> None:
    """The next version beside the one that is served: other weights, and another end of the chat template."""
    shutil.copytree(_another(models), models / "next")
    template = (models / "next" / TEMPLATE).read_bytes()
    assert template.count(OLD_END) == 1, template
    model_files.put(models / "next" / TEMPLATE, template.replace(OLD_END, NEW_END))
