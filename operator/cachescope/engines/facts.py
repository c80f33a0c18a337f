"""What the catalogue knows of an engine: the shape of its data files. A key that is not described here is an error of the data.

How facts are known is in `evidence`. Reading versions is left to `releases`, judging a pool to `verdicts`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from cachescope.api.documents import Strict
from cachescope.engines.evidence import Basis, Evidence, Judgement, Release, Step, Steps, Text, ascending, enforcing


class EngineType(StrEnum):
    """Engines that a pool may name."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TENSORRT_LLM = "TensorRT-LLM"
    LLAMA_CPP = "llama.cpp"
    TGI = "TGI"
    LMDEPLOY = "LMDeploy"
    CUSTOM = "custom"


class Mode(StrEnum):
    """How tenants of a pool are kept apart."""

    SHARED = "Shared"
    PER_TENANT = "PerTenant"
    DISABLED = "Disabled"


EVERY_MODE = (Mode.SHARED, Mode.PER_TENANT, Mode.DISABLED)


class Tier(StrEnum):
    """Where a connector keeps blocks."""

    HOST = "Host"
    """In memory of the engine's own processes; it goes with them."""
    EXTERNAL = "External"
    """In files, in another process or on another machine; it outlives the engine's processes."""
    TRANSFER = "Transfer"
    """Nowhere: it hands them from one engine to another."""


class Reading(Strict):
    """What was read. Releases between `first` and `last` count as read, those after it do not."""

    first: Release | None = Field(None, description="Nothing where no release was read, but single files of a branch.")
    last: Release | None = None
    what: Text
    when: Text

    @model_validator(mode="after")
    def _a_range(self) -> Self:
        if (self.first is None) != (self.last is None):
            raise ValueError("a range has both ends")
        return self


class Salt(Evidence):
    """How a request carries its salt."""

    fields: tuple[Text, ...] = Field(min_length=1, description="Names in the body; the first one is used.")
    since: Release | None = Field(None, description="First release that has these limits.")
    max_characters: int | None = Field(None, ge=1)
    refused_characters: str = ""
    empty: Text = Field(description="What becomes of an empty salt.")


class Bypass(Evidence):
    """How one request asks for no reuse."""

    field: str | None = Field(None, description="Name in the body; nothing where the engine has none.")
    value: bool | None = None
    wins: bool = Field(False, description="Whether it wins over arguments: where nothing may be reused, each request carries it.")
    says: Text

    @model_validator(mode="after")
    def _what_wins_is_named(self) -> Self:
        if (self.field is None) != (self.value is None) or (self.wins and self.field is None):
            raise ValueError("a field has a value, and what wins is a field")
        return self


class Stripped(Evidence):
    """A field of requests that no client may give. `why` follows its name in a sentence."""

    field: Text
    why: Text


