"""Faults of the cluster itself: an API server or a node that is gone, and an etcd that went back.

They come last: whoever else uses the cluster notices them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Lineage
from e2e.cluster.local.processes import send
from e2e.faults import restore
from e2e.faults.declarations import POOL, is_true
from e2e.faults.of_processes import GUARD_SECONDS, RIGHT_SECONDS
from e2e.faults.processes import cut_off, of_pod
from e2e.faults.scene import FENCE_SECONDS, Scene
from e2e.faults.site import ENGINES, WELL_SECONDS, Site
from e2e.faults.table import fault
from e2e.stack import api, kubectl
from e2e.stack.install import GATEWAY_PODS, OPERATOR_PODS
from e2e.stack.waiting import until

OUTAGE_SECONDS = FENCE_SECONDS + 30
"""After an outage nobody leads for a while: an attempt that hangs ends after 10 s, and then the Lease is looked at for 15 s."""


@fault("the API server is gone for 5 s")
def short_outage(scene: Scene) -> None:
    """Longer than every right, once the API server has started again."""
    scene.revoke()
    scene.control_plane.be_gone(5)
    scene.fenced(OUTAGE_SECONDS)


@fault("the API server is gone for 60 s", slow=True)
def long_outage(scene: Scene) -> None:
    """Longer than everything that goes on without a right."""
    scene.revoke()
    scene.control_plane.be_gone(60)
    scene.fenced(OUTAGE_SECONDS)


@fault("etcd is restored, and every process remembers", slow=True)
def restored_with_all(scene: Scene) -> None:
    """What was fenced stays fenced, although the cluster knows nothing of it any more."""
    with _restored(scene):
        scene.control_plane.put_back()


@fault("etcd is restored, and one guard remembers", slow=True)
def restored_with_one(scene: Scene) -> None:
    """One witness is enough.

    Who remembers nothing serves what was restored until the operator has found it: so nobody asks before, as the procedure says.
    """
    forgetting = [*scene.site.pods()[1:], *scene.site.pods(GATEWAY_PODS), *scene.site.pods(OPERATOR_PODS)]
    with _restored(scene) as found, scene.quiet():
        scene.control_plane.put_back(lambda: restore.forget(forgetting))
        found()
        # The one under way may have read before; rounds that ended later began later.
        known = scene.site.rounds()
        until(lambda: _all_read(known, scene.site.rounds()), "every guard has read the ledgers since then", WELL_SECONDS)


@fault("etcd is restored, and another change takes the sequence of the lost one", slow=True)
def restored_and_changed(scene: Scene) -> None:
    """No guard and no gateway is heard as a witness when the operator, which remembers nothing, writes anew."""
    witnesses = [*scene.site.pods(), *scene.site.pods(GATEWAY_PODS)]
    operators = scene.site.pods(OPERATOR_PODS)
    with _restored(scene), ExitStack() as unheard:
        for pod in witnesses:
            unheard.enter_context(cut_off(pod))
        scene.control_plane.put_back(lambda: restore.forget(operators))
        before = lineage(scene.site, POOL)
        scene.revoke()  # it gives the same epochs as the lost one, which must not be taken for it
        until(
            lambda: is_true(scene.site.namespace, scene.latest("rollback"), "Accepted"),
            "the operator has written anew",
            WELL_SECONDS,
        )
        if lineage(scene.site, POOL) != before:
            raise AssertionError("the operator knew of the restore before it wrote; stop whoever told it")


@fault("the node of an engine is gone", slow=True)
def node_gone(scene: Scene) -> None:
    """Nobody starts the engine again or says that it ended: its guard is waited for as long as it could have a right."""
    pod = scene.site.pods()[0]
    with scene.control_plane.without_kubelet():
        for process in of_pod(pod):
            send(process, signal.SIGKILL)
        scene.revoke()
        scene.fenced_by_expiry("rollback", GUARD_SECONDS)
    kubectl.run("delete", "pod", pod["metadata"]["name"], "--grace-period=1", namespace=scene.site.namespace)


def _all_read(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether every guard has made two rounds, or has begun anew and made two."""
    rounds = (count - before[name] if count >= before.get(name, 0) and name in before else count for name, count in now.items())
    return len(now) == ENGINES and all(made >= 2 for made in rounds)


@contextmanager
def _restored(scene: Scene) -> Iterator[Callable[[], None]]:
    """A fence whose every trace in etcd is lost in the block; yields a wait until both ledgers go on in new lineages."""
    names = (POOL, AUTHORIZATION_HEAD)
    scene.control_plane.copy()
    scene.revoke()
    scene.fenced(OUTAGE_SECONDS)
    before = {name: lineage(scene.site, name) for name in names}

    def found() -> None:
        until(
            lambda: all(_is_later(scene.site, name, before[name]) for name in names), "new lineages", WELL_SECONDS + RIGHT_SECONDS
        )

    yield found
    found()
    scene.fenced(OUTAGE_SECONDS)


def lineage(site: Site, name: str) -> Lineage:
    """In which lineage a ledger is."""
    return parse_ledger(api.get("epochledgers", name, site.namespace)["spec"]).lineage


def _is_later(site: Site, name: str, before: Lineage) -> bool:
    try:
        return lineage(site, name).generation > before.generation
    except api.UnreadError:
        return False
