"""Installing packages: the cluster and the images do it side by side on a machine that has nothing yet."""

from __future__ import annotations

import threading
from pathlib import Path

from e2e.cluster.apt import alone


def test_one_at_a_time(tmp_path: Path) -> None:
    done: list[str] = []

    def second() -> None:
        with alone(tmp_path):
            done.append("second")

    with alone(tmp_path):
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        done.append("first")
    other.join(10)
    assert done == ["first", "second"]


def test_whoever_comes_later_is_alone_again(tmp_path: Path) -> None:
    for _ in range(2):
        with alone(tmp_path):
            pass
