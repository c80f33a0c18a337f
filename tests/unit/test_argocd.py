"""The health scripts for Argo CD name what the operator says, and nothing else; what they answer is an integration test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cachescope.api.conditions import ConditionType, Reason

ROOT = Path(__file__).parents[2]
PREFIX = "resource.customizations.health.cachescope.dev_"
SCRIPTS = {
    name.removeprefix(PREFIX): text
    for name, text in yaml.safe_load((ROOT / "integrations" / "argocd" / "health.yaml").read_text())["data"].items()
}
STATES = {"Healthy", "Progressing", "Degraded"}


def test_every_kind_that_people_write_has_a_script() -> None:
    assert set(SCRIPTS) == {"ServingPool", "Tenant", "CacheScope", "PublicSource", "CacheEpoch"}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_names_conditions_reasons_and_states_that_exist(kind: str) -> None:
    text = SCRIPTS[kind]
    types = set(re.findall(r'found\["(\w+)"\]|condition\.type == "(\w+)"', text))
    assert {one or other for one, other in types} <= {item.value for item in ConditionType}
    reasons = set(re.findall(r'reason [~=]= "(\w+)"', text))
    assert reasons <= {item.value for item in Reason}
    words = set(re.findall(r'"(\w+)"', text)) - {one or other for one, other in types} - reasons - {"True", "False"}
    assert words <= STATES
    assert "observedGeneration" in text


def test_the_page_explains_every_kind() -> None:
    page = (ROOT / "docs" / "argocd.md").read_text("utf-8")
    assert [kind for kind in SCRIPTS if f"| `{kind}` |" not in page] == []
