"""The local cluster's processes: whose a process is, and when a component is started."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.commands import wait_until
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.local.processes import Process, ProcessTable, Program, alive, end, identify, parse_stat, with_command_line
from e2e.cluster.progress import Progress

SLEEP = (sys.executable, "-c", "import signal; signal.pause()")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP) as child:
        yield child
        child.kill()


def table(folder: Path) -> ProcessTable:
    return ProcessTable(folder / "processes.json", logs=folder / "log", progress=Progress())


def test_start_time_is_read_behind_a_name_with_parentheses() -> None:
    fields = ["S", *map(str, range(4, 22)), "4711", "23"]
    assert parse_stat(f"12 (a) (b c) {' '.join(fields)}") == 4711


def test_an_ended_uncollected_process_is_not_alive() -> None:
    assert parse_stat(f"12 (x) Z {' '.join(map(str, range(4, 30)))}") is None


def test_a_process_with_another_start_time_is_never_ended(sleeper: subprocess.Popen[bytes]) -> None:
    mine = identify(sleeper.pid)
    assert mine is not None
    end([Process(mine.pid, mine.start - 1)])
    assert alive(mine)
    end([mine])
    assert not alive(mine)


def test_ensure_starts_once_and_again_after_a_death(tmp_path: Path) -> None:
    processes = table(tmp_path)
    program = Program("sleeper", (*SLEEP, str(tmp_path)))
    assert processes.ensure(program)
    assert not processes.ensure(program)
    end([processes.records()["sleeper"].process])
    assert not processes.running("sleeper")
    assert processes.ensure(program)
    processes.stop("sleeper")
    assert processes.records() == {}


def test_a_changed_command_line_restarts_the_component(tmp_path: Path) -> None:
    processes = table(tmp_path)
    processes.ensure(Program("sleeper", (*SLEEP, str(tmp_path))))
    first = processes.records()["sleeper"].process
    assert processes.ensure(Program("sleeper", (*SLEEP, str(tmp_path), "changed")))
    assert not alive(first)
    processes.stop("sleeper")


def test_a_process_whose_record_was_lost_is_adopted(tmp_path: Path) -> None:
    program = Program("sleeper", (*SLEEP, str(tmp_path)))
    processes = table(tmp_path)
    processes.ensure(program)
    started = processes.records()["sleeper"].process
    (tmp_path / "processes.json").unlink()
    # For a moment after it began a process has no command line to be found by.
    assert wait_until(lambda: with_command_line(program.argv) == started, seconds=10)
    assert not processes.ensure(program)
    assert processes.records()["sleeper"].process == started
    processes.stop("sleeper")


def test_a_held_port_is_refused_with_its_holder_before_anything_is_changed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = Program("etcd", ("etcd", str(tmp_path)), ports=(server.getsockname()[1],))
        with pytest.raises(ClusterSetupError, match=f"process {os.getpid()} "):
            table(tmp_path).require_ports([program])
    table(tmp_path).require_ports([program])
