"""Fetches spin, and checks one variant of a model with it.

spin comes from Debian's archive by apt, pinned and unpacked into the cache folder: nothing is installed, and no root is
needed where apt's lists are there. It writes a program in C, which gcc compiles and which then searches the states.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from e2e.cluster import layout
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterSetupError
from e2e.stack.paths import ROOT

MODELS = ROOT / "docs" / "model"
RELEASE = "6.5.2"
VERSION = f"{RELEASE}+dfsg-1"
CHECKSUM = "55452ba139bae09a165363fdee18fe496913b4ae441d122280fbcbb48556502f"
MEGABYTES = 900
"""Memory of one search; two run at once."""
CYCLE = "acceptance cycle"


class Search(Enum):
    """How states are searched: options of the compiler, and of the program that it makes."""

    EVERY_STATE = (("-O2", "-DSAFETY", "-DNOREDUCE"), ("-m1000000",))
    EVERY_HASH = (("-O2", "-DSAFETY", "-DNOREDUCE", "-DHC4"), ("-m1000000",))
    """A hash stands for a state: two states with one hash, of which one is then passed over, are all but impossible."""
    SHORTEST = (("-O1", "-DSAFETY", "-DNOREDUCE", "-DBFS", "-DHC4"), ())
    CYCLES = (("-O1",), ("-a", "-f"))
    A_MINUTE = (("-O2", "-DSAFETY", "-DNOREDUCE", "-DBITSTATE"), ("-m3000000", "-w31", "-k3", "-Q1"))
    """Three bits stand for a state, and the search ends after a minute: what it does not find may still be there."""


@dataclass(frozen=True)
class Variant:
    """A model with some rules removed, or with none.

    Attributes:
        model: Its file, without the suffix.
        switches: What is removed, and how large the model is; names as in the model.
        breaks: The property that a counterexample has to break, as the comment beside the assertion says it; empty for none.
        search: How states are searched.
    """

    model: str
    switches: tuple[str, ...] = ()
    breaks: str = ""
    search: Search = Search.EVERY_STATE

    def __str__(self) -> str:
        return " ".join((self.model, *self.switches))


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes:
        broken: The property that does not hold; empty if none was found.
        complete: Whether the search came to its end.
        states: How many states it stored.
        seconds: Processor time that it took, compiling included: how busy the machine was does not show.
        events: What happens in the counterexample.
        report: What the program wrote.
    """

    broken: str
    complete: bool
    states: int
    seconds: float
    events: tuple[str, ...]
    report: str


def spin() -> str:
    """Gives a spin of the pinned version: the machine's own, or one from the cache folder.

    Raises:
        ClusterSetupError: It cannot be fetched here.
    """
    own = shutil.which("spin")
    if own and RELEASE in run([own, "-V"]):
        return own
    program = layout.from_environment().bin / f"spin-{VERSION}"
    if not program.exists():
        _fetch(program)
    return str(program)


def _fetch(program: Path) -> None:
    folder = layout.from_environment().downloads / f"spin-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _unpack(_download(folder), folder, program)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(folder: Path) -> Path:
    command = ["apt-get", "-q", "download", f"spin={VERSION}"]
    try:
        run(command, cwd=str(folder))
    except ClusterSetupError:
        # A machine can have no lists yet; only root can fetch them.
        run(["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update"])
        run(command, cwd=str(folder))
    return next(folder.glob("spin_*.deb"))


def _unpack(package: Path, folder: Path, program: Path) -> None:
    if hashlib.sha256(package.read_bytes()).hexdigest() != CHECKSUM:
        raise ClusterSetupError(
            f"{package.name} is not the package that is pinned",
            remedy=f"on another architecture than amd64 install spin {RELEASE} yourself: one on the PATH is used.",
        )
    run(["dpkg", "-x", str(package), str(folder / "root")])
    program.parent.mkdir(parents=True, exist_ok=True)
    os.replace(folder / "root" / "usr" / "bin" / "spin", program)


def check(variant: Variant, folder: Path) -> Outcome:
    """Searches the states of a variant.

    Args:
        variant: What to check.
        folder: An empty folder, in which the checker works.

    Returns:
        What was found.

    Raises:
        ClusterSetupError: spin, gcc or the search itself failed.
    """
    source = MODELS / f"{variant.model}.pml"
    switches = [f"-D{switch}" for switch in variant.switches]
    compiled, options = variant.search.value
    began = _processor_seconds()
    run([spin(), *switches, "-a", str(source)], cwd=str(folder))
    run(["gcc", "-w", f"-DMEMLIM={MEGABYTES}", *compiled, "-o", "pan", "pan.c"], cwd=str(folder))
    # `-E`: a state without a next one is no error of these models.
    search = ["./pan", "-E", "-n", *options] if variant.search is not Search.CYCLES else ["./pan", "-n", *options]
    report = run(search, cwd=str(folder))
    trail = _trail(source, switches, folder) if "errors: 0" not in report else ""
    return Outcome(
        broken=CYCLE if CYCLE in report else _property(source, trail),
        complete="Search not completed" not in report and "error:" not in report,
        states=int(float(re.search(r"(\S+) states, stored", report)[1])),  # type: ignore[index]
        seconds=_processor_seconds() - began,
        events=tuple(line.strip() for line in trail.splitlines() if re.match(r" +[\w ]+: |  +a tick", line)),
        report=report,
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _trail(source: Path, switches: list[str], folder: Path) -> str:
    trail = next(folder.glob("*.trail"))
    command = [spin(), *switches, "-B", "-k", str(trail), str(source)]
    # It ends with code 1 where an assertion fails.
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def _property(source: Path, trail: str) -> str:
    """Reads the comment beside the assertion that failed."""
    failed = re.search(r":(\d+), Error: assertion violated", trail)
    if not failed:
        return ""
    line = source.read_text().splitlines()[int(failed[1]) - 1]
    beside = re.search(r"/\* (.+?) \*/", line)
    return beside[1] if beside else line.strip()
