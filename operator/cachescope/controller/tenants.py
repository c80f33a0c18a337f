"""Tenants: who holds which identity, decided one after another.

A decision is made under a lock, on everything that was written before. A write whose answer was lost is read back before anything
else is decided: two tenants never get one identity because the second did not see the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.documents import parse
from cachescope.api.tenants import Tenant
from cachescope.controller.identities import Acceptance, Claimants, claimant_of, decide
from cachescope.controller.installation import Installation
from cachescope.controller.store import Key
from cachescope.controller.verdicts import Verdict, report
from cachescope.controller.watched_kinds import API_KEYS
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, NotFoundError

LOOK_AGAIN_SECONDS = 15.0


class Tenants:
    """Reconciles tenants.

    Args:
        site: The installation.
        now: Seconds since 1970.
    """

    def __init__(self, site: Installation, *, now: Callable[[], float] = time.time) -> None:
        self._site = site
        self._now = now
        self._claimants = Claimants()
        self._lock = asyncio.Lock()
        self._unsure: set[Key] = set()

    def hear(self, key: Key, old: Document | None, new: Document | None) -> None:
        """Take a change of the store over; when an identity becomes free, those who wait for one are looked at again."""
        if key.kind != "Tenant":
            return
        if old is not None and (new is None or old["metadata"]["uid"] != new["metadata"]["uid"]):
            self._claimants.remove(old["metadata"]["uid"])
        if new is not None:
            self._take(new)
        if old is not None and (new is None or _held(old) - _held(new)):
            for item in self._site.store.all("Tenant"):
                if _refused(item):
                    self._site.again(Key("Tenant", item["metadata"].get("namespace", ""), item["metadata"]["name"]), 0)

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Decide which identities a tenant holds, and say so.

        Raises:
            ClusterError: It could not be written; try again later.
        """
        document = self._site.store.get(*key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            return
        try:
            tenant = parse(Tenant, document, f"Tenant {key.name}")
        except SpecError as error:
            kept = (document.get("status") or {}).get("accepted") or []
            await report(self._site.rest, document, {"accepted": kept}, [_no(Reason.INVALID_SPEC, str(error))])
            return
        secrets = await self._secret_faults(key, tenant)
        async with self._lock:
            await self._settle()
            await self._decide(key, secrets)

    async def _decide(self, key: Key, secrets: Mapping[str, Reason]) -> None:
        document = self._site.store.get(*key)
        if document is None:
            return
        tenant = parse(Tenant, document, f"Tenant {key.name}")
        mine = claimant_of(tenant)
        since = max(int(self._now() * 1000), self._claimants.latest + 1)
        providers = [item.name for item in self._site.settings.identity_providers]
        found = decide(mine, self._claimants.rivals(mine), providers=providers, since=since)
        accepted = [{"claim": claim, "since": moment} for claim, moment in found.accepted.items()]
        self._unsure.add(key)
        try:
            await report(self._site.rest, document, {"accepted": accepted}, [_accepted(tenant, found, secrets)])
        except ClusterError as error:
            if getattr(error, "status", 0) in range(400, 500):
                self._unsure.discard(key)  # an answer: nothing was written
            raise
        self._unsure.discard(key)

    async def _settle(self) -> None:
        """Read back what was written when the answer was lost."""
        for key in sorted(self._unsure):
            with contextlib.suppress(NotFoundError):
                self._site.store.put("Tenant", await self._site.rest.get(f"{collection_of('Tenant', key.namespace)}/{key.name}"))
            self._unsure.discard(key)

    async def _secret_faults(self, key: Key, tenant: Tenant) -> dict[str, Reason]:
        names = [item.secret_name for item in tenant.spec.identities.api_keys]
        found = {name: await self._secret_fault(tenant.namespace, name) for name in names}
        faults = {name: reason for name, reason in found.items() if reason}
        if faults:
            self._site.again(key, LOOK_AGAIN_SECONDS)
        return faults

    async def _secret_fault(self, namespace: str, name: str) -> Reason | None:
        if self._site.store.get(API_KEYS, namespace, name):
            return None
        try:
            secret = await self._site.rest.get(f"{collection_of('Secret', namespace)}/{name}")
        except NotFoundError:
            return Reason.SECRET_NOT_FOUND
        if (secret["metadata"].get("labels") or {}).get(API_KEYS_LABEL) != "true":
            return Reason.SECRET_NOT_LABELLED
        self._site.store.put(API_KEYS, secret)
        return None

    def _take(self, document: Document) -> None:
        try:
            self._claimants.put(claimant_of(parse(Tenant, document, "Tenant")))
        except SpecError:
            return  # what it held it holds: a spec that cannot be read releases nothing


def _accepted(tenant: Tenant, found: Acceptance, secrets: Mapping[str, Reason]) -> Verdict:
    if found.taken:
        what = "; ".join(found.taken)
        return _no(Reason.IDENTITY_TAKEN, f"another tenant holds an identity that overlaps {what}; narrow or remove the claim")
    if found.unknown:
        what = "; ".join(found.unknown)
        return _no(Reason.UNKNOWN_PROVIDER, f"the installation has no such identity provider: {what}; use one of its settings")
    for name, reason in sorted(secrets.items()):
        if reason is Reason.SECRET_NOT_FOUND:
            return _no(reason, f"the Secret {name!r} does not exist; make it with `cachescope keys create`")
        return _no(reason, f'the Secret {name!r} is not read without the label {API_KEYS_LABEL}: "true"; add it')
    if tenant.spec.suspended:
        return Verdict(ConditionType.ACCEPTED, "True", Reason.SUSPENDED, "all requests of the tenant are refused")
    return Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, f"{len(found.accepted)} identities are recognised")


def _no(reason: Reason, message: str) -> Verdict:
    return Verdict(ConditionType.ACCEPTED, "False", reason, message)


def _held(document: Mapping[str, Any] | None) -> set[str]:
    return {item["claim"] for item in ((document or {}).get("status") or {}).get("accepted") or ()}


def _refused(document: Mapping[str, Any]) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(item["reason"] == Reason.IDENTITY_TAKEN.value for item in conditions)
