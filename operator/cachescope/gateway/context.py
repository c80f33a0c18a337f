"""What clients and applications say of a request in headers: `x-cachescope-compartment`, `-context` and `-handle`.

Rules:

- each comes at most once; none goes upstream;
- another one that begins as they do is refused: it is a typo of what would have narrowed, and to pass over it would share instead.
  What is ours and begins otherwise ends at Envoy;
- a context is one strict JSON object of at most 8 KiB in ASCII, of known fields alone: a typo is an error and never a default;
- a handle is taken as it comes: what is wrong with one is never told;
- nothing here trusts anybody: whether the sender may say it is decided where the pool is known (`core.classes`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cachescope.core.classes import Context, DataClass, NamedSource
from cachescope.core.epochs import MAX_EPOCH
from cachescope.core.errors import CacheScopeError
from cachescope.core.record import ABSENT
from cachescope.core.types import Digest
from cachescope.gateway.envoy import COMPARTMENT_HEADER, CONTEXT_HEADER, HANDLE_HEADER
from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.strict_json import Json, NotStrictJson, parse_object, shown

MAX_BYTES: Final = 8 * 1024
MAX_SOURCES: Final = 64
MAX_NAME: Final = 253

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_HEADERS: Final = frozenset({COMPARTMENT_HEADER, CONTEXT_HEADER, HANDLE_HEADER})
_BEGINNINGS: Final = ("x-cachescope-co", "x-cachescope-h")
_FIELDS: Final = frozenset({"dataClass", "sources", "promptBundle", "toolset"})
_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"


class BadHeader(CacheScopeError):  # noqa: N818 - says what it is, as the HTTP status does
    """A header cannot be understood; a 400. The message quotes no value."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a request's headers say.

    Attributes:
        compartment: The compartment that the client names.
        context: What the application says.
        handle: What the client expects to find cached, sealed.
    """

    compartment: str | None = None
    context: Context | None = None
    handle: str | None = None


def said(head: RequestHead) -> Said:
    """Read these headers.

    Raises:
        BadHeader: One of them cannot be understood.
    """
    if any(name.startswith(_BEGINNINGS) and name not in _HEADERS for name, _ in head.headers):
        raise BadHeader(f"a header begins as ours do and is none of {', '.join(sorted(_HEADERS))}; correct its name, or remove it")
    compartment, context = _once(head, COMPARTMENT_HEADER), _once(head, CONTEXT_HEADER)
    return Said(
        compartment=None if compartment is None else _name(compartment),
        context=None if context is None else _context(context),
        handle=_once(head, HANDLE_HEADER),
    )


def _once(head: RequestHead, name: str) -> str | None:
    values = head.values(name)
    if len(values) > 1:
        raise BadHeader(f"the header {name} comes more than once; send it once")
    if values and _UNREADABLE in values[0]:
        raise BadHeader(f"the header {name} is not ASCII; in JSON, escape other characters as \\uXXXX")
    return values[0] if values else None


def _name(value: str) -> str:
    if not 0 < len(value) <= MAX_NAME:
        raise BadHeader(f"{COMPARTMENT_HEADER} is empty or longer than {MAX_NAME} characters; send the name of one compartment")
    return value


def _context(value: str) -> Context:
    if len(value) > MAX_BYTES:
        raise BadHeader(f"{CONTEXT_HEADER} is longer than {MAX_BYTES} bytes; name fewer sources")
    try:
        fields = parse_object(value.encode())
    except NotStrictJson as error:
        raise BadHeader(f"{CONTEXT_HEADER} {error}") from None
    _known(fields, _FIELDS, "")
    return Context(
        data_class=_data_class(fields["dataClass"]) if "dataClass" in fields else None,
        sources=_sources(fields.get("sources", [])),
        prompt_bundle=_digest(fields["promptBundle"], "promptBundle") if "promptBundle" in fields else ABSENT,
        toolset=_digest(fields["toolset"], "toolset") if "toolset" in fields else None,
    )


def _data_class(value: Json) -> DataClass:
    known = [item.value for item in DataClass]
    if not isinstance(value, str) or value not in known:
        raise BadHeader(f"{CONTEXT_HEADER}: dataClass is none of {', '.join(known)}; send one of these")
    return DataClass(value)


def _sources(value: Json) -> tuple[NamedSource, ...]:
    if not isinstance(value, list) or len(value) > MAX_SOURCES:
        raise BadHeader(f"{CONTEXT_HEADER}: sources is not a list of at most {MAX_SOURCES} objects; send one")
    found = tuple(_source(item, f"sources[{at}]") for at, item in enumerate(value))
    if len({item.id for item in found}) != len(found):
        raise BadHeader(f"{CONTEXT_HEADER}: sources names one source twice; name each once")
    return found


def _source(value: Json, where: str) -> NamedSource:
    if not isinstance(value, dict):
        raise BadHeader(f'{CONTEXT_HEADER}: {where} is not an object; send {{"id": …, "epoch": …}}')
    _known(value, frozenset({"id", "epoch"}), f"{where}.")
    name, epoch = value.get("id"), value.get("epoch")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise BadHeader(f"{CONTEXT_HEADER}: {where}.id is not text of 1 to {MAX_NAME} characters; send one")
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= MAX_EPOCH):
        raise BadHeader(f"{CONTEXT_HEADER}: {where}.epoch is not a whole number of 0 to 2**53 - 1; send one")
    return NamedSource(name, epoch)


def _digest(value: Json, where: str) -> Digest:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise BadHeader(f"{CONTEXT_HEADER}: {where} is not `sha256:` and 64 lower-case hexadecimal digits; send a digest")
    return Digest(value)


def _known(fields: Mapping[str, Json], names: frozenset[str], where: str) -> None:
    unknown = sorted(fields.keys() - names)
    if unknown:
        raise BadHeader(f"{CONTEXT_HEADER}: {where}{shown(unknown[0])} is not known; send {', '.join(sorted(names))}")
