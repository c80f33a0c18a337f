"""Command line: ``python -m images <build [NAME...]|list|base>``."""

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from images import references
from images.building import Workshop
from images.catalogue import Image, select
from images.delivery import Archives, Builder, Destination, Node, Registry, destination
from images.errors import ImageError
from images.layout import Layout, from_environment
from images.progress import Progress, complain, show


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m images", description="The container images of the project.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--base", help="image to build on, e.g. python:3.11-slim (default: CACHESCOPE_BASE, else ours)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build", parents=[shared], help="build what changed, and bring it to the cluster")
    build.add_argument("names", nargs="*", metavar="NAME", help="images to build (default: all)")
    target = build.add_mutually_exclusive_group()
    target.add_argument("--push", metavar="REGISTRY/PREFIX", help="push to a registry instead (default: CACHESCOPE_REGISTRY)")
    target.add_argument("--archives", metavar="FOLDER", type=Path, help="write archives into a folder instead")
    target.add_argument("--keep", action="store_true", help="keep them in the builder, for a cluster that is still coming up")
    names = verbs.add_parser("list", parents=[shared], help="print NAME IMAGE lines; builds nothing")
    names.add_argument("--json", action="store_true", help="print an object of name to image")
    names.add_argument("--registry", metavar="REGISTRY/PREFIX", help="name them as pushed there (default: CACHESCOPE_REGISTRY)")
    verbs.add_parser("base", parents=[shared], help="make the base image, and print its name")
    return parser.parse_args()


def _destination(arguments: argparse.Namespace) -> Destination:
    if arguments.archives:
        return Archives(arguments.archives)
    if arguments.keep:
        return Builder()
    registry = _registry(arguments.push)
    return Registry(registry) if registry else Node()


def _registry(option: str | None) -> str | None:
    return option or os.environ.get("CACHESCOPE_REGISTRY") or None


@contextmanager
def _alone(layout: Layout, progress: Progress) -> Iterator[None]:
    layout.work.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.line("another run builds images; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(images: Sequence[Image], base: str, place: Destination, progress: Progress) -> None:
    layout = from_environment()
    with _alone(layout, progress):
        missing = []
        for image in images:
            reference = references.reference(image, base)
            if place.has(reference):
                progress.line(f"{image.name}: up to date ({reference})")
            else:
                missing.append((image, reference))
        if missing:
            _bring(missing, Workshop(layout, progress, base), place)


def _bring(missing: list[tuple[Image, str]], workshop: Workshop, place: Destination) -> None:
    """Builds and delivers, two images at a time: the large one, which takes longest, beside the others."""

    def bring(image: Image, reference: str) -> None:
        workshop.ensure(image, reference)
        place.deliver(workshop, image, reference)

    if not {reference for _, reference in missing} <= workshop.images().keys():
        workshop.ensure_base()
    with ThreadPoolExecutor(max_workers=2) as pool:
        ordered = sorted(missing, key=lambda pair: not pair[0].large)
        running = [pool.submit(bring, image, reference) for image, reference in ordered]
    for one in running:
        one.result()
    # Not before all are built: whoever builds or lists meanwhile fails when a layer goes that he has just seen.
    if not isinstance(place, Builder):
        for image, reference in ordered:
            workshop.tidy(image, reference)
    workshop.prune()


def _list(base: str, registry: str | None, *, as_json: bool) -> None:
    named = {image.name: references.reference(image, base) for image in select([])}
    if registry:
        named = {name: destination(registry, reference) for name, reference in named.items()}
    show(json.dumps(named) if as_json else "\n".join(f"{name} {reference}" for name, reference in named.items()))


def _make_base(base: str, progress: Progress) -> None:
    layout = from_environment()
    with _alone(layout, progress):
        Workshop(layout, progress, base).ensure_base()
    show(base)


def _carry_out(arguments: argparse.Namespace, progress: Progress) -> None:
    base = references.chosen_base(arguments.base)
    if arguments.verb == "list":
        _list(base, _registry(arguments.registry), as_json=arguments.json)
    elif arguments.verb == "base":
        _make_base(base, progress)
    else:
        _build(select(arguments.names), base, _destination(arguments), progress)


def main() -> int:
    """Runs one verb; returns the exit code."""
    try:
        _carry_out(_arguments(), Progress())
    except ImageError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        complain("interrupted; run the same command again, it goes on where it stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
