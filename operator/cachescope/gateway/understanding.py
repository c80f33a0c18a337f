"""What a request asks for: its body cleaned, its digests, and what its headers say. The decision and `explain` read it alike."""

from __future__ import annotations

from dataclasses import dataclass

from cachescope.core.classes import Context, DataClass
from cachescope.engines.routes import Route
from cachescope.gateway import binding
from cachescope.gateway.bodies import Json, Sanitized, content_digest, sanitize, toolset_digest
from cachescope.gateway.context import Said
from cachescope.gateway.placing import Sent
from cachescope.gateway.sent_texts import sent_texts


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, cleaned, with its digests."""

    cleaned: Sanitized
    content: binding.Content
    sent: Sent


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
