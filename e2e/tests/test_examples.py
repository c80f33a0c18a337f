"""Every example is accepted by a real API server, and the charts are clean."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.stack import helm, kubectl
from e2e.stack.install import install_crds, namespace
from e2e.stack.paths import CHARTS, EXAMPLES

VALUES = EXAMPLES / "demo-values.yaml"
RESOURCES = sorted(path for path in EXAMPLES.glob("*.yaml") if path != VALUES)
SCOPES = ("Namespaced", "Cluster")


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    """A namespace with the CRDs, and nothing that reconciles."""
    name = f"cachescope-examples-{secrets.token_hex(4)}"
    namespace(kubectl.NAMESPACE)
    install_crds()
    namespace(name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("path", RESOURCES, ids=lambda path: path.name)
def test_an_example_is_accepted(home: str, path: Path) -> None:
    # Namespaces that an example names are made by whoever follows its first lines; here all of it goes into one.
    documents = [item for item in yaml.safe_load_all(path.read_text()) if item]
    for item in documents:
        item["metadata"].pop("namespace", None)
    said = kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(documents), namespace=home)
    assert said.count("(server dry run)") == len(documents)


def test_an_example_with_a_wrong_field_is_refused(home: str) -> None:
    text = (EXAMPLES / "incident.yaml").read_text().replace("incident:", "incidents:")
    with pytest.raises(kubectl.KubectlError, match="incidents"):
        kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=text, namespace=home)


@pytest.mark.parametrize("chart", ["cachescope", "cachescope-crds"])
def test_a_chart_is_clean(chart: str) -> None:
    assert "0 chart(s) failed" in helm.run("lint", str(CHARTS / chart), "--strict")


@pytest.mark.parametrize("scope", SCOPES)
def test_the_demos_values_fit_the_chart_in_both_modes(scope: str) -> None:
    said = helm.run("lint", str(CHARTS / "cachescope"), "--strict", "-f", str(VALUES), "--set", f"scope={scope}")
    assert "0 chart(s) failed" in said


def test_a_wrong_value_is_refused() -> None:
    with pytest.raises(helm.HelmError):
        helm.run("lint", str(CHARTS / "cachescope"), "--strict", "--set", "scope=Everywhere")
