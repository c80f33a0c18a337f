"""How far the fences of a template are: its own, and those of every pool that was made of it."""

from __future__ import annotations

from collections.abc import Iterator

from cachescope.controller.declared_epochs import Declared, of_pool
from cachescope.controller.fences import Fence
from cachescope.controller.installation import Installation
from cachescope.controller.origins import made_of
from cachescope.core.types import TargetName
from cachescope.kube.rest import Document


def fences_of_tenants(site: Installation, template: Document, target: TargetName) -> list[Fence | None]:
    """Fences of the pools that were made of a template; `None` for each that was not announced yet.

    Each ledger has to hold what is declared for the template: that it is fenced as it stands says nothing before.

    Args:
        site: The installation.
        template: It.
        target: Name of its epoch target.
    """
    uids = [str(item["metadata"]["uid"]) for item in made_of(site.store, template)]
    declared = [item for item in of_pool(site.store, site.keys.targets, template) if item.declaration.target == target]
    found = [_announced(site, item, uid) for item in declared for uid in uids]
    return [*found, *_standing(site, uids)]


def _announced(site: Installation, item: Declared, uid: str) -> Fence | None:
    outcome = site.outcomes.of(item.key).get(uid)
    if outcome is None or outcome.version != item.version or outcome.lineage is None:
        return None
    if not outcome.sequence:
        return _now(site, uid)  # it is held, as its own status says: nothing of it is to be fenced
    return site.fences.of(uid, outcome.lineage, outcome.sequence)


def _standing(site: Installation, uids: list[str]) -> Iterator[Fence | None]:
    standing = site.fences.standing()
    yield from (_now(site, uid) for uid in uids if uid in standing)


def _now(site: Installation, uid: str) -> Fence | None:
    ledger = site.fences.standing().get(uid)
    return None if ledger is None else site.fences.of(uid, ledger.lineage, ledger.sequence)
