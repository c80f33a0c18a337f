"""One rule in CEL (x-kubernetes-validations), as the CRDs hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`.

    Attributes:
        rule: The CEL expression.
        message: What went wrong and what to do.
        path: Where it stands: names of properties below the root.
        says: A CEL expression for a message with the numbers in it; `message` stands in where it cannot be evaluated.
        on_create: The rule also holds when there is no old object: `oldSelf` is an optional value then.
    """

    rule: str
    message: str
    path: tuple[str, ...] = ()
    says: str = ""
    on_create: bool = False

    def entry(self) -> dict[str, Any]:
        """As the CRD holds it."""
        entry: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.says:
            entry["messageExpression"] = self.says
        if self.on_create:
            entry["optionalOldSelf"] = True
        return entry
