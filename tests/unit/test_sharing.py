"""Who meets whom under each class, over the whole path: what may be shared is, and nothing else, beside its control."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.digests import sha256
from cachescope.core.epochs import target_name
from cachescope.core.ledgers import Flags, Floor
from cachescope.core.log_lines import name_in_logs
from cachescope.core.scopes import Credential
from cachescope.core.types import Epoch, TargetKind, TargetName
from cachescope.gateway import placing, understanding
from cachescope.gateway.exchange import Answer, Forward
from tests.unit.whole_path import CHAT, NAMESPACE, POOL, WholePath, prompt

CONTEXT, COMPARTMENT = "x-cachescope-context", "x-cachescope-compartment"
TEXT = prompt()
PUBLIC = {"dataClass": "public", "sources": [{"id": "terms"}]}
APPLICATIONS = [{"tenant": "red", "kind": "api-key", "subject": "alice"}, {"tenant": "blue", "kind": "api-key", "subject": "carol"}]
ALICE, CAROL, DAN, BOB = "red-alice", "blue-carol", "blue-dan", "red-bob"
MATTERS = {"members": [
    {"name": "m1", "principals": [{"kind": "api-key", "subject": "carol"}, {"kind": "api-key", "subject": "dan"}]},
    {"name": "m2", "principals": [{"kind": "api-key", "subject": "carol"}]},
]}  # fmt: skip
TRIES = 50


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class World(WholePath):
    """The quickstart with one CacheScope for `red` and `blue`, and one approved source."""

    def declare(self, scope_class: str, **spec: Any) -> None:
        """Replace the CacheScopes by one."""
        if self.cluster.scopes.get(NAMESPACE, "each-principal-alone"):
            self.cluster.scopes.remove(NAMESPACE, "each-principal-alone")
        made = {
            "class": scope_class,
            "pools": [POOL],
            "tenants": ["red", "blue"],
            "applications": APPLICATIONS,
            "publicSources": ["terms"],
            **spec,
        }
        self.apply("CacheScope", "shared", made)

    def apply(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        """Declare an object, and let the gateway take it over."""
        self.cluster.apply({"kind": kind, "metadata": {"name": name}, "spec": dict(spec)}, NAMESPACE)
        self.refresh()

    def approve(self, **changes: Any) -> None:
        """Approve the source for a day."""
        approval = {"by": "legal", "at": moment(self.seconds - 60), "expires": moment(self.seconds + 86_400)}
        self.apply("PublicSource", "terms", {"digest": sha256(TEXT.encode()), "approval": approval, **changes})

    def stage(self, name: str) -> None:
        """Move the pool to a stage."""
        self.edit("ServingPool", POOL, lambda pool: pool["spec"].update({"sharing": {"stage": name}}))

    async def ask(self, who: str, said: Mapping[str, Any] | None, text: str = TEXT, **more: Any) -> Forward | Answer:
        """Send a request with a context; `compartment` goes into its header, all else into the body."""
        compartment = more.pop("compartment", None)
        headers: dict[str, Any] = {CONTEXT: json.dumps(said)} if said is not None else {}
        headers |= {COMPARTMENT: compartment} if compartment is not None else {}
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], **more}
        return await self.decide(self.credentials.api_keys[who], json.dumps(body).encode(), CHAT, **headers)

    async def meets(self, who: str, said: Mapping[str, Any] | None, text: str = TEXT, **more: Any) -> bool:
        """Whether a request found something in the cache; it leaves its own there."""
        forward = await self.ask(who, said, text, **more)
        assert isinstance(forward, Forward), forward
        usage = json.loads((await self.send(forward)).body)["usage"]
        return bool(usage["prompt_tokens_details"]["cached_tokens"])

    async def refused(self, who: str, said: Mapping[str, Any] | None, **more: Any) -> int:
        """The status of a refusal."""
        found = await self.ask(who, said, **more)
        assert isinstance(found, Answer), found
        return found.status

    def target(self, kind: TargetKind, *identity: str) -> TargetName:
        return target_name(self.snapshot().keys.targets, kind, *identity)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.prove()
    made.approve()
    made.stage("Public")
    made.declare("Public")
    return made


async def test_two_tenants_meet_on_an_approved_source(world: World) -> None:
    assert not await world.meets(ALICE, PUBLIC)
    assert await world.meets(CAROL, PUBLIC)


async def test_under_class_tenant_they_never_do(world: World) -> None:
    world.declare("Tenant")
    for _ in range(TRIES):
        text = prompt()
        world.cluster.sources.remove(NAMESPACE, "terms")
        world.approve(digest=sha256(text.encode()))
        assert not await world.meets(ALICE, PUBLIC, text)
        assert not await world.meets(CAROL, PUBLIC, text)
    assert await world.meets(CAROL, PUBLIC, text)


def withdrawn(world: World) -> None:
    world.approve(withdrawn=True)


def ended(world: World) -> None:
    world.seconds += 86_401


def renamed(world: World) -> None:
    world.declare("Public", publicSources=["others"])


def deleted(world: World) -> None:
    world.cluster.sources.remove(NAMESPACE, "terms")
    world.refresh()


def unreadable(world: World) -> None:
    world.edit("PublicSource", "terms", lambda source: source["spec"].update({"digest": "md5:1"}))


def back_a_stage(world: World) -> None:
    world.stage("Tenant")


def stopped(world: World) -> None:
    world.advance_pool(flags=Flags(public_stopped=Epoch(2)))


def narrowed(world: World) -> None:
    world.declare("Public", classification={"public": "Tenant"})


def one_more_scope(world: World) -> None:
    spec = {"class": "Public", "pools": [POOL], "tenants": ["red", "blue"], "applications": APPLICATIONS}
    world.apply("CacheScope", "another", spec)


@pytest.mark.parametrize(
    "change", [withdrawn, ended, renamed, deleted, unreadable, back_a_stage, stopped, narrowed, one_more_scope],
    ids=lambda change: str(change.__name__),
)  # fmt: skip
async def test_once_it_may_not_be_shared_they_meet_no_more(world: World, change: Callable[[World], None]) -> None:
    assert not await world.meets(ALICE, PUBLIC)
    assert await world.meets(CAROL, PUBLIC)
    change(world)
    assert not await world.meets(ALICE, PUBLIC)
    assert await world.meets(ALICE, PUBLIC), "the control: within a tenant it is shared on"
    assert not await world.meets(CAROL, PUBLIC)


@pytest.mark.parametrize(
    ("said", "more"),
    [
        (None, {}),
        ({"sources": PUBLIC["sources"]}, {}),
        ({**PUBLIC, "dataClass": "internal"}, {}),
        ({**PUBLIC, "promptBundle": sha256(b"bundle")}, {}),
        ({"dataClass": "public"}, {}),
        (PUBLIC, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        (PUBLIC, {"user": "somebody"}),
        (PUBLIC, {"text": TEXT + "!"}),
        (PUBLIC, {"messages": [{"role": "user", "content": TEXT}, {"role": "user", "content": "mine"}]}),
        (PUBLIC, {"messages": [{"role": "user", "content": TEXT, "name": "alice"}]}),
    ],
)
async def test_what_is_more_than_an_approved_source_is_never_shared(
    world: World, said: Mapping[str, Any] | None, more: dict[str, Any]
) -> None:
    for who in (ALICE, CAROL):
        assert not await world.meets(who, said, **more)
        assert await world.meets(who, said, **more), "the control: within a tenant it is"


async def test_the_suite_notices_a_gateway_that_takes_every_text_for_a_source(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(understanding, "sent_texts", lambda _: frozenset({sha256(TEXT.encode())}))
    text = prompt()
    assert not await world.meets(ALICE, PUBLIC, text)
    assert await world.meets(CAROL, PUBLIC, text), "a leak"


async def test_the_suite_notices_a_gateway_that_believes_every_name_of_a_compartment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "authorized", lambda *_: frozenset({"m1"}))
    assert isinstance(await world.ask(DAN, None, compartment="m1"), Forward), "a leak"


async def test_tools_and_bundles_that_are_approved_are_shared(world: World) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    digest = sha256(json.dumps(tools, separators=(",", ":"), sort_keys=True).encode())
    world.declare("Public", toolsets=[digest], promptBundles=[sha256(b"bundle")])
    said = {**PUBLIC, "toolset": digest, "promptBundle": sha256(b"bundle")}
    assert not await world.meets(ALICE, said, tools=tools)
    assert await world.meets(CAROL, said, tools=tools)
    assert await world.refused(ALICE, said) == 400, "the toolset is not the one that is sent"


class TestApplications:
    async def test_a_context_of_anybody_else_is_refused_whatever_it_says(self, world: World) -> None:
        for who in (BOB, DAN):
            for said in (PUBLIC, {"dataClass": "secret"}, {}):
                assert await world.refused(who, said) == 403
        assert isinstance(await world.ask(ALICE, {}), Forward)

    async def test_without_a_scope_nobody_is_an_application(self, world: World) -> None:
        world.declare("Public", tenants=["blue"])
        assert await world.refused(ALICE, PUBLIC) == 403

    async def test_an_application_of_one_tenant_is_none_of_another(self, world: World) -> None:
        world.declare("Public", applications=[{"tenant": "red", "kind": "api-key", "subject": name} for name in ("alice", "carol")])
        assert await world.refused(CAROL, PUBLIC) == 403
        assert isinstance(await world.ask(ALICE, PUBLIC), Forward)

    @pytest.mark.parametrize(
        ("data", "with_self", "with_colleague"),
        [("internal", True, True), ("personal", True, False), ("secret", False, False), ("confidential", True, False)],
    )
    async def test_what_it_says_of_its_data_narrows(
        self,
        world: World,
        data: str,
        with_self: bool,
        with_colleague: bool,
    ) -> None:
        world.declare("Tenant", applications=[*APPLICATIONS, {"tenant": "blue", "kind": "api-key", "subject": "dan"}])
        assert not await world.meets(CAROL, {"dataClass": data})
        assert await world.meets(CAROL, {"dataClass": data}) is with_self
        assert await world.meets(DAN, {"dataClass": data}) is with_colleague

    async def test_a_context_that_cannot_be_read_is_a_400(self, world: World) -> None:
        assert await world.refused(ALICE, {"dataclass": "secret"}) == 400
        assert await world.refused(BOB, {"dataclass": "secret"}) == 400


class TestCompartments:
    @pytest.fixture
    async def matters(self, world: World) -> World:
        world.declare("Tenant")
        world.edit("Tenant", "blue", lambda tenant: tenant["spec"].update({"compartments": MATTERS}))
        return world

    async def test_those_who_are_authorized_meet_in_one_and_only_there(self, matters: World) -> None:
        assert not await matters.meets(CAROL, None, compartment="m1")
        assert await matters.meets(DAN, None, compartment="m1")
        assert not await matters.meets(CAROL, None, compartment="m2")
        assert not await matters.meets(CAROL, None)

    async def test_one_that_is_merely_named_is_refused_like_one_that_is_not_there(self, matters: World) -> None:
        found = [await matters.ask(DAN, None, compartment=name) for name in ("m2", "nowhere")]
        assert [answer.status for answer in found if isinstance(answer, Answer)] == [403, 403]
        assert found[0] == found[1]

    async def test_class_compartment_takes_the_only_one_and_else_the_principal(self, matters: World) -> None:
        matters.declare("Compartment")
        assert not await matters.meets(DAN, None)
        assert await matters.meets(CAROL, None, compartment="m1"), "dan has only this one"
        text = prompt()
        assert not await matters.meets(CAROL, None, text)
        assert not await matters.meets(DAN, None, text), "carol has two, and named none"
        assert await matters.meets(CAROL, None, text)

    async def test_an_epoch_of_one_cools_it_alone(self, matters: World) -> None:
        for name in ("m1", "m2"):
            await matters.meets(CAROL, None, compartment=name)
        target = matters.target(TargetKind.COMPARTMENT, matters.tenant_uid("blue"), "m1")
        matters.advance_authorization({target: Floor(Epoch(2), Epoch(2))})
        assert not await matters.meets(CAROL, None, compartment="m1")
        assert await matters.meets(CAROL, None, compartment="m2")

    async def test_a_denied_one_is_refused_and_nothing_else_is(self, matters: World) -> None:
        waiting = await matters.ask(DAN, None, compartment="m1")
        assert isinstance(waiting, Forward)
        target = matters.target(TargetKind.COMPARTMENT, matters.tenant_uid("blue"), "m1")
        matters.advance_authorization({target: Floor(Epoch(2), Epoch(2), denied=Epoch(2))})
        assert (await matters.send(waiting)).status == 403
        assert await matters.refused(DAN, None, compartment="m1") == 403
        assert isinstance(await matters.ask(DAN, None), Forward)
        assert isinstance(await matters.ask(CAROL, None, compartment="m2"), Forward)


class TestHighSensitivity:
    def raise_red(self, world: World) -> None:
        world.edit("Tenant", "red", lambda tenant: tenant["spec"].update({"sensitivity": "High"}))

    async def test_it_is_not_served_by_a_pool_that_admits_others(self, world: World) -> None:
        assert isinstance(await world.ask(ALICE, None), Forward)
        self.raise_red(world)
        found = [await world.ask(ALICE, None, model=name) for name in (POOL, "nowhere")]
        assert [answer.status for answer in found if isinstance(answer, Answer)] == [404, 404]
        assert found[0] == found[1], "nobody learns from it what others have"
        assert isinstance(await world.ask(CAROL, None), Forward)

    async def test_alone_it_is_served_and_nothing_of_it_is_public(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "cachescope.audit")
        for name in ("blue", "green", "violet"):
            world.cluster.tenants.remove(NAMESPACE, name)
        world.declare("Public")
        await world.ask(ALICE, PUBLIC)
        self.raise_red(world)
        await world.ask(ALICE, PUBLIC)
        before, now = (record.__dict__ for record in caplog.records if record.message == "forwarded")
        assert before["scope_class"] == "Public", "control"
        assert (now["scope_class"], now["reasons"]) == ("Tenant", ["HighSensitivity"])
        assert world.snapshot().policy.models(world.tenant_uid("red")).keys() == {"tiny"}


async def test_the_audit_line_says_which_rules_decided(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cachescope.audit")
    await world.ask(ALICE, PUBLIC)
    await world.ask(ALICE, None)
    first, second = (record.__dict__ for record in caplog.records if record.message == "forwarded")
    assert (first["scope_class"], first["reasons"], first["by_application"]) == ("Public", ["Scope", "DataClass"], True)
    assert (second["scope_class"], second["reasons"], second["by_application"]) == ("Tenant", ["NoContext"], False)
    assert (first["scope_uid"], first["policy_revision"]) == (second["scope_uid"], second["policy_revision"])


async def test_nothing_that_is_said_goes_upstream(world: World) -> None:
    forward = await world.ask(ALICE, PUBLIC)
    assert isinstance(forward, Forward)
    names = {*forward.set_headers, *forward.keep_headers}
    assert not names & {CONTEXT, COMPARTMENT}
    assert b"terms" not in forward.body


async def test_a_revoked_principal_is_refused_also_where_the_cache_is_everybodys(world: World) -> None:
    waiting = await world.ask(ALICE, PUBLIC)
    assert isinstance(waiting, Forward)
    target = world.principal_target("red", Credential("api-key", "", "alice"))
    world.advance_authorization({target: Floor(Epoch(2), Epoch(2), denied=Epoch(2))})
    assert (await world.send(waiting)).status == 403
    assert await world.refused(ALICE, PUBLIC) == 403
    assert isinstance(await world.ask(CAROL, PUBLIC), Forward)


async def test_a_tenant_that_cannot_be_read_is_refused_with_words_that_fit(world: World) -> None:
    wrong = {"members": [{"name": "m1", "principals": [{"kind": "mtls", "subject": "corp/app"}]}]}
    assert isinstance(await world.ask(CAROL, None), Forward), "control"
    world.edit("Tenant", "blue", lambda tenant: tenant["spec"].update({"compartments": wrong}))
    found = await world.ask(CAROL, None)
    assert isinstance(found, Answer)
    assert (found.status, b"at fault" in found.body) == (403, True)
    assert "no SPIFFE id" in world.configuration.faults()[f"Tenant {NAMESPACE}/{name_in_logs('Tenant', NAMESPACE, 'blue')}"]
