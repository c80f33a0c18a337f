"""PublicSources: whether each may be shared now, said when that changes, also when nothing but time passes.

Gateways do not wait for it: they judge the approval itself, at each request. What is said here is for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.documents import parse
from cachescope.api.public_sources import PublicSource
from cachescope.controller.installation import Installation
from cachescope.controller.store import Key
from cachescope.controller.verdicts import Verdict, report
from cachescope.core.errors import SpecError
from cachescope.core.public_sources import Usability
from cachescope.kube.rest import Document

LONGEST_SECONDS: Final = 24 * 3600.0
"""After which it is looked at again all the same: the wall clock may have been set meanwhile."""
_SAID: Final[Mapping[Usability, tuple[Reason, str]]] = {
    Usability.APPROVED: (Reason.APPROVED, ""),
    Usability.NOT_APPROVED: (Reason.NOT_APPROVED, "nobody has approved it yet, or not for now; set spec.approval"),
    Usability.EXPIRED: (Reason.EXPIRED, "its approval has ended; have it approved anew, and set spec.approval"),
    Usability.WITHDRAWN: (Reason.WITHDRAWN, "it was withdrawn; requests with it are shared within a tenant at most"),
}


@dataclass(frozen=True)
class PublicSources:
    """Reconciles public sources.

    Attributes:
        site: The installation.
        now: Seconds since 1970.
    """

    site: Installation
    now: Callable[[], float]

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Say whether a source may be shared, and come back when that ends.

        Raises:
            ClusterError: It could not be written; try again later.
        """
        document = self.site.store.staying(key)
        if document is None:
            return
        now = self.now()
        await report(self.site.rest, document, {}, [self._verdict(key, document, now)])

    def _verdict(self, key: Key, document: Document, now: float) -> Verdict:
        try:
            source = parse(PublicSource, document, f"PublicSource {key.name}").source()
        except SpecError as error:
            return Verdict(ConditionType.USABLE, "False", Reason.INVALID_SPEC, str(error))
        later = source.next_change(now)
        if later is not None:
            self.site.again(key, min(later - now, LONGEST_SECONDS))
            for scope in self.site.store.all("CacheScope", key.namespace):
                self.site.again(Key("CacheScope", key.namespace, scope["metadata"]["name"]), min(later - now, LONGEST_SECONDS))
        usability = source.usability(now)
        reason, message = _SAID[usability]
        return Verdict(ConditionType.USABLE, "True" if usability is Usability.APPROVED else "False", reason, message)
