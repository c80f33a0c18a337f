"""The page of engines: `python -m tests.unit.make_engines` writes it from what the code knows; with `--check` it only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cachescope.core.front_doors import REFUSED
from cachescope.engines.catalogue import facts
from cachescope.engines.evidence import Evidence, Step
from cachescope.engines.facts import EVERY_MODE, Bypass, Connector, EngineType, Facts, Mode, Refusal
from cachescope.manifests.engines.known import ENGINES
from cachescope.manifests.engines.launch import Engine
from tests.unit.generated_files import cell, page

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
MARK = (
    "<!-- generated from operator/cachescope/engines/catalogue and manifests/engines by `python -m tests.unit.make_engines`; "
    "do not edit below -->\n"
)
Row = Sequence[str]


def generated() -> str:
    """All that the page says of engines."""
    each = [_engine(facts(engine)) for engine in EngineType if facts(engine).reading]
    return "".join([MARK, "\n## How each engine is started\n", *_started(), *each])


def _started() -> list[str]:
    columns = (
        "options read from",
        "command line",
        "guard",
        "adapters are asked for as",
        "running requests",
        "the command line says by itself",
    )
    return _table("engine", columns, map(_start, ENGINES.values()))


def _start(engine: Engine) -> Row:
    asked_as, owned = engine.adapters.asked_as, sorted(engine.owned)
    return (
        f"`{engine.type.value}`",
        engine.source,
        "run" if engine.tried else "rendered, not run",
        "inside or beside" if engine.takes_guard else "beside",
        f"`{asked_as}`" if asked_as else f"not offered: {engine.adapters.why_not}",
        engine.drain.value,
        _code(owned) or "nothing",
    )


def _engine(known: Facts) -> str:
    reading = known.reading
    span = f"Releases {reading.first} to {reading.last}" if reading and reading.last else "No release"
    lines = [f"\n## {known.engine.value}\n\n{span} read: {reading.what if reading else ''}; {reading.when if reading else ''}.\n"]
    lines += _table("the engine as a whole", ("since", "verdict", "it", "how it is known"), _steps("", known.floor))
    lines += _table("salt and reuse", ("is", "how it is known"), _salt(known))
    lines += _table("route", ("since", "verdict", "it", "how it is known"), _routes(known))
    lines += _table("connector", ("blocks", "since", "verdict", "it", "how it is known"), _connectors(known))
    lines += _table("hash", ("verdict", "it", "how it is known"), _hashes(known))
    lines += _table("refused", ("in mode", "it", "how it is known"), _refused(known))
    lines += _table("set by the platform", ("in mode", "it", "how it is known"), _set(known))
    lines += _table("shows a hit", ("is", "needs", "how it is known"), _proofs(known))
    lines += _table("empties the cache", ("covers", "how it is known"), _flush(known))
    lines += _table("leaks beside the cache", ("it", "closed by", "how it is known"), _leaks(known))
    lines += _table("several engines", ("what holds", "how it is known"), _parallel(known))
    return "".join(lines)


def _table(first: str, others: Row, rows: Iterable[Row]) -> list[str]:
    made = [f"| {' | '.join(map(cell, row))} |\n" for row in rows]
    columns = (first, *others)
    head = [f"\n| {' | '.join(columns)} |\n", f"| {' | '.join('---' for _ in columns)} |\n"]
    return [*head, *made] if made else []


def _steps(subject: str, steps: Iterable[Step]) -> Iterator[Row]:
    for step in steps:
        since = "the first" if step.since == "0" else step.since
        yield (subject, since, f"`{step.capability.value}`", step.why, _known(step))


def _salt(known: Facts) -> Iterator[Row]:
    salt, bypass, off = known.salt, known.bypass, known.off
    if salt:
        limit = f"at most {salt.max_characters} characters" if salt.max_characters else "no limit of its own"
        since = f" since {salt.since}" if salt.since else ""
        yield ("salt", f"{_code(salt.fields)}: {limit}{since}; an empty one is {salt.empty}", _known(salt))
    if bypass:
        yield ("one request without reuse", _bypass(bypass), _known(bypass))
    for item in known.stripped:
        yield ("removed from requests", f"`{item.field}`, which {item.why}", _known(item))
    if off:
        yield ("no reuse at all", f"`{off.about}`: {off.says}", _known(off))


def _bypass(bypass: Bypass) -> str:
    if bypass.field is None:
        return bypass.says
    wins = "; **it wins over arguments, so each request carries it where nothing may be reused**" if bypass.wins else ""
    return f"`{bypass.field}: {str(bypass.value).lower()}`: {bypass.says}{wins}"


def _routes(known: Facts) -> Iterator[Row]:
    for route in known.routes:
        paths = _code(route.paths)
        yield from _steps(paths, route.steps)
        if route.without_cache:
            yield (paths, "", "no cache", "no request reaches the cache", _known(route.without_cache))


def _connectors(known: Facts) -> Iterator[Row]:
    for item in known.connectors:
        yield from ((name, item.tier.value, *rest) for name, *rest in _steps(_code([item.name, *item.also]), item.steps))
        yield from _package(item)


def _package(item: Connector) -> Iterator[Row]:
    if item.package:
        name = f"`{item.name}`: `{item.package.name}`, read up to {item.package.last_read}"
        yield from ((subject, "", *rest) for subject, *rest in _steps(name, item.package.steps))


def _hashes(known: Facts) -> Iterator[Row]:
    if known.hashes:
        for item in known.hashes.algorithms:
            default = [f" (the default since {each.since})" for each in known.hashes.defaults if each.name == item.name]
            yield (f"`{item.name}`{''.join(default)}", f"`{item.capability.value}`", item.why, _known(item))


def _refused(known: Facts) -> Iterator[Row]:
    if known.front_doors:
        yield from ((f"`{name}`", "all", why, "with the guard: `core/front_doors.py`") for name, why in REFUSED.items())
    for item in known.refused:
        yield (_names(item), _modes(item.modes), item.why, _known(item))


def _names(item: Refusal) -> str:
    allowed = f", but for {_code(item.allow)}" if item.allow else ""
    return _code([*([item.option] if item.option else []), *item.variables]) + allowed


def _set(known: Facts) -> Iterator[Row]:
    for item in known.overrides:
        value = "" if item.value is None else f" `{item.value}`" if item.value else ", to nothing"
        yield (f"`{item.setting}`{value}", _modes(item.modes), item.why, _known(item))


def _proofs(known: Facts) -> Iterator[Row]:
    yield from (
        (f"`{item.name}`", item.kind, f"`{item.needs}`" if item.needs else "nothing", _known(item)) for item in known.proofs
    )


def _flush(known: Facts) -> Iterator[Row]:
    yield from ((item.request, item.covers, _known(item)) for item in known.flush)


def _leaks(known: Facts) -> Iterator[Row]:
    yield from ((item.surface, item.says, item.closed_by, _known(item)) for item in known.leaks)


def _parallel(known: Facts) -> Iterator[Row]:
    yield from ((item.about, item.says, _known(item)) for item in known.parallelism)


def _modes(modes: tuple[Mode, ...]) -> str:
    return "all" if set(modes) == set(EVERY_MODE) else ", ".join(f"`{mode.value}`" for mode in modes)


def _known(item: Evidence) -> str:
    return f"{item.basis.value}: {item.source}"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(page(PAGE, MARK, generated()))
