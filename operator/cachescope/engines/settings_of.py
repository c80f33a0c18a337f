"""What somebody told an engine, by arguments and environment, and what of it is refused.

Rules:

- arguments are read in every spelling that any of the engines takes: `--a b`, `--a=b`, dashes or underscores, `--a.key b`, JSON,
  short names, and the beginnings of names where the engine takes them; what an engine would not understand is judged all the same;
- a variable that means the same as an option is that option, whatever its value: nobody guesses what an engine takes for off;
- a setting that is given several times is judged each time;
- a file that somebody else reads cannot be judged, so its setting is refused;
- what the platform gives nobody else may, neither what the catalogue demands nor what a command line says by itself;
- of vLLM `core.front_doors` says what is refused, since the guard judges by it too. Pools of it gave the platform's settings before
  anybody refused them: the platform's come last, and what was given against them counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from cachescope.core.front_doors import Option, forbidden, options
from cachescope.engines.facts import EVERY_MODE, Facts, Mode, Override, Spelling

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Given:
    """A setting that somebody gave.

    Attributes:
        name: As the catalogue has it.
        value: What it was given, if anything.
        key: What followed its name after a dot.
        written: The setting as it was written, with its value, which may be a secret: it is shown only where it is what is judged.
        by_variable: Whether a variable gave it.
    """

    name: str
    value: str | None
    key: str
    written: str
    by_variable: bool = False

    @property
    def name_written(self) -> str:
        """The setting as it was written, without its value."""
        return self.written.partition("=" if self.by_variable else " ")[0]


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that is refused.

    Attributes:
        sentence: Why, and the remedy.
        modes: In which modes; in most cases in all of them.
    """

    sentence: str
    modes: tuple[Mode, ...] = EVERY_MODE


@dataclass(frozen=True, slots=True)
class PlatformSetting:
    """A setting that the platform gives, whatever anybody says.

    Attributes:
        setting: The option or variable.
        value: Its value, if it has one.
        modes: In which modes.
        sentence: Why, and what of the given counts for nothing then.
        instead_of: What was given and counts for nothing, as it was written.
    """

    setting: str
    value: str | None
    modes: tuple[Mode, ...]
    sentence: str
    instead_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rule:
    """What may not be given: `why` follows the setting as it was written, and ends with the remedy."""

    name: str
    why: str
    modes: tuple[Mode, ...] = EVERY_MODE
    allow: tuple[str, ...] = ()


def given(facts: Facts, args: Sequence[str], env: Mapping[str, str], owned: Iterable[str] = ()) -> tuple[Given, ...]:
    """Every setting that somebody gave and the catalogue speaks of, arguments first.

    Args:
        facts: Of the engine.
        args: Its arguments, without the program.
        env: Its environment.
        owned: Further settings to look for.
    """
    names = _names(facts) | frozenset(owned)
    found = [item for option in options(args) for item in _of_option(facts.spelling, names, option)]
    patterns = tuple(dict.fromkeys(_variables(facts, names)))
    found += [
        Given(name, value, "", f"{variable}={value}", by_variable=True)
        for variable, value in sorted(env.items())
        for pattern, name in patterns
        if fnmatchcase(variable, pattern)
    ]
    return tuple(found)


def refused(facts: Facts, args: Sequence[str], env: Mapping[str, str]) -> tuple[Problem, ...]:
    """What nobody may give, the platform neither."""
    doors = forbidden(args, env) if facts.front_doors else ()
    rules = [_Rule(rule.name, rule.why, rule.modes, rule.allow) for rule in facts.refused]
    return (*map(Problem, doors), *_broken(rules, given(facts, args, env)))


def problems(facts: Facts, args: Sequence[str], env: Mapping[str, str], owned: Mapping[str, str] = _NOTHING) -> tuple[Problem, ...]:
    """What is refused of what somebody else than the platform gave.

    Args:
        facts: Of the engine.
        args: Its arguments, without the program.
        env: Its environment.
        owned: Settings that its command line gives by itself, each with what to do instead.
    """
    rules = [*_demanded(facts), *(_Rule(name, f"is set by the platform; {remedy}") for name, remedy in owned.items())]
    return (*refused(facts, args, env), *_broken(rules, given(facts, args, env, owned)))


