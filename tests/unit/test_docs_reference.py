"""The reference says what the kinds are."""

from __future__ import annotations

import re

from cachescope.api.conditions import ConditionType, Reason
from tests.unit.make_reference import MARK, PAGE, generated


def test_the_fields_are_those_of_the_crds() -> None:
    assert MARK + PAGE.read_text("utf-8").split(MARK)[1] == generated(), "run `python -m tests.unit.make_reference`"


def test_every_reason_of_a_condition_is_explained_and_no_other() -> None:
    text = PAGE.read_text("utf-8").split("## Conditions\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (?:True|False|True, False) `(\w+)` \|", text, re.MULTILINE)
    assert {reason for _, reason in rows} == {reason.value for reason in Reason}
    assert {kind for kind, _ in rows} == {kind.value for kind in ConditionType}
