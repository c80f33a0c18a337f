"""The CRDs: generated files are current, schemas are structural, rules cannot be stepped around, sizes stay small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, Field, ValidationError

from cachescope import __version__
from cachescope.api import generate
from cachescope.api.cel import RULES
from cachescope.api.cel_rule import Rule
from cachescope.api.crds import MAX_BYTES, definitions, schema
from cachescope.api.kinds import KINDS, Kind
from cachescope.api.scopes import Application
from cachescope.api.structural import structural
from cachescope.api.tenants import CompartmentMembers, Tenant
from cachescope.core.digests import digest
from cachescope.core.labels import SPEC_ANNOTATION

CHART = generate.ROOT / "charts" / "cachescope-crds"
LEAVES = ("string", "integer", "number", "boolean")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "files", lambda: {"crds/tenants.cachescope.dev.yaml": "kind: CustomResourceDefinition\n"})
    assert generate.main([]) == 0
    return tmp_path


def test_generated_files_are_current() -> None:
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize("change", ["edited", "missing", "stale"])
def test_the_check_sees_every_difference_and_a_run_mends_it(folder: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    path = folder / "crds" / ("old.cachescope.dev.yaml" if change == "stale" else "tenants.cachescope.dev.yaml")
    path.unlink() if change == "missing" else path.write_text("kind: Tenant\n", "utf-8")
    assert generate.main(["--check"]) == 1
    assert f"crds/{path.name} is not what the models say; run make generate" in capsys.readouterr().err
    assert (generate.main([]), generate.main(["--check"])) == (0, 0)


def test_braces_of_a_description_are_no_template() -> None:
    text = generate.template("metadata:\n  annotations:\n    a: b\nspec: use {{ x }}\n")
    assert text.endswith('    {{- end }}\n    a: b\nspec: use {{ "{{" }} x }}\n')


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.model.KIND)
def test_the_schema_is_structural_and_says_what_every_field_is(kind: Kind) -> None:
    for path, node in _nodes(schema(kind)):
        if "x-kubernetes-int-or-string" not in node:
            assert node["type"] in (*LEAVES, "object", "array"), path
            written = {"allOf"} if (kind.model, path) == (Tenant, ".spec.compartments.members[].principals[]") else set()
            assert node.keys() & {"$ref", "anyOf", "allOf", "oneOf", "not", "nullable", "title", "const"} == written, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert ("x-kubernetes-list-type" in node) == (node.get("type") == "array"), path
        assert "description" in node or path.endswith(("metadata", "[]", "{}")), path


def test_defaults_stand_only_where_nobody_takes_them_for_drift() -> None:
    found = {f"{kind.model.KIND}{path}" for kind in KINDS for path, node in _nodes(schema(kind)) if "default" in node}
    assert found == {
        "ServingPool.spec.replicas",
        "ServingPool.spec.engine.type",
        "ServingPool.spec.gpus.resourceName",
        "ServingPool.spec.allowedTenants.namespaces.from",
        "ServingPool.spec.rollout.strategy",
        "ServingPool.spec.rollout.guardUpdates",
        "ServingPool.spec.sharing.stage",
        *(f"ServingPool.spec.fence.{name}" for name in ("leaseSeconds", "onLoss", "freshSeconds", "cleanup")),
        "ServingPool.spec.guard.mode",
        *(f"ServingPool.spec.isolation.{name}" for name in ("mode", "maxIsolatedPools", "minWarmSeconds", "verifySeconds")),
        *(f"Tenant.spec.{name}" for name in ("suspended", "sensitivity")),
        "CacheScope.spec.class",
        "PublicSource.spec.withdrawn",
        *(f"CacheEpoch.spec.{name}" for name in ("target.kind", "deny", "readmit", "restored.confirmed")),
        *(f"CacheEpoch.spec.incident.{name}" for name in ("stopPublicSharing", "bypassReuse", "inFlight.mode")),
    }


@pytest.mark.parametrize(
    ("kind", "rule"), [(kind, rule) for kind, rules in RULES.items() for rule in rules if "oldSelf" in rule.rule]
)
def test_a_transition_rule_stands_where_nothing_can_be_dropped(kind: str, rule: Rule) -> None:
    assert rule.path in {(), ("spec",)}
    root = next(schema(item) for item in KINDS if item.model.__name__ == kind)
    assert "spec" in root["required"]
    named = set(re.findall(r"oldSelf\.(\w+)" if rule.path else r"oldSelf\.spec\.(\w+)", rule.rule)) - {"hasValue"}
    # The pool of a lease may be left out: its rule takes that for the empty name. That a pool is dedicated may neither come nor go.
    assert named <= {*root["properties"]["spec"]["required"], "pool", *re.findall(r"has\(self\.(\w+)\) == has\(oldSelf", rule.rule)}


def test_each_definition_is_small_and_carries_the_digest_of_its_spec() -> None:
    for document in definitions():
        assert len(json.dumps(document)) < MAX_BYTES / 4
        assert document["metadata"]["annotations"][SPEC_ANNOTATION] == digest(document["spec"])


def test_names_are_not_taken_twice() -> None:
    names = [name for document in definitions() for name in _names(document["spec"]["names"])]
    assert len(names) == len(set(names))


PRINCIPALS = [
    ("mtls", "spiffe://corp.example/ns/a/sa/b", True),
    ("mtls", "corp/app", False),
    ("mtls", "spiffe://corp", False),
    ("mtls", "spiffe://Corp/app", False),
    ("mtls", "spiffe://corp/../app", False),
    ("mtls", "system:serviceaccount:jobs:app", False),
    ("service-account", "system:serviceaccount:jobs:app.x", True),
    ("service-account", "jobs:app", False),
    ("service-account", "system:serviceaccount:Jobs:app", False),
    ("service-account", "spiffe://corp/app", False),
    ("api-key", "ci", True),
    ("api-key", "spiffe://corp", True),
]


@pytest.mark.parametrize(("kind", "subject", "taken"), PRINCIPALS)
def test_the_schema_takes_of_whom_compartments_are_open_to_what_the_model_takes(kind: str, subject: str, *, taken: bool) -> None:
    root = next(schema(item) for item in KINDS if item.model is Tenant)
    members = root["properties"]["spec"]["properties"]["compartments"]["properties"]["members"]
    principal = {"kind": kind, "subject": subject}
    assert _fits(members["items"]["properties"]["principals"]["items"], principal) == taken
    assert _read(CompartmentMembers, {"name": "m", "principals": [principal]}) == taken


@pytest.mark.parametrize(("kind", "subject", "taken"), PRINCIPALS)
@pytest.mark.parametrize(("of", "path"), [("CacheScope", ("spec",)), ("CacheEpoch", ("spec", "target", "principal"))])
def test_rules_take_of_a_principal_what_the_model_takes(
    of: str, path: tuple[str, ...], kind: str, subject: str, *, taken: bool
) -> None:
    found = [re.search(r"kind != '(.+)' \|\| .*subject\.matches\('(.+)'\)", rule.rule) for rule in RULES[of] if rule.path == path]
    patterns = {match[1]: match[2].replace("\\\\", "\\") for match in found if match}
    assert patterns.keys() == {"mtls", "service-account"}
    assert (re.fullmatch(patterns.get(kind, ".*"), subject) is not None) == taken
    assert _read(Application, {"tenant": "red", "kind": kind, "subject": subject}) == taken


def _read(model: type[BaseModel], fields: dict[str, Any]) -> bool:
    try:
        model.model_validate(fields)
    except ValidationError:
        return False
    return True


def _fits(node: dict[str, Any], item: dict[str, str]) -> bool:
    """What the API server makes of the keywords that stand beside properties, and of patterns and enumerations below them."""
    below = node.get("properties", {})
    return (
        all(_fits(part, item) for part in node.get("allOf", ()))
        and ("anyOf" not in node or any(_fits(part, item) for part in node["anyOf"]))
        and all(item[name] in below[name].get("enum", [item[name]]) for name in below.keys() & item.keys())
        and all(re.search(below[name].get("pattern", ""), item[name]) for name in below.keys() & item.keys())
    )


@pytest.mark.parametrize("annotation", [int | str, Annotated[int, Field(multiple_of=2)]])
def test_what_has_no_structural_form_is_an_error(annotation: Any) -> None:
    class Odd(BaseModel):
        field: annotation

    with pytest.raises(ValueError, match="structural"):
        structural(Odd)


def _names(names: dict[str, Any]) -> Iterator[str]:
    yield from (names["plural"], names["singular"], *names["shortNames"])


def _nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema with its path; items of a list end in `[]`, values of a map in `{}`."""
    yield path, node
    for name, item in node.get("properties", {}).items():
        yield from _nodes(item, f"{path}.{name}")
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in node:
            yield from _nodes(node[keyword], path + mark)
