"""The cluster's own processes: each started in a session of its own, known by pid and start time.

A pid alone may name another process later; a pid with its start time (clock ticks since boot) never does. Only a process
recorded here, or one that runs exactly the command line that would be started now, is ever taken for ours.
"""

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.cluster.commands import wait_until
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.local import ports
from e2e.cluster.progress import Progress

# The API server takes long to leave while clients watch; ended hard it loses nothing, for its state is in etcd.
TERMINATE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Program:
    """A component to run.

    Attributes:
        name: Its name in progress lines, logs and the table.
        argv: Command line; it names the cluster's folder, so it is unique to this cluster.
        ports: TCP ports that must be free before it starts.
        config: File that it reads at its start only.
    """

    name: str
    argv: tuple[str, ...]
    ports: tuple[int, ...] = ()
    config: Path | None = None

    def digest(self) -> str:
        """Gives what changes when the component must be started anew: its command line and its file."""
        content = self.config.read_bytes() if self.config else b""
        return hashlib.sha256("\0".join(self.argv).encode() + b"\0\0" + content).hexdigest()


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be mistaken for another."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Record:
    """A started component."""

    process: Process
    digest: str


def parse_stat(text: str) -> int | None:
    """Reads the start time from the text of ``/proc/<pid>/stat`` (proc_pid_stat(5), field 22).

    Returns:
        Clock ticks since boot; None for a process that has ended and was not yet collected.
    """
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def identify(pid: int) -> Process | None:
    """Looks a pid up; None when no living process has it."""
    try:
        start = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if start is None else Process(pid, start)


def alive(process: Process) -> bool:
    """Tells whether exactly this process still runs."""
    return identify(process.pid) == process


def send(process: Process, number: signal.Signals) -> None:
    """Signals exactly this process: the descriptor pins the pid before its start time is compared."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if alive(process):
            signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def end(processes: Iterable[Process]) -> None:
    """Ends processes: SIGTERM to all, time to stop, then SIGKILL to those left."""
    left = [process for process in processes if alive(process)]
    for number, seconds in ((signal.SIGTERM, TERMINATE_SECONDS), (signal.SIGKILL, 5.0)):
        for process in left:
            send(process, number)
        wait_until(lambda: not any(map(alive, left)), seconds=seconds)  # noqa: B023 - read before the next pass
        left = [process for process in left if alive(process)]


def with_command_line(argv: tuple[str, ...]) -> Process | None:
    """Finds the process that runs exactly this command line, e.g. one whose record was lost with a killed ``up``."""
    wanted = b"\0".join(map(os.fsencode, argv)) + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                return identify(int(path.parent.name))
        except OSError:
            continue  # it ended while we looked
    return None


def _require_free_ports(program: Program) -> None:
    for port in program.ports:
        if held := ports.holder(port):
            raise ClusterSetupError(
                f"{program.name} needs TCP port {port}, which {held} holds",
                remedy="stop that process (the local cluster's ports are fixed) and run `up` again.",
            )


class ProcessTable:
    """The record of started components, in a file that every change replaces whole."""

    def __init__(self, path: Path, *, logs: Path, progress: Progress) -> None:
        self._path = path
        self._logs = logs
        self._progress = progress
        self._children: list[subprocess.Popen[bytes]] = []

    def log(self, name: str) -> Path:
        """Gives the log file of a component."""
        return self._logs / f"{name}.log"

    def records(self) -> dict[str, Record]:
        """Reads the table."""
        if not self._path.exists():
            return {}
        stored = json.loads(self._path.read_text())
        return {name: Record(Process(row["pid"], row["start"]), row["digest"]) for name, row in stored.items()}

    def running(self, name: str) -> bool:
        """Tells whether a component runs."""
        record = self.records().get(name)
        return record is not None and alive(record.process)

    def ensure(self, program: Program) -> bool:
        """Starts a component unless it runs with this command line and file.

        Returns:
            Whether it was started now.

        Raises:
            ClusterSetupError: Somebody else holds one of its ports.
        """
        record = self.records().get(program.name)
        if record and alive(record.process):
            if record.digest == program.digest():
                return False
            self.stop(program.name)
        process = with_command_line(program.argv)
        started = process is None
        self._record(program, process or self._start(program))
        return started

    def stop(self, *names: str) -> None:
        """Ends components and forgets them."""
        records = self.records()
        end(records[name].process for name in names if name in records)
        self._write({name: record for name, record in records.items() if name not in names})
        self._children = [child for child in self._children if child.poll() is None]

    def crash(self, name: str) -> None:
        """Ends a component in the middle of whatever it does, and forgets it."""
        if (record := self.records().get(name)) is not None:
            send(record.process, signal.SIGKILL)
        self.stop(name)

    def require_ports(self, programs: Iterable[Program]) -> None:
        """Refuses to begin when somebody else, e.g. a cluster of another cache folder, holds a component's port.

        Raises:
            ClusterSetupError: With the port and its holder.
        """
        for program in programs:
            if not self.running(program.name) and with_command_line(program.argv) is None:
                _require_free_ports(program)

    def _start(self, program: Program) -> Process:
        _require_free_ports(program)
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(program.name).open("ab") as log:
            child = subprocess.Popen(
                program.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )
        self._children.append(child)  # kept, so that one that ends while we live is collected
        self._progress.line(f"started {program.name} (pid {child.pid})")
        return identify(child.pid) or Process(child.pid, 0)

    def _record(self, program: Program, process: Process) -> None:
        self._write(self.records() | {program.name: Record(process, program.digest())})

    def _write(self, records: dict[str, Record]) -> None:
        rows = {name: {**asdict(record.process), "digest": record.digest} for name, record in records.items()}
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(rows, indent=1))
        partial.rename(self._path)
