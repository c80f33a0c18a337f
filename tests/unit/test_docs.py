"""The pages say what the code does."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cachescope import guard
from cachescope.api.kinds import KINDS
from cachescope.cli import kubectl
from cachescope.core.admission import Refusal
from cachescope.engines.vllm import ROUTES
from cachescope.gateway.errors import ERRORS
from cachescope.guard.answers import GUARD_ERROR, Answer, misconfigured

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "images").glob("*.md"), *(ROOT / "e2e").rglob("*.md")])
ROW = re.compile(r"^\| (\d{3}) `(\w+)` \|", re.MULTILINE)
USAGE = 2
"""How a command ends that cannot be parsed."""
LINK = re.compile(r"\]\(([^)#:]+)\)")


def _rows(section: str) -> list[tuple[int, str]]:
    """Status and code of each row below a heading of the page of failure modes."""
    page = (ROOT / "docs" / "failure-modes.md").read_text("utf-8")
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [(int(status), code) for status, code in ROW.findall(text)]


def test_every_answer_of_the_gateway_is_explained() -> None:
    assert sorted(_rows("What the gateway answers")) == sorted((form.status, form.code or name) for name, form in ERRORS.items())


def test_every_answer_of_the_guard_is_explained() -> None:
    modules = [importlib.import_module(item.name) for item in pkgutil.iter_modules(guard.__path__, f"{guard.__name__}.")]
    constants = {item for module in modules for item in vars(module).values() if isinstance(item, Answer)}
    assert GUARD_ERROR in constants
    answers = {(answer.status, answer.code) for answer in (*constants, misconfigured("problem"), *map(Answer.of, Refusal))}
    assert sorted(_rows("What the guard answers")) == sorted(answers)


def _commands() -> Iterator[str]:
    """Lines with commands that people paste."""
    for page in PAGES:
        yield from re.findall(r"^ *(kubectl cachescope .*)$", page.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", sorted(set(_commands())))
def test_a_command_that_people_paste_can_be_run(line: str) -> None:
    assert _exit_code(shlex.split(line, comments=True)[2:]) != USAGE


def test_a_command_that_lacks_an_option_is_found() -> None:
    assert _exit_code(["revoke", "tenant", "blue"]) == USAGE


def _exit_code(arguments: list[str]) -> int:
    """How a command ends where there is no cluster."""
    return CliRunner(env={"KUBECONFIG": "/nowhere", "KUBERNETES_SERVICE_HOST": None}).invoke(kubectl.app, arguments).exit_code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()] == []


def test_what_the_installation_page_applies_is_valid() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "install.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    found = [item for block in blocks for item in yaml.safe_load_all(block) if item and "kind" in item]
    assert [item["kind"] for item in found] == ["ServingPool", "Tenant"]
    models = {kind.model.KIND: kind.model for kind in KINDS}
    for item in found:
        models[item["kind"]].model_validate({**item, "metadata": {**item["metadata"], "uid": "u" * 8}})


def test_the_proofs_name_tests_that_exist() -> None:
    named = re.findall(r"`((?:tests|e2e)/[\w/.*{},]+)`", (ROOT / "docs" / "proofs.md").read_text("utf-8"))
    assert named
    assert [name for name in named if not any(list(ROOT.glob(each)) for each in _expanded(name))] == []


def _expanded(name: str) -> list[str]:
    """A name with `{a,b}` as the names that it stands for."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return [found[1] + each + found[3] for each in found[2].split(",")] if found else [name]


def test_every_route_is_on_the_page_of_routes_with_its_floor() -> None:
    page = (ROOT / "docs" / "routes.md").read_text("utf-8")
    rows = re.findall(r"^\| (`(?:POST|GET) /.*?) \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    found = {path: floor for paths, floor in rows for path in re.findall(r"`POST (/[^`]+)`", paths)}
    assert found == {route.path: route.salt.since if route.salt else "no cache" for route in ROUTES.values()}
