"""What somebody told an engine, by arguments and environment, and what of it is refused.

Rules:

- arguments are read in every spelling that any of the engines takes: `--a b`, `--a=b`, dashes or underscores, `--a.key b`, JSON,
  short names, and the beginnings of names where the engine takes them; what an engine would not understand is judged all the same;
- a variable that means the same as an option is that option;
- a setting that is given several times is judged each time;
- a file that somebody else reads cannot be judged, so its setting is refused;
- of vLLM `core.front_doors` says what is refused, since the guard judges by it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachescope.core.front_doors import Option, forbidden, options
from cachescope.engines.facts import EVERY_MODE, Facts, Mode, Override, Refusal, Spelling


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


def given(facts: Facts, args: Sequence[str], env: Mapping[str, str]) -> tuple[Given, ...]:
    """Every setting that somebody gave and the catalogue speaks of, arguments first.

    Args:
        facts: Of the engine.
        args: Its arguments, without the program.
        env: Its environment.
    """
    names = _names(facts)
    found = [item for option in options(args) for item in _of_option(facts.spelling, names, option)]
    variables = _variables(facts)
    found += [
        Given(name, value, "", f"{variable}={value}", by_variable=True)
        for variable, value in sorted(env.items())
        for name in variables.get(variable, ())
    ]
    return tuple(found)


def problems(facts: Facts, args: Sequence[str], env: Mapping[str, str]) -> tuple[Problem, ...]:
    """What is refused of an engine's arguments and environment."""
    if facts.front_doors:
        return tuple(map(Problem, forbidden(args, env)))
    found = given(facts, args, env)
    made = [
        Problem(f"{item.written if rule.allow else item.name_written} {rule.why}", rule.modes)
        for item in found
        for rule in facts.refused
        if rule.name == item.name and not _harmless(facts.spelling, rule, item)
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


def _variables(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Names of the settings that a variable means."""
    pairs = [(variable, rule.name) for rule in facts.refused for variable in rule.variables]
    pairs += [(variable, rule.setting) for rule in facts.overrides for variable in rule.variables]
    pairs += [(rule.setting, rule.setting) for rule in facts.overrides if not rule.setting.startswith("-")]
    made: dict[str, tuple[str, ...]] = {}
    for variable, name in dict.fromkeys(pairs):
        made[variable] = (*made.get(variable, ()), name)
    return made


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


def _harmless(spelling: Spelling, rule: Refusal, item: Given) -> bool:
    if item.by_variable and item.value is not None and item.value.casefold() in spelling.off:
        return True
    return item.value is not None and item.value in rule.allow


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
