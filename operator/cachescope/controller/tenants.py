"""Tenants: who holds which identity, written one after another.

What was decided stands in memory from then on, so two tenants never get one identity because the second did not see the first. It
is written under a lock, and a write whose answer was lost is read back before anything else is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from cachescope.api.claim_rules import ClaimRules
from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.documents import parse
from cachescope.api.tenants import Tenant
from cachescope.controller.claim_index import Owner
from cachescope.controller.identities import Acceptance, Claimants, claimant_of
from cachescope.controller.installation import Installation
from cachescope.controller.store import Key
from cachescope.controller.tenant_secrets import TenantSecrets
from cachescope.controller.unfenced_denials import unfenced_denials
from cachescope.controller.verdicts import Verdict, accepted_spec, fields_of, report
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, NotFoundError

log = logging.getLogger(__name__)

DENIED_SECONDS: Final = 0.5
"""After which it is looked again whether what denies a new tenant is fenced."""
AT_ONCE: Final = 4
"""Tenants that are decided before others get their turn."""
SHOWN_CHARACTERS: Final = 300


class Tenants:
    """Reconciles tenants.

    Args:
        site: The installation.
        rulers: Namespaces whose authorization ledgers hold for the tenants of all.
        now: Seconds since 1970.
        clock: Seconds of a clock that only rises.
    """

    def __init__(
        self,
        site: Installation,
        rulers: Sequence[str] = (),
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site = site
        self._rulers = rulers
        self._now = now
        self._claimants = Claimants(ClaimRules(site.settings, site.platform.namespace), clock=clock)
        self._secrets = TenantSecrets(site.rest, site.store, clock=clock, again=site.again)
        self._lock = asyncio.Lock()
        self._unsure: set[Key] = set()
        self._awaiting: dict[Key, list[str]] = {}

    def hear(self, key: Key, _old: Document | None, new: Document | None) -> None:
        """Take a change of the store over; when an identity becomes free, those who wait for it are looked at again."""
        if key.kind != "Tenant":
            return
        if new is None:
            self._secrets.forget(key)
            self._awaiting.pop(key, None)
        freed = self._claimants.remove(_owner(key)) if new is None else self._claimants.put(claimant_of(new))
        self._call(freed)

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Decide which identities a tenant holds, and say so.

        Raises:
            ClusterError: It could not be written; try again later.
        """
        document = self._site.store.staying(key)
        if document is None:
            return
        tenant = await accepted_spec(self._site.rest, Tenant, document)
        if tenant is None:
            return
        secrets = await self._secrets.faults(key, tenant)
        async with self._lock:
            await self._settle()
            self._call(self._claimants.expire())
            while self._claimants.decide(AT_ONCE):  # noqa: ASYNC110 - it works, and only lets others have their turn
                await asyncio.sleep(0)
            await self._write(key, secrets)

    async def _write(self, key: Key, secrets: Mapping[str, Reason]) -> None:
        document = self._site.store.staying(key)
        if document is None:
            return
        try:
            tenant = parse(Tenant, document, f"Tenant {key.name}")
        except SpecError:
            return  # it changed meanwhile, which brings it here again
        if denied := self._denied(key, document):
            self._site.again(key, DENIED_SECONDS)
            await report(self._site.rest, document, fields_of(document), [_no(Reason.AWAITING_FENCE, _denying(denied))])
            return
        found = self._claimants.acceptance(_owner(key), max(int(self._now() * 1000), self._claimants.latest + 1))
        if (seconds := self._claimants.waits(_owner(key))) is not None:
            self._site.again(key, seconds)
        accepted = [{"claim": claim, "since": moment} for claim, moment in found.accepted.items()]
        self._unsure.add(key)
        try:
            await report(self._site.rest, document, {"accepted": accepted}, [_accepted(tenant, found, secrets)])
        except ClusterError as error:
            if getattr(error, "status", 0) in range(400, 500):
                self._unsure.discard(key)  # an answer: nothing was written
            raise
        self._unsure.discard(key)

    def _denied(self, key: Key, document: Document) -> list[str]:
        """For what a tenant that holds nothing has to wait: what it holds already is refused by gateways, and stays its own."""
        if (document.get("status") or {}).get("accepted"):
            return []
        site = self._site
        found = unfenced_denials(
            site.store, site.keys.targets, self._rulers, tenant=key, outcomes=site.outcomes, fences=site.fences
        )
        self._log_denied(key, sorted(found))
        return sorted(found)

    def _log_denied(self, key: Key, by: list[str]) -> None:
        """Log once what a tenant waits for: it is looked at twice a second. No log names a tenant."""
        if by and by != self._awaiting.get(key):
            log.info("a tenant waits until it is denied", extra={"namespace": key.namespace, "by": by})
        if by:
            self._awaiting[key] = by
        else:
            self._awaiting.pop(key, None)

    async def _settle(self) -> None:
        """Read back what was written when the answer was lost."""
        for key in sorted(self._unsure):
            with contextlib.suppress(NotFoundError):
                self._site.store.put("Tenant", await self._site.rest.get(f"{collection_of('Tenant', key.namespace)}/{key.name}"))
            self._unsure.discard(key)

    def _call(self, owners: Iterable[Owner]) -> None:
        for owner in sorted(owners):
            self._site.again(Key("Tenant", *owner), 0)


