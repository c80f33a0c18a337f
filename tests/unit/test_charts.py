"""The files of the chart `cachescope` agree with each other and with the models; what Helm makes of them is an integration test."""

from __future__ import annotations

import json

import yaml

from cachescope import __version__
from tests.unit.make_values_schema import PATH, with_settings

CHART = PATH.parent


def test_the_schema_of_the_settings_is_the_models() -> None:
    schema = json.loads(PATH.read_text())
    assert with_settings(schema) == schema, "run `python -m tests.unit.make_values_schema`"


def test_every_value_is_in_the_schema_and_described() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(json.loads(PATH.read_text())["properties"]) - {"global"} == set(values)
    page = (CHART / "README.md").read_text()
    assert [name for name in values if f"`{name}" not in page and f"{{{name}" not in page and f",{name}}}" not in page] == []


def test_every_setting_is_described() -> None:
    settings = json.loads(PATH.read_text())["properties"]["settings"]["properties"]
    page = (CHART / "README.md").read_text()
    assert [name for name in settings if f"`{name}" not in page] == []


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_no_file_of_the_chart_names_a_registry() -> None:
    repositories = [
        image["repository"]
        for image in yaml.safe_load((CHART / "values.yaml").read_text())["images"].values()
        if image != "IfNotPresent"
    ]
    assert all("." not in repository.split("/")[0] for repository in repositories)
