"""The chart of the kinds: Helm makes from it what the models say, and uninstalling it takes nothing away unless asked to."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cachescope.api.crds import definitions
from e2e.stack import helm
from e2e.stack.paths import ROOT

CHART = str(ROOT / "charts" / "cachescope-crds")
KEEP = "helm.sh/resource-policy"
KIND = "CustomResourceDefinition"


def test_the_chart_has_no_faults() -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART)


def test_it_renders_what_the_models_say() -> None:
    assert _rendered("--set", "keep=false") == {document["metadata"]["name"]: document for document in definitions()}


def test_kinds_are_kept_unless_asked_otherwise() -> None:
    kept = _rendered()
    assert {document["metadata"]["annotations"].pop(KEEP) for document in kept.values()} == {"keep"}
    assert kept == _rendered("--set", "keep=false")


def test_a_value_that_does_not_exist_is_refused() -> None:
    with pytest.raises(helm.HelmError, match="keeep"):
        _rendered("--set", "keeep=false")


def test_a_level_for_leases_comes_with_the_kinds_unless_it_is_not_wanted() -> None:
    flows = {"FlowSchema", "PriorityLevelConfiguration"}
    assert {document["kind"] for document in _documents()} == {KIND} | flows
    assert {document["kind"] for document in _documents("--set", "flowControl.create=false")} == {KIND}


def test_a_thousand_guards_of_one_pool_can_wait_in_it() -> None:
    found = {document["kind"]: document["spec"] for document in _documents()}
    queuing = found["PriorityLevelConfiguration"]["limited"]["limitResponse"]["queuing"]
    assert queuing["handSize"] * queuing["queueLengthLimit"] >= 2000
    assert found["FlowSchema"]["matchingPrecedence"] < 9000, "before the API server's own for ServiceAccounts"


def _rendered(*options: str) -> dict[str, Any]:
    return {document["metadata"]["name"]: document for document in _documents(*options) if document["kind"] == KIND}


def _documents(*options: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(helm.run("template", "cachescope-crds", CHART, *options))
    return [document for document in documents if document]
