"""vLLM 0.32 as a process, with the plugin in an injected folder: what is approved is shared to the block, and nothing else, ever.

Every figure is the engine's own `cached_tokens`. Each negative stands beside what the same tenant finds of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from cachescope.core.types import ScopeClass
from tests.conformance.engines.catalogue import MODEL, ROOT
from tests.conformance.engines.processes import process
from tests.engine_plugin.cost import instructions
from tests.engine_plugin.places import ENGINE, UNIT, Place, of_principal, of_tenant, place

TRIES = 50
SECONDS = 120
INSTRUCTION = "You are a careful public assistant; answer in the order of the questions. " * 28
MOST_COST = 1.03


@dataclass(frozen=True)
class Served:
    """An engine that answers.

    Attributes:
        place: Its files.
        url: Where it is.
        block: Tokens of a block.
    """

    place: Place
    url: str
    block: int

    def ask(self, path: str, **body: Any) -> Any:
        """One answer."""
        content = json.dumps({"model": MODEL, **body}).encode()
        with urlopen(Request(self.url + path, content, {"content-type": "application/json"}), timeout=SECONDS) as answer:  # noqa: S310
            return json.load(answer)

    def cached(self, prompt: str, salt: str) -> int:
        """How many tokens of a prompt were found."""
        answer = self.ask("/v1/completions", prompt=prompt, cache_salt=salt, max_tokens=1, temperature=0)
        return int((answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0)

    def put(self, approved: Mapping[ScopeClass, Sequence[Sequence[int]]]) -> None:
        """Mount the next table, and wait until the engine says that it is in force and that nothing was decided by another."""
        sequence = max((report.version.sequence for report in self.place.reports() if report.version), default=0) + 1
        mark = self.place.approve(approved, sequence=sequence)
        until(lambda: [(report.version, report.in_use) for report in self.place.reports()] == [(mark, ())])

    def tokens(self, prompt: str) -> list[int]:
        """The tokens of a prompt."""
        found: list[int] = self.ask("/tokenize", prompt=prompt)["tokens"]
        return found

    def whole(self, tokens: int) -> int:
        """As many of these tokens as are in whole blocks."""
        return tokens // self.block * self.block


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.1)


@pytest.fixture(scope="module", params=[32, 128], ids=lambda size: f"blocks of {size}")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = place(tmp_path_factory.mktemp("place") / "place")
    with process(ENGINE, made.environment, ["--block-size", str(request.param)]) as url:
        until(lambda: bool(made.reports()))
        (report,) = made.reports()
        assert report.block_size == request.param
        yield Served(made, url, request.param)


@pytest.fixture
def approved(served: Served) -> int:
    """How many tokens are approved, by a table of its own that is in force; block and unit end where they end."""
    tokens = served.tokens(INSTRUCTION)
    served.put({ScopeClass.PUBLIC: [tokens]})
    return served.whole(len(tokens) // UNIT * UNIT)


def texts(seed: str) -> Iterator[str]:
    """Texts of 1,500 tokens that nobody sent before, of which no two begin alike."""
    draw = random.Random(seed)  # noqa: S311 - the same texts in every run
    while True:
        yield "".join(draw.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(1_500))


def test_without_a_table_nothing_is_shared_and_it_is_said(served: Served) -> None:
    (report,) = served.place.reports()
    assert (report.version, "No such file" in report.problem) == (None, True)
    prompt = INSTRUCTION + next(texts("no table"))
    found = [served.cached(prompt, of_tenant(name)) for name in ("red", "blue", "red")]
    assert found == [0, 0, served.whole(len(served.tokens(prompt)) - 1)]


def test_a_tenant_takes_the_instruction_from_another_and_never_a_private_token(served: Served, approved: int) -> None:
    served.cached(INSTRUCTION + "first", of_tenant("first"))
    foreign = 0
    for document, _ in zip(texts("documents"), range(TRIES), strict=False):
        prompt = INSTRUCTION + document
        own = served.whole(len(served.tokens(prompt)) - 1)
        found = [served.cached(prompt, of_tenant(name)) for name in ("red", "red", "blue", "blue")]
        assert (found[0], found[1], found[3]) == (approved, own, own)
        foreign += found[2] - approved
    assert (foreign, approved > 1_900) == (0, True)


def test_unapproved_text_is_never_shared_also_behind_the_beginning_of_an_approved_one(served: Served, approved: int) -> None:
    middle = len(INSTRUCTION) // 2
    shared = served.whole(len(served.tokens(INSTRUCTION[:middle])) // UNIT * UNIT)
    assert 0 < shared < approved
    for document, _ in zip(texts("unapproved"), range(TRIES), strict=False):
        for prompt, expected in ((document, 0), (INSTRUCTION[:middle] + "#" + document, shared)):
            own = served.whole(len(served.tokens(prompt)) - 1)
            found = [served.cached(prompt, of_tenant(name)) for name in ("red", "blue", "red")]
            assert found[1:] == [expected, own]


def test_principals_share_what_their_tenant_may_and_other_tenants_what_everybody_may(served: Served, approved: int) -> None:
    handbook = INSTRUCTION + next(texts("handbook"))
    tokens = [served.tokens(text) for text in (INSTRUCTION, handbook)]
    served.put({ScopeClass.PUBLIC: [tokens[0]], ScopeClass.TENANT: [tokens[1]]})
    of_tenants = served.whole(len(tokens[1]) // UNIT * UNIT)
    assert approved < of_tenants
    served.cached(handbook + "first", of_principal("red", "first"))
    for document, _ in zip(texts("principals"), range(TRIES), strict=False):
        prompt = handbook + document[:400]
        own = served.whole(len(served.tokens(prompt)) - 1)
        found = [served.cached(prompt, of_principal("red", name)) for name in ("ann", "bob", "ann")]
        assert found == [of_tenants, of_tenants, own]
        assert served.cached(prompt, of_principal(document, "ann")) == approved


def test_what_is_withdrawn_is_shared_no_more_once_it_is_acknowledged(served: Served, approved: int) -> None:
    prompt = INSTRUCTION + next(texts("withdrawn"))
    assert [served.cached(prompt, of_tenant(name)) for name in ("a", "b")][1] == approved
    served.put({})
    assert [served.cached(prompt, of_tenant(name)) for name in ("c", "d", "c")] == [
        0,
        0,
        served.whole(len(served.tokens(prompt)) - 1),
    ]


def test_no_hit_was_refused(served: Served) -> None:
    (report,) = served.place.reports()
    assert (report.mismatches, report.unidentified, report.malformed) == (0, 0, 0)


def test_where_vllms_own_hashes_collide_a_wrong_block_is_accepted_without_and_never_with_the_plugin(tmp_path: Path) -> None:
    made = place(tmp_path / "place")
    environ = {**made.environment, "VLLM_PLUGINS": "", "PYTHONPATH": f"{made.environment['PYTHONPATH']}:{ROOT}"}
    command = [str(made.python), "-m", "tests.engine_plugin.inside.collisions", str(made.model)]
    done = subprocess.run(command, env=environ, cwd=tmp_path, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["with"], found["own"]) == (0, [0, 64])
    assert found["without"] > 1_000
    assert found["mismatches"] > 100


@pytest.mark.parametrize("kind", ["segmented", "plain"])
def test_the_plugin_costs_the_scheduler_at_most_three_in_a_hundred(counted: dict[tuple[str, str], float], kind: str) -> None:
    assert counted["with", kind] <= MOST_COST * counted["without", kind]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float]:
    return instructions(place(tmp_path_factory.mktemp("cost") / "place"))