def _owner(key: Key) -> Owner:
    return Owner(key.namespace, key.name)


def _denying(epochs: Sequence[str]) -> str:
    """Why a tenant holds nothing yet."""
    return f"CacheEpochs deny it and are not fenced yet: {', '.join(epochs)}; it holds no identity before: see what they wait for"


def _accepted(tenant: Tenant, found: Acceptance, secrets: Mapping[str, Reason]) -> Verdict:
    fault = _of_claims(found) or _of_secrets(secrets)
    if fault is not None:
        return fault
    if tenant.spec.suspended:
        return Verdict(ConditionType.ACCEPTED, "True", Reason.SUSPENDED, "all requests of the tenant are refused")
    return Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, f"{len(found.accepted)} identities are recognised")


def _of_claims(found: Acceptance) -> Verdict | None:
    if found.taken:
        advice = "narrow it by a claim that has one value per token, or remove it"
        return _no(Reason.IDENTITY_TAKEN, f"another tenant holds an identity that overlaps {_shown(found.taken)}; {advice}")
    if found.foreign:
        advice = "move the Tenant or the ServiceAccount, or have the platform declare the Tenant in the installation's namespace"
        return _no(Reason.FOREIGN_SERVICE_ACCOUNT, f"a ServiceAccount is of another namespace: {_shown(found.foreign)}; {advice}")
    if found.unknown:
        what = f"the installation's settings have nothing for this namespace that could verify {_shown(found.unknown)}"
        return _no(Reason.UNKNOWN_PROVIDER, f"{what}; use another identity provider or trust domain, or have the platform add it")
    return None


def _of_secrets(secrets: Mapping[str, Reason]) -> Verdict | None:
    for name, reason in sorted(secrets.items()):
        if reason is Reason.SECRET_NOT_FOUND:
            return _no(reason, f"the Secret {name!r} does not exist; make it with `cachescope keys create`")
        return _no(reason, f'the Secret {name!r} is not read without the label {API_KEYS_LABEL}: "true"; add it')
    return None


def _no(reason: Reason, message: str) -> Verdict:
    return Verdict(ConditionType.ACCEPTED, "False", reason, message)


def _shown(claims: tuple[str, ...]) -> str:
    """The first of some claims: what to do about it must fit into the message, too."""
    first = claims[0] if len(claims[0]) <= SHOWN_CHARACTERS else f"{claims[0][:SHOWN_CHARACTERS]}…"
    return first if len(claims) == 1 else f"{first} and {len(claims) - 1} more"
