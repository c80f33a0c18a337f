"""The report of a run as a file: the same engine, model and options give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cachescope.probe.cases import Role
from cachescope.probe.conformance.checks import Result
from cachescope.probe.conformance.suite import Report
from cachescope.probe.judgement import USAGE, Evidence

FORMAT = "cachescope/conformance/v1"


def text(report: Report) -> str:
    """A report as JSON, with a line for each check: no time, no seed, and nothing that was sent."""
    head = json.dumps(_head(report), indent=2).removesuffix("\n}")
    checks = ",\n".join(f"    {json.dumps(_check(result))}" for result in report.results)
    return f'{head},\n  "checks": [\n{checks}\n  ]\n}}\n'


def _head(report: Report) -> Mapping[str, object]:
    declared, features = report.declared, report.features
    return {
        "format": FORMAT,
        "engine": declared.engine,
        "version": declared.version,
        "profile": declared.profile.value,
        "passed": not report.failures,
        "model": report.model,
        "tries": report.tries,
        "features": {
            "reportedVersion": features.reported,
            "routes": dict(sorted(features.routes.items())),
            "streams": sorted(features.streams),
            "counter": features.counter,
            "usage": sorted({result.route for result in report.results if result.evidence and USAGE in result.evidence.sources}),
            "bypasses": dict(sorted(features.bypasses.items())),
        },
    }


def _check(result: Result) -> Mapping[str, object]:
    return {
        "rule": result.rule.value,
        "detail": result.detail,
        "route": result.route,
        "expected": sorted(outcome.value for outcome in result.expected),
        "found": result.found.value,
        "passed": result.passed,
        "why": result.why,
        **(_figures(result.evidence) if result.evidence else {}),
    }


def _figures(evidence: Evidence) -> Mapping[str, object]:
    return {
        "tries": evidence.tries,
        "controls": evidence.controls,
        "hits": evidence.hits,
        "tokens": {role.value: evidence.tokens[role] for role in (Role.FIRST, Role.AGAIN, Role.OTHER)},
        "sources": list(evidence.sources),
    }
