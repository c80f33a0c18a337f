"""What a request asks for: its body cleaned, its digests, and what its headers say. The decision and `explain` read it alike.

A body is parsed before it is known for which engine it is, and cleaned once that is; a large one in threads, so that it holds up
nobody else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from cachescope.core.classes import Context, DataClass
from cachescope.engines.facts import EngineType
from cachescope.engines.routes import Route
from cachescope.engines.tables import TABLES
from cachescope.gateway import binding
from cachescope.gateway.admitting import Admitted
from cachescope.gateway.bodies import Json, Sanitized, content_digest, parse_body, sanitize, toolset_digest
from cachescope.gateway.context import Said
from cachescope.gateway.own_routes import Enclosed, Purpose, checked_route, enclosed
from cachescope.gateway.placing import Sent
from cachescope.gateway.sent_texts import sent_texts

LARGE_BODY_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, cleaned, with its digests."""

    cleaned: Sanitized
    content: binding.Content
    sent: Sent


@dataclass(frozen=True, slots=True)
class Understood:
    """What a body asks for, of which engine, and for how long a handle is to last, should it ask for one."""

    asked: Asked
    engine: str
    ttl_seconds: int


async def read_enclosed(admitted: Admitted, body: bytes) -> Enclosed:
    """Parse a body.

    Raises:
        BadBody: It is none.
    """
    if len(body) <= LARGE_BODY_BYTES:
        return _read_enclosed(admitted, body)
    return await asyncio.to_thread(_read_enclosed, admitted, body)


async def understood(admitted: Admitted, found: Enclosed, engine: str, *, large: bool) -> Understood | None:
    """Clean and digest a body for an engine; `None` where that has no such route.

    Raises:
        BadBody: It cannot be sent to it.
    """
    route = TABLES[EngineType(engine)].get((admitted.head.method, found.path))
    if route is None:
        return None
    checked_route(admitted.purpose, route)
    asked = (
        await asyncio.to_thread(asked_of, route, found.fields, admitted.said)
        if large
        else asked_of(route, found.fields, admitted.said)
    )
    return Understood(asked, engine, found.ttl_seconds)


def _read_enclosed(admitted: Admitted, body: bytes) -> Enclosed:
    fields = parse_body(body)
    if admitted.purpose is Purpose.ENGINE:
        return Enclosed(admitted.head.path, fields)
    return enclosed(admitted.purpose, fields)


def asked_of(route: Route, fields: dict[str, Json], said: Said) -> Asked:
    """What a request asks for.

    Args:
        route: Where it goes.
        fields: Its body, parsed.
        said: What its headers say.

    Raises:
        BadBody: It cannot be sent to an engine.
    """
    cleaned, context = sanitize(route, fields), said.context or Context()
    content = binding.Content(content_digest(route.dialect, cleaned.content), toolset_digest(cleaned.tools), context)
    texts = sent_texts(cleaned) if context.data_class is DataClass.PUBLIC else None
    return Asked(cleaned, content, Sent(said, texts, content.toolset))