def _demanded(facts: Facts) -> Iterator[_Rule]:
    """What the catalogue demands of the platform, and what would say the opposite."""
    for rule in () if facts.front_doors else facts.overrides:
        for name in (rule.setting, *rule.opposes):
            yield _Rule(name, f"is set by the platform: {rule.setting} {rule.why}; remove it", rule.modes)


def _broken(rules: Iterable[_Rule], found: Sequence[Given]) -> tuple[Problem, ...]:
    made = [
        Problem(f"{item.written if rule.allow else item.name_written} {rule.why}", rule.modes)
        for rule in rules
        for item in found
        if rule.name == item.name and item.value not in rule.allow
    ]
    return tuple(dict.fromkeys(made))


def overrides(facts: Facts, found: Iterable[Given], values: Mapping[str, str]) -> tuple[PlatformSetting, ...]:
    """What the platform sets.

    Args:
        facts: Of the engine.
        found: What somebody gave.
        values: Values that stand in the place of the catalogue's, by setting.
    """
    said = tuple(found)
    return tuple(_set(rule, values.get(rule.setting, rule.value), said) for rule in facts.overrides)


def values(found: Iterable[Given], name: str) -> tuple[str, ...]:
    """What a setting was given; empty text where it had no value."""
    return tuple(item.value or "" for item in found if item.name == name)


def _names(facts: Facts) -> frozenset[str]:
    named = {rule.name for rule in facts.refused} | {rule.option for rule in facts.connector_options}
    named |= {name for rule in facts.overrides for name in (rule.setting, *rule.opposes)}
    return frozenset(named | ({facts.hashes.option} if facts.hashes else set()))


def _variables(facts: Facts, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of variables, or their beginnings with a `*`, and the setting that each means."""
    yield from ((variable, rule.name) for rule in facts.refused for variable in rule.variables)
    for name in sorted(names):
        if not name.startswith("-"):
            yield name, name
        elif facts.spelling.variables:
            yield name.removeprefix("--").replace("-", "_").upper(), name


def _of_option(spelling: Spelling, names: frozenset[str], option: Option) -> Iterator[Given]:
    name = spelling.aliases.get(option.name, option.name)
    written = option.name if option.value is None else f"{option.name} {option.value}"
    for meant in _meant(spelling, names, name):
        yield Given(meant, option.value, option.key, written)


def _meant(spelling: Spelling, names: frozenset[str], name: str) -> tuple[str, ...]:
    """What a name may stand for: itself, or all that begins with it."""
    if name in names or not spelling.abbreviates or not name.startswith("--") or name == "--":
        return (name,) if name in names else ()
    long_names = {*names, *(alias for alias in spelling.aliases if alias.startswith("--"))}
    begun = sorted(full for full in long_names if full.startswith(name))
    return tuple(dict.fromkeys(spelling.aliases.get(full, full) for full in begun))


def _set(rule: Override, value: str | None, found: Iterable[Given]) -> PlatformSetting:
    against = [item.written for item in found if _differs(rule, value, item)]
    sentence = f"{_shown(rule.setting, value)} is set by the platform: it {rule.why}"
    if against:
        sentence += f"; {', '.join(against)} counts for nothing, so remove it"
    return PlatformSetting(rule.setting, value, rule.modes, sentence, tuple(against))


def _differs(rule: Override, value: str | None, item: Given) -> bool:
    if item.name in rule.opposes:
        return True
    return item.name == rule.setting and (item.by_variable or value is not None) and item.value != value


def _shown(setting: str, value: str | None) -> str:
    if value is None:
        return setting
    return f"{setting} {value}" if setting.startswith("-") else f"{setting}={value}"
