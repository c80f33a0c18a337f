"""Command line: ``python -m e2e.cluster <up|down|status|load|has|env|tools>``."""

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import session
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.layout import Layout, from_environment
from e2e.cluster.local import binaries
from e2e.cluster.progress import Progress, complain, show
from e2e.cluster.providers import PROVIDERS, Provider, choose, observe_host, provider


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="A real Kubernetes for end-to-end runs.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--provider", default="auto", choices=("auto", *PROVIDERS))
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", parents=[shared], help="bring the cluster up, or repair it")
    down = verbs.add_parser("down", parents=[shared], help="take the cluster down")
    down.add_argument("--purge", action="store_true", help="also remove the node's images and the built programs")
    verbs.add_parser("status", parents=[shared], help="show the parts; exit code 1 when one is not running")
    load = verbs.add_parser("load", parents=[shared], help="bring image archives to the node")
    load.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    has = verbs.add_parser("has", parents=[shared], help="exit code 0 when the node has the image, else 1")
    has.add_argument("image")
    verbs.add_parser("tools", help="build the tools that the cluster itself does not need: helm")
    verbs.add_parser("env", parents=[shared], help="print the shell lines that select the cluster")
    return parser.parse_args()


@contextmanager
def _locked(layout: Layout, progress: Progress, *, kind: int) -> Iterator[None]:
    """Holds the lock of the cache folder: two runs that change one cluster would undo each other; loads may overlap."""
    layout.cache.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.line("another run changes this cluster; waiting for it ...")
            fcntl.flock(lock, kind)
        yield


def _chosen(arguments: argparse.Namespace, layout: Layout, progress: Progress) -> Provider:
    recorded = session.recorded_provider(layout)
    if arguments.provider == "auto" and (recorded or arguments.verb == "down"):
        return provider(recorded or "local", layout, progress)  # only the local one may have left files without a record
    name = choose(arguments.provider, os.environ.get("CACHESCOPE_PROVIDER"), observe_host)
    if recorded and name != recorded:
        raise ClusterSetupError(f"a {recorded} cluster is up", remedy="run `python -m e2e.cluster down` first.")
    return provider(name, layout, progress)


def _carry_out(arguments: argparse.Namespace, layout: Layout, progress: Progress) -> bool:
    if arguments.verb == "env":
        show(session.environment(layout))
        return True
    if arguments.verb == "tools":
        binaries.build_tools(layout, progress)
        return True
    if arguments.verb in {"status", "load", "has"}:
        session.environment(layout)
    chosen = _chosen(arguments, layout, progress)
    if arguments.verb == "status":
        return chosen.status()
    if arguments.verb == "has":
        return chosen.has(arguments.image)
    with _locked(layout, progress, kind=fcntl.LOCK_SH if arguments.verb == "load" else fcntl.LOCK_EX):
        if arguments.verb == "up":
            chosen.up()
            progress.line(f"up; select it with: . {layout.env}")
        elif arguments.verb == "down":
            chosen.down(purge=arguments.purge)
        else:
            chosen.load(arguments.archives)
    return True


def main() -> int:
    """Runs one verb; returns the exit code."""
    try:
        return 0 if _carry_out(_arguments(), from_environment(), Progress()) else 1
    except ClusterSetupError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        complain("interrupted; run the same command again, it goes on where it stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
