"""The authorization ledgers of each namespace that has or had pools: what tenants and principals were allowed, and no longer are.

The shards are written before the head that announces them: an incident stands once the head says so. A process that ends between
the two leaves a shard that nobody announced, and the next pass announces it. The first head of a namespace is written with all that
is declared. The head of the installation's own namespace also holds the digests of the policy, from lists that were read after the
head was. They are written on when the last pool of a namespace is gone: its pods go on for a while, and are told.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cachescope.api.epochs import CacheEpoch
from cachescope.controller.declared_epochs import Declared, has_authorization, of_people, of_restores, version_of
from cachescope.controller.ledger_news import announce_lineage
from cachescope.controller.ledger_objects import Place, Stored
from cachescope.controller.ledger_site import LedgerSite, announced_at, sealed_anew, told_of, until_written
from cachescope.controller.outcomes import Outcome
from cachescope.controller.policy_inputs import PolicyInputs
from cachescope.controller.store import Key
from cachescope.core.authorization_rules import (
    Authorization,
    AuthorizationDecision,
    announced,
    compacted,
    decide,
    first,
    first_head,
    folded,
    writes,
)
from cachescope.core.declarations import Restoration
from cachescope.core.errors import SpecError
from cachescope.core.leases import shard_key
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, Lineage, Mark, authorization_key, is_shard, shard_name
from cachescope.core.lineages import is_named, naming, told
from cachescope.core.restores import apart, is_restored, merged_authorization, said, taken_back
from cachescope.core.rights import NO_RIGHTS, Rights
from cachescope.core.types import Digest, Epoch

log = logging.getLogger(__name__)

_UNSEALED = "a process holds a copy of the ledger that carries no seal of this installation"
_TAKEN_BACK = "a gateway holds a shard of which what stands does not go on: an older ledger was put back"


@dataclass(frozen=True)
class Read:
    """The ledgers of a namespace, as they were read.

    Attributes:
        head: The head.
        shards: The shards that there are, by name.
    """

    head: Stored
    shards: Mapping[str, Stored]

    @property
    def state(self) -> Authorization | None:
        """What they say; `None` without a head that can be relied on."""
        if self.head.ledger is None:
            return None
        return Authorization(self.head.ledger, {name: item.ledger for name, item in self.shards.items() if item.ledger})

    @property
    def doubt(self) -> str:
        """What is wrong with one of them; empty for nothing."""
        return next((item.fault for item in (self.head, *self.shards.values()) if item.fault), "")

    @property
    def names(self) -> set[str]:
        """Names of the shards that there are, and of those that the head announces."""
        return {*self.shards, *(self.head.ledger.shards if self.head.ledger else ())}

    def of(self, name: str) -> Stored:
        """One of them."""
        return self.head if name == AUTHORIZATION_HEAD else self.shards.get(name, Stored())


@dataclass(frozen=True)
class Asked:
    """What is asked of the ledgers of one namespace.

    Attributes:
        place: Of the head.
        declared: CacheEpochs that concern them.
        restores: CacheEpochs that say that the namespace was restored, and what they say.
    """

    place: Place
    declared: Sequence[Declared]
    restores: Sequence[tuple[CacheEpoch, Restoration]]


@dataclass
class Authorizations:
    """Reconciles the authorization ledgers of namespaces.

    Attributes:
        site: What ledgers are written with.
        rulers: Namespaces whose ledgers hold for the tenants of all; the installation's comes first.
        policy: Makes the digests of the policy.
        gateways: The longest rights that gateways are given.
    """

    site: LedgerSite
    rulers: Sequence[str]
    policy: PolicyInputs
    gateways: Rights = NO_RIGHTS
    _known: dict[str, Authorization] = field(default_factory=dict)
    _logged: dict[str, str] = field(default_factory=dict)

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Make the ledgers of a namespace say what stands.

        Args:
            key: Of the head.

        Raises:
            ClusterError: They cannot be written; try again later.
        """
        if key.namespace not in self.rulers and not has_authorization(self.site.store, key.namespace):
            return
        asked = self._asked(key.namespace)
        try:
            read, decision = await self._stand(asked)
        except SpecError as error:
            self._log(key.namespace, str(error))
            self.site.outcomes.told(asked.place.key, {item.key: Outcome(item.version, fault=str(error)) for item in asked.declared})
            return
        self._log(key.namespace, "")
        self._known[key.namespace] = decision.state
        self.site.stands(asked.place, read.head, decision.state.head)
        self.site.outcomes.told(asked.place.key, self._outcomes(asked, decision))

    def _log(self, namespace: str, fault: str) -> None:
        """Log a fault once, for as long as it is there."""
        if fault and fault != self._logged.get(namespace):
            log.error("authorization ledger not usable", extra={"namespace": namespace, "fault": fault})
        self._logged[namespace] = fault

    def _asked(self, namespace: str) -> Asked:
        place = Place(namespace, AUTHORIZATION_HEAD, authorization_key(namespace))
        # Tenants of all namespaces may use pools of these, so that their ledgers hold for all.
        namespaces = [None] if namespace in self.rulers else [namespace]
        store = self.site.store
        return Asked(place, list(of_people(store, self.site.targets, namespaces)), list(of_restores(store, namespace)))

    async def _stand(self, asked: Asked) -> tuple[Read, AuthorizationDecision]:
        if settled := self._settled(asked):
            return settled
        return await until_written(lambda: self._step(asked), f"the authorization ledger of {asked.place.namespace}")

    def _settled(self, asked: Asked) -> tuple[Read, AuthorizationDecision] | None:
        """What stands, if what was last seen shows that nothing is to be done."""
        seen = self._seen(asked.place)
        state = seen.state
        if state is None or seen.doubt or not self._with_policy(asked, state) or self._begun(asked, seen) is not None:
            return None
        decision = self._decide(asked, seen, state, state.head.policy)
        return (seen, decision) if not writes(state, decision.state) else None

    def _with_policy(self, asked: Asked, state: Authorization) -> bool:
        return asked.place.namespace != self.rulers[0] or (bool(state.head.policy) and self.policy.current())

    async def _step(self, asked: Asked) -> tuple[Read, AuthorizationDecision] | None:
        """Read and decide; `None` when the first states were written, and what is declared is still to be decided."""
        read = await self._read(asked.place)
        if self._is_first(asked.place, read):
            return await self._first(asked, read)
        begun = self._begun(asked, read)
        if begun is not None:
            after, fault = begun
            head = await self._write(asked.place, read, after)
            log.warning("authorization ledger goes on otherwise", extra={"namespace": asked.place.namespace, "fault": fault})
            if read.head.ledger is None or read.head.ledger.lineage != after.head.lineage:
                await self._announce(head, after.head, fault)
            return None
        state = read.state
        if state is None:
            raise RuntimeError("ledgers that say nothing begin anew; decide upon those")
        decision = self._decide(asked, read, state, await self._policy(asked, state.head.policy))
        head = await self._write(asked.place, read, decision.state)
        return Read(head, read.shards), decision

    async def _announce(self, written: Stored, head: Ledger, fault: str) -> None:
        """Post a new lineage where people look: at the pools of the namespace, or at the head where there are none."""
        document = written.document or {}
        for regarding in self.site.store.all("ServingPool", document["metadata"]["namespace"]) or [document]:
            await announce_lineage(self.site.rest, regarding, head, f"authorization ledger: {fault}")

    async def _policy(self, asked: Asked, standing: Mapping[str, Digest]) -> Mapping[str, Digest]:
        """Digests of the policy: the head of the installation's own namespace holds them, read after it was."""
        return await self.policy.read() if asked.place.namespace == self.rulers[0] else standing

    def _is_first(self, place: Place, read: Read) -> bool:
        """Whether nobody ever saw a head of the namespace."""
        heard = self.site.witnesses(place) or self.site.leases.generation(place.key) or place.namespace in self._known
        return read.state is None and not read.doubt and not heard

    async def _first(self, asked: Asked, read: Read) -> tuple[Read, AuthorizationDecision]:
        place, shards = asked.place, {name: item.ledger for name, item in read.shards.items() if item.ledger}
        declarations = [item.declaration for item in asked.declared]
        restores = [item for _, item in asked.restores]
        lineage, fresh = self.site.fresh(place, read.head), self.site.fresh(place, read.head)
        policy, now = await self._policy(asked, {}), int(self.site.now())
        decision = first(lineage, shards, declarations, restores=restores, policy=policy, fresh=fresh, now=now)
        rights = self.gateways if place.namespace == self.rulers[0] else NO_RIGHTS
        decision = replace(decision, state=replace(decision.state, head=replace(decision.state.head, longest=rights)))
        head = await self._write(place, read, decision.state)
        return Read(head, read.shards), decision

    def _decide(self, asked: Asked, read: Read, state: Authorization, policy: Mapping[str, Digest]) -> AuthorizationDecision:
        declarations = [item.declaration for item in asked.declared]
        fresh, now = self.site.fresh(asked.place, read.head), int(self.site.now())
        decision = decide(state, declarations, policy=policy, fresh=fresh, now=now)
        fence = self.site.fences.of(asked.place.key, decision.state.head.lineage, decision.state.head.sequence)
        if fence is not None and fence.fenced_ms is not None and not writes(state, decision.state):
            decision = replace(decision, state=folded(decision.state, fenced_base=decision.state.head.base))
        if not writes(state, decision.state):
            decision = replace(decision, state=_sealed_anew(read, decision.state))
        return self._with_rights(asked.place, state.head, decision)

    def _with_rights(self, place: Place, before: Ledger, decision: AuthorizationDecision) -> AuthorizationDecision:
        """The head of the installation's own namespace tells of the rights of gateways."""
        if place.namespace != self.rulers[0]:
            return decision
        roster = self.site.leases.roster
        rights, lowers = self.gateways.joined(roster.most(pool=None)), roster.knows_all(self.site.leases.now_ms(), pool=None)
        head = told_of(before, decision.state.head, rights, lowers=lowers, known=self.site.known.get(place.key))
        return replace(decision, state=replace(decision.state, head=head))

    async def _write(self, place: Place, read: Read, after: Authorization) -> Stored:
        """Write what changed, the head last."""
        written = read.head
        for name, ledger in _changed(read, after):
            found = await self.site.objects.write(_place(place, name), ledger, read.of(name))
            where = {"namespace": place.namespace, "ledger": name}
            log.info("ledger written", extra={**where, "lineage": ledger.lineage.generation, "sequence": ledger.sequence})
            written = found if name == AUTHORIZATION_HEAD else written
        return written

    def _begun(self, asked: Asked, read: Read) -> tuple[Authorization, str] | None:
        """The first states of ledgers or of a lineage, and why; `None` when they go on as they are."""
        place, state = asked.place, read.state
        witnesses, known = self.site.witnesses(place), self._known.get(place.namespace)
        fresh = self._fresh(place, read)
        unsealed = self._unverifiable(place, state)
        lost = taken_back(state, self._shards_held(place, read), witnesses) if state else []
        unsure = [*unsealed, *lost]
        doubt = read.doubt or (_UNSEALED if unsealed else _TAKEN_BACK if lost else "")
        if state is None or doubt or state.lost or any(is_restored(state, item) for item in witnesses):
            base = state or known or Authorization(first_head(fresh), {})
            after = merged_authorization(base, witnesses, fresh=fresh, known=known, doubt=bool(doubt))
            return replace(after, head=naming(after.head, unsure)), doubt or "an older ledger was put back, or deleted"
        after = _said(state, [item for _, item in asked.restores], fresh, heard=self._heard(place, state.head))
        if after.head is not state.head:
            return after, "somebody said that the cluster was restored, or confirmed it"
        after = replace(state, head=told(state.head, apart(state.head, witnesses)))
        if after.head is not state.head:
            return after, "a process that holds an earlier lineage knows nothing that is not in this one"
        after = compacted(state, [item.declaration for item in asked.declared], fresh=fresh)
        return (after, "it was full of what nobody declares any more") if writes(state, after) else None

    def _shards_held(self, place: Place, read: Read) -> dict[str, list[Mark]]:
        """The states of shards from which nothing follows that gateways read since."""
        return {name: self.site.leases.held(_place(place, name).key) for name in read.names}

    def _fresh(self, place: Place, read: Read) -> Lineage:
        """A lineage above all that were seen of the head, and of shards that were taken back."""
        fresh = self.site.fresh(place, read.head)
        generations = (self.site.leases.generation(_place(place, name).key) for name in read.names)
        return replace(fresh, generation=max(fresh.generation, *(number + 1 for number in generations), 1))

    def _heard(self, place: Place, head: Ledger) -> bool:
        """Whether everybody acknowledged the head or has no right: what he knows was in his lease before, and was merged."""
        fence = self.site.fences.of(place.key, head.lineage, head.sequence)
        return fence is not None and (fence.fenced_ms is not None or fence.progress.heard)

    def _unverifiable(self, place: Place, state: Authorization | None) -> list[Mark]:
        """What processes hold and nobody can verify, and is neither a state that the ledger had nor one that was dealt with."""
        marks = self.site.leases.unsealed(place.key, lambda item: bool(self.site.objects.witnessed(place, [item])[1]))
        if state is None:
            return marks
        return [mark for mark in marks if not (state.head.knows(mark) or state.head.forgot(mark) or is_named(state.head, mark))]

    def _outcomes(self, asked: Asked, decision: AuthorizationDecision) -> dict[Key, Outcome]:
        name, head = asked.place.key, decision.state.head
        found = {item.key: self._outcome(name, item, decision) for item in asked.declared}
        for epoch, _ in asked.restores:
            key, version = Key("CacheEpoch", epoch.namespace, epoch.name), version_of(epoch, "")
            sequence = announced_at(head, version, self.site.outcomes.of(key).get(name))
            found[key] = Outcome(version, Epoch(head.restored), None, None, head.lineage, sequence, unconfirmed=head.unconfirmed)
        return found

    def _outcome(self, ledger: str, item: Declared, decision: AuthorizationDecision) -> Outcome:
        name, head = item.declaration.name, decision.state.head
        given, hold = decision.given.get(name), decision.held.get(name)
        at = announced_at(head, item.version, self.site.outcomes.of(item.key).get(ledger))
        return Outcome(
            item.version,
            epoch=decision.epochs[name],
            given=given,
            hold=hold,
            lineage=head.lineage,
            sequence=at if item.stands(given, hold) else 0,
            unconfirmed=head.unconfirmed,
        )

    def _seen(self, place: Place) -> Read:
        return Read(
            self.site.objects.seen(place), {name: self.site.objects.seen(_place(place, name)) for name in self._shards(place)}
        )

    async def _read(self, place: Place) -> Read:
        """The head first: what is read after it is at least as new."""
        head = await self.site.objects.read(place)
        names = self._shards(place) | set(head.ledger.shards if head.ledger else ())
        shards = {name: await self.site.objects.read(_place(place, name)) for name in sorted(names)}
        return Read(head, {name: item for name, item in shards.items() if item.document})

    def _shards(self, place: Place) -> set[str]:
        """Names of the shards that there are or may be soon."""
        head = self.site.objects.seen(place).ledger
        found = {item["metadata"]["name"] for item in self.site.store.all("EpochLedger", place.namespace)}
        declared = {shard_name(item.declaration.target) for item in self._asked(place.namespace).declared}
        return {name for name in found if is_shard(name)} | declared | set(head.shards if head else ())


