"""What the catalogue says of connectors, each with its remedy: pure. One that it does not have is `Unknown`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from packaging.version import Version

from cachescope.engines.descriptions import ConnectorUse
from cachescope.engines.evidence import Step
from cachescope.engines.facts import Connector, Facts, Package, Tier
from cachescope.engines.findings import Finding, sentence
from cachescope.engines.releases import first_enforced, read_release, release, step_at
from cachescope.engines.routes import Capability


def joined(declared: Sequence[ConnectorUse], named: Iterable[str]) -> tuple[ConnectorUse, ...]:
    """Connectors that a pool declares, and those beside them that its settings name."""
    said = {use.name.casefold() for use in declared}
    return (*declared, *(ConnectorUse(name) for name in named if name.casefold() not in said))


def of_connectors(facts: Facts, version: str, used: Iterable[ConnectorUse]) -> Iterator[Finding]:
    """What is said of each connector, and of its package where it has one."""
    found = read_release(facts.reading, version)
    for use in used:
        known = _connector(facts, use)
        if known is None:
            yield Finding(Capability.UNKNOWN, f"the connector {use.name} is not in the catalogue; remove it")
            continue
        yield _of_steps(f"the connector {use.name}", known.steps, found, f"{facts.engine.value} {{}} or later, or remove it")
        if known.package is not None:
            yield _of_package(known.package, use)


def _connector(facts: Facts, use: ConnectorUse) -> Connector | None:
    name = use.name.casefold()
    return next((item for item in facts.connectors if name in {each.casefold() for each in (item.name, *item.also)}), None)


def tier(facts: Facts, use: ConnectorUse) -> Tier:
    """Where it keeps blocks; one that nobody knows is believed to keep them anywhere."""
    known = _connector(facts, use)
    return known.tier if known else Tier.EXTERNAL


def _of_package(package: Package, use: ConnectorUse) -> Finding:
    if use.version is None:
        return Finding(
            Capability.UNKNOWN, f"the version of {package.name} is not declared; declare it with the connector {use.name}"
        )
    found = release(use.version)
    if found is None or found > Version(package.last_read):
        first = first_enforced(package.steps)
        why = f"{package.name} {use.version} was not read; declare a release from {first} to {package.last_read}"
        return Finding(Capability.UNKNOWN, why)
    return _of_steps(f"{package.name} {use.version}", package.steps, found, f"{package.name} {{}} or later")


def _of_steps(subject: str, steps: Sequence[Step], found: Version | None, later: str) -> Finding:
    """What steps say of a release that was read, or of none."""
    step = step_at(steps, found)
    first = first_enforced(steps)
    remedy = f"use {later.format(first)}" if first else "remove it"
    if step is None:
        return Finding(Capability.UNKNOWN, f"{subject} was not read for this version; {remedy}")
    return Finding(step.capability, sentence(subject, step, remedy))
