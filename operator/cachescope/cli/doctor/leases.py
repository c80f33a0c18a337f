"""Do guards and gateways renew their leases.

A lease says when it was written, by the clock of its process's machine, and of other objects the API server notes it, by its own; a
margin stands for the difference from this machine's.
A lease whose pod is gone is the operator's to delete; one of a pod that runs, and has no other, is a process without a right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cachescope.cli.doctor.findings import Document, Finding, Unseen, failed, noted, passed, unseen
from cachescope.cli.doctor.observed import Observed, title

NAME = "leases"
MARGIN = timedelta(seconds=60)
LEFT_OVER = timedelta(hours=1)
"""After this the operator has had every chance to delete what a pod left behind."""


def check(observed: Observed) -> Iterator[Finding]:
    """Every check of this file."""
    leases, pods = observed.of("fenceleases"), observed.of("pods")
    if isinstance(leases, Unseen) or isinstance(pods, Unseen):
        yield from (unseen(NAME, part) for part in (leases, pods) if isinstance(part, Unseen))
        return
    running = {pod["metadata"]["uid"]: title(pod) for pod in pods if _runs(pod)}
    stale = [lease for lease in leases if _age(lease, observed.now) > length(lease) + MARGIN]
    fresh = {_pod_uid(lease) for lease in leases if lease not in stale}
    for lease in stale:
        yield from _judge(lease, observed.now, running, fresh)
    if all(_pod_uid(lease) not in running or _pod_uid(lease) in fresh for lease in stale):
        yield passed(NAME, f"{len(leases) - len(stale)} processes renew theirs")


def _judge(lease: Document, now: datetime, running: dict[str, str], fresh: set[str]) -> Iterator[Finding]:
    uid, age = _pod_uid(lease), _age(lease, now)
    if uid in running and uid not in fresh:
        yield failed(
            NAME,
            f"the {lease['spec']['holder'].lower()} in {running[uid]} last renewed {title(lease)} {int(age.total_seconds())} s ago",
            "see its log, whether it may reach the API server (apiServers of the chart, NetworkPolicy, Role), and its node's clock",
        )
    elif uid not in running and age > LEFT_OVER:
        yield noted(NAME, f"{title(lease)} is left of a pod that is gone", "see whether the operator works: it deletes these")


def written(document: Document) -> datetime:
    """When an object was last written, as far as it tells."""
    metadata = document["metadata"]
    times = [entry["time"] for entry in metadata.get("managedFields") or [] if entry.get("time")]
    return max([*map(datetime.fromisoformat, [metadata["creationTimestamp"], *times]), *_renewed(document)])


def _renewed(lease: Document) -> Iterator[datetime]:
    with contextlib.suppress(ValueError):
        given = datetime.fromisoformat((lease.get("spec") or {}).get("renewTime") or "")
        yield given if given.tzinfo else given.replace(tzinfo=UTC)


def length(lease: Document) -> timedelta:
    """Length of the right of a lease."""
    return timedelta(seconds=lease["spec"]["leaseSeconds"])


def _age(lease: Document, now: datetime) -> timedelta:
    return now - written(lease)


def _pod_uid(lease: Document) -> str:
    return str(lease["metadata"]["name"].partition(".")[0])


def _runs(pod: Document) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and (pod.get("status") or {}).get("phase") == "Running"
