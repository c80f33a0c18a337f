"""`PublicSource`: a text that may be shared with everybody. Field descriptions are the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field, model_validator

from cachescope.api.documents import Resource, Strict
from cachescope.api.statuses import PublicSourceStatus
from cachescope.core.public_sources import Approval, Source
from cachescope.core.types import Digest

DIGEST = r"^sha256:[0-9a-f]{64}$"


class SourceApproval(Strict):
    """Somebody's word that everybody may know of the text, and that others use it."""

    by: str = Field(min_length=1, max_length=253, description="Who approved it; for people.")
    at: AwareDatetime = Field(description="From when on it holds (RFC 3339).")
    expires: AwareDatetime = Field(description="From when on it holds no longer; after `at`.")

    @model_validator(mode="after")
    def _in_order(self) -> SourceApproval:
        if self.expires <= self.at:
            raise ValueError("an approval ends after it begins; set expires to a time after at")
        return self


class PublicSourceSpec(Strict):
    """One text, and who answers for it."""

    digest: str = Field(
        pattern=DIGEST,
        max_length=71,
        description="`sha256:` and the SHA-256 of the exact text in UTF-8, as requests send it. It cannot be changed: what was "
        "approved is this text.",
    )
    title: str = Field("", max_length=253, description="What it is; for people.")
    owner: str = Field("", max_length=253, description="Who answers for it; for people.")
    approval: SourceApproval | None = Field(None, description="Without it the text is not public.")
    withdrawn: bool = Field(False, description="Takes the approval back: at once, and fenced like a revocation.")


class PublicSource(Resource):
    """A text that may be shared with everybody."""

    KIND: ClassVar[str] = "PublicSource"
    PLURAL: ClassVar[str] = "publicsources"

    kind: Literal["PublicSource"] = "PublicSource"
    spec: PublicSourceSpec
    status: PublicSourceStatus | None = None

    def source(self) -> Source:
        """What decisions need of it."""
        approval = self.spec.approval
        held = Approval(approval.at.timestamp(), approval.expires.timestamp()) if approval else None
        return Source(Digest(self.spec.digest), held, self.spec.withdrawn)
