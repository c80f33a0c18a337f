"""Test builds of the gateway are made of their source alone, which needs nothing but the product."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stub_engine import wall_clock
from e2e.test_builds import constant_salts, short_digests, stalled_watch
from e2e.test_builds.gateways import Build, command

BUILDS = [
    constant_salts.constant,
    short_digests.shortened,
    short_digests.trusting,
    stalled_watch.silent,
    stalled_watch.deaf,
    stalled_watch.believing,
    wall_clock.ten_minutes_ahead,
    wall_clock.ten_minutes_behind,
]


def imported(source: str) -> Iterator[str]:
    """Names of the packages that a source imports."""
    for node in ast.walk(ast.parse(source)):
        names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name.partition(".")[0] for name in names)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: str(build.__name__))
def test_a_build_is_its_source_and_the_product(build: Build) -> None:
    program, option, source = command(build)
    assert (Path(program).name, option) == ("python", "-c")
    assert source.endswith(f"\n{build.__name__}(setattr)\nfrom cachescope.cli.main import main\nmain()\n")
    assert set(imported(source)) - sys.stdlib_module_names == {"cachescope"}