class RouteFact(Strict):
    """What a route does with a salt."""

    method: str = "POST"
    paths: tuple[Annotated[str, Field(pattern=r"^/")], ...] = Field(min_length=1)
    steps: tuple[Step, ...] = Field((), description="Of the salt; empty where no request reaches the cache.")
    without_cache: Evidence | None = Field(None, description="Why no request reaches the cache.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.steps) == (self.without_cache is not None):
            raise ValueError("a route has steps, or reaches no cache")
        ascending(self.steps)
        return self


class Algorithm(Judgement):
    """A hash of blocks."""

    name: Text


class DefaultHash(Evidence):
    """What a release hashes with when nobody says."""

    since: Release
    name: Text


class Hashes(Strict):
    """How an engine hashes blocks."""

    option: Text
    defaults: tuple[DefaultHash, ...]
    algorithms: tuple[Algorithm, ...]


class Package(Strict):
    """A package that a connector needs beside the engine."""

    name: Text
    last_read: Release
    steps: Steps


class Connector(Strict):
    """What keeps or moves blocks beside the engine's own cache."""

    name: Text
    also: tuple[Text, ...] = ()
    tier: Tier
    steps: Steps
    package: Package | None = None


class ConnectorOption(Strict):
    """How arguments name a connector."""

    option: Text
    connector: str | None = Field(None, description="The one that the option stands for.")
    prefix: str = Field("", description="What comes before the option's value in the connector's name.")
    key: str | None = Field(None, description="The key that names it, where the value is JSON or has dotted keys.")


class Note(Evidence):
    """A fact that no rule reads yet."""

    about: Text
    says: Text


class Proof(Evidence):
    """A counter that shows a hit."""

    kind: Annotated[str, Field(pattern="^(Usage|Metric)$")]
    name: Text
    needs: str | None = Field(None, description="The argument without which it is not there.")


class Flush(Evidence):
    """How the cache is emptied."""

    request: Text
    covers: Text


class Leak(Evidence):
    """What tells of other requests, beside the cache itself."""

    surface: Text
    says: Text
    closed_by: Text


class Spelling(Strict):
    """How an engine reads its arguments, as far as that differs from `--name value` and `--name=value`."""

    abbreviates: bool = Field(False, description="Whether the beginning of a name stands for it.")
    aliases: dict[str, str] = Field({}, description="The name that stands here for another one.")
    variables: bool = Field(False, description="Whether each option is a variable too: `--model-id` and `MODEL_ID`.")


class Refusal(Evidence):
    """A setting that nobody may give. `why` follows the setting in a sentence, and ends with the remedy."""

    option: Text | None = None
    variables: tuple[Text, ...] = Field((), description="Names, or beginnings of names with a `*`.")
    allow: tuple[str, ...] = Field((), description="Values that may be given.")
    modes: tuple[Mode, ...] = EVERY_MODE
    why: Text

    @property
    def name(self) -> str:
        """What the setting is called."""
        return self.option or self.variables[0]

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not (self.option or self.variables):
            raise ValueError("a refusal names an option or a variable")
        return self


class Override(Evidence):
    """A setting that the platform gives, whatever anybody says. `why` follows the setting in a sentence."""

    setting: Text = Field(description="An option, or a variable.")
    value: str | None = None
    opposes: tuple[Text, ...] = Field((), description="Other settings that say the opposite.")
    modes: tuple[Mode, ...] = EVERY_MODE
    why: Text


class Facts(Strict):
    """All that is known of an engine."""

    engine: EngineType
    reading: Reading | None = Field(None, description="Nothing where nobody can know what the engine is.")
    salt: Salt | None = None
    bypass: Bypass | None = None
    stripped: tuple[Stripped, ...] = ()
    off: Note | None = Field(None, description="How all reuse is switched off.")
    floor: Steps = Field(description="Of the engine as a whole, whatever the route.")
    routes: tuple[RouteFact, ...] = ()
    hashes: Hashes | None = None
    connectors: tuple[Connector, ...] = ()
    connector_options: tuple[ConnectorOption, ...] = ()
    parallelism: tuple[Note, ...] = ()
    proofs: tuple[Proof, ...] = ()
    flush: tuple[Flush, ...] = ()
    leaks: tuple[Leak, ...] = ()
    spelling: Spelling = Spelling()
    front_doors: bool = Field(False, description="Whether `core.front_doors` says what is refused, so that the guard knows it too.")
    refused: tuple[Refusal, ...] = ()
    overrides: tuple[Override, ...] = ()

    @property
    def stays_on(self) -> str | None:
        """Why reuse cannot be switched off, with the remedy; `None` where somebody read or tried how it can."""
        if self.off is not None and self.off.basis in {Basis.READ, Basis.TRIED}:
            return None
        return f"nobody read how to switch off reuse in {self.engine.value}; use isolation PerTenant"

    @model_validator(mode="after")
    def _nothing_enforces_that_was_not_read(self) -> Self:
        all_steps = (self.floor, *(route.steps for route in self.routes), *(item.steps for item in self.connectors))
        if any(map(enforcing, all_steps)) and (self.salt is None or self.reading is None or self.reading.last is None):
            raise ValueError("what enforces takes a salt, in a release that was read")
        return self

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        paths = [(route.method, path) for route in self.routes for path in route.paths]
        names = [name.casefold() for item in self.connectors for name in (item.name, *item.also)]
        if len(set(paths)) < len(paths) or len(set(names)) < len(names):
            raise ValueError("a route and a connector are described once")
        return self