def _said(state: Authorization, asked: Sequence[Restoration], fresh: Lineage, *, heard: bool) -> Authorization:
    """The ledgers once people said that the cluster was restored; with the head every shard goes on in a new lineage."""
    head = said(state.head, asked, fresh=fresh, heard=heard)
    if head.lineage == state.head.lineage:
        return Authorization(head, state.shards)
    shards = {name: said(shard, asked, fresh=fresh) for name, shard in state.shards.items()}
    marks = {**head.shards, **{name: shard.mark for name, shard in shards.items()}}
    return Authorization(replace(head, shards=marks, history=()), shards)


def _sealed_anew(read: Read, state: Authorization) -> Authorization:
    """The ledgers with seals of the present key, where they carry those of an older one; the head announces what that makes."""
    shards = {name: sealed_anew(read.of(name), shard) for name, shard in state.shards.items()}
    head = announced(state.head, shards, state.head.policy)
    return Authorization(sealed_anew(read.head, head), shards)


def _changed(read: Read, after: Authorization) -> Sequence[tuple[str, Ledger]]:
    before = read.state
    if before is not None:
        return writes(before, after)
    shards = [(name, shard) for name, shard in sorted(after.shards.items()) if shard != read.of(name).ledger]
    return [*shards, (AUTHORIZATION_HEAD, after.head)]


def _place(head: Place, name: str) -> Place:
    return head if name == AUTHORIZATION_HEAD else Place(head.namespace, name, shard_key(head.namespace, name))
