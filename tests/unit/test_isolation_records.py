"""What is kept of runs: proofs of processes that are there, none after a leak, and a leak until every process was shown since."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.api.statuses import IsolationProof, IsolationStatus
from cachescope.controller.isolation_records import MOST_SHOWN, Leak, Processes, after, leaked, proven, read_record
from cachescope.gateway.proofs import read_proofs
from cachescope.probe.judgement import Verdict
from cachescope.probe.live import Shown
from tests.unit.shown_isolation import CHAT, COMPLETIONS, FAILS, NOTHING, WHY, finding, leaks, proves

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 30, 13, tzinfo=UTC)
BOOTS = ("a", "b", "c")
ALL = Processes(BOOTS, BOOTS)
EMPTY = IsolationStatus()


def run(record: IsolationStatus, boot: str, shown: Shown, there: Processes = ALL, now: datetime = NOW) -> IsolationStatus:
    """What the operator does with a run."""
    if shown.leak:
        return leaked(record, Leak(boot, f"pod-{boot}", "isolation-1"), shown.leak, shown, there=there)
    return after(record, boot, shown, now=now, there=there)


def runs(*steps: tuple[str, Shown]) -> IsolationStatus:
    record = EMPTY
    for boot, shown in steps:
        record = run(record, boot, shown)
    return record


def test_a_proof_is_of_the_process_that_was_asked() -> None:
    record = runs(("a", proves(CHAT, COMPLETIONS)), ("b", proves(CHAT)))
    assert proven(record) == {"a": {CHAT, COMPLETIONS}, "b": {CHAT}}
    assert (record.verified_at, record.fault, record.leak) == ("2026-11-30T12:00:00Z", "", "")


def test_processes_of_which_the_same_was_shown_stand_together() -> None:
    record = runs(("b", proves(COMPLETIONS, CHAT)), ("a", proves(CHAT, COMPLETIONS)), ("c", proves(CHAT)))
    assert record.proofs == (
        IsolationProof(routes=(CHAT,), boots=("c",)),
        IsolationProof(routes=(CHAT, COMPLETIONS), boots=("a", "b")),
    )


def test_gateways_read_what_is_kept() -> None:
    record = runs(("a", proves(CHAT, COMPLETIONS)), ("b", proves(CHAT)))
    assert read_proofs({"isolation": record.model_dump(mode="json", by_alias=True)}).routes == proven(record)


@pytest.mark.parametrize("shown", [proves(CHAT), FAILS], ids=["shown", "failed"])
def test_a_process_that_is_gone_takes_its_proof_along(shown: Shown) -> None:
    record = runs(("a", proves()), ("b", proves()))
    assert proven(run(record, "b", shown, Processes("bc", "bc"))).keys() == {"b"}
    assert proven(run(record, "b", shown, Processes("abc", "bc"))).keys() == {"a", "b"}, "one that is known and does not serve"


def test_a_run_that_showed_nothing_takes_nothing_and_says_why() -> None:
    record = run(runs(("a", proves())), "a", FAILS, now=LATER)
    assert proven(record) == {"a": {CHAT}}
    assert (record.verified_at, record.fault) == ("2026-11-30T12:00:00Z", FAILS.fault)
    assert run(record, "a", proves(), now=LATER).fault == ""


def test_a_run_that_showed_less_takes_the_rest() -> None:
    before = runs(("a", proves(CHAT, COMPLETIONS)), ("b", proves()))
    assert proven(run(before, "a", proves(COMPLETIONS))) == {"a": {COMPLETIONS}, "b": {CHAT}}
    record = run(before, "a", NOTHING, now=LATER)
    assert proven(record) == {"a": {CHAT}, "b": {CHAT}}, "what it could not tell of one route stands, and nothing else"
    assert record.verified_at == "2026-11-30T12:00:00Z", "nothing was shown"


def test_a_leak_of_a_process_that_was_proven_takes_all_proofs_and_is_told() -> None:
    record = runs(("a", proves()), ("b", proves()), ("b", leaks(COMPLETIONS, "streamed")))
    assert (proven(record), record.leaked, record.incident) == ({}, ("b",), "isolation-1")
    assert record.leak == f"{COMPLETIONS} (streamed) of pod-b: {WHY}"
    assert runs(("b", leaks(COMPLETIONS, ""))).leak == f"{COMPLETIONS} of pod-b: {WHY}"


def test_a_leak_of_a_process_that_never_was_takes_nothing_from_the_others() -> None:
    record = runs(("a", proves()), ("b", leaks()))
    assert proven(record) == {"a": {CHAT}}
    assert record.leaked == ("b",)


def test_who_leaked_is_never_proven_and_forgotten_once_it_is_gone() -> None:
    record = runs(("a", leaks()), ("b", leaks()), ("a", proves()))
    assert (proven(record), record.leaked) == ({}, ("a", "b"))
    record = run(record, "c", proves(), Processes("bc", "bc"))
    assert proven(record) == {"c": {CHAT}}
    assert record.leaked == ("b",)


def test_a_leak_is_over_once_every_process_that_serves_was_shown_since() -> None:
    record = runs(("a", proves()), ("b", proves()), ("c", proves()), ("a", leaks()))
    for boot in "bc":
        record = run(record, boot, proves())
        assert (record.leak != "", record.incident) == (True, "isolation-1"), "the one that leaked serves still"
    for shown in (FAILS, NOTHING):
        assert run(record, "c", shown, Processes("abc", "bc")).leak
    over = run(record, "b", proves(), Processes("bc", "bc"))
    assert (over.leak, over.incident, over.leaked, set(proven(over))) == ("", "", (), {"b", "c"})
    assert run(record, "b", proves(), Processes("bcd", "bcd")).leak, "one that was not shown yet"


def test_what_the_last_run_found_is_told() -> None:
    record = runs(("a", leaks()))
    assert [(item.route, item.variant, item.found, item.tries, item.hits) for item in record.last] == [
        (CHAT, "", "Isolated", 2, 0),
        (CHAT, "the letter case of the salt", "Leaks", 2, 2),
    ]
    assert len(runs(("a", Shown([finding()] * 100))).last) == MOST_SHOWN
    for verdict in Verdict:
        assert runs(("a", Shown([finding(verdict=verdict)]))).last[0].found == verdict.value


@pytest.mark.parametrize(
    "status", [None, {}, {"isolation": None}, {"isolation": {}}, {"isolation": 7}, {"isolation": {"proofs": 7}}], ids=str
)
def test_a_record_that_cannot_be_read_is_empty(status: dict[str, Any] | None) -> None:
    assert read_record(status) == EMPTY


def test_a_record_is_read_as_it_was_written() -> None:
    record = runs(("a", proves()), ("b", leaks()), ("a", proves(CHAT, COMPLETIONS)), ("a", FAILS))
    assert read_record({"isolation": record.model_dump(mode="json", by_alias=True)}) == record


shown_runs = st.sampled_from([proves(CHAT), proves(COMPLETIONS), proves(CHAT, COMPLETIONS), NOTHING, FAILS, leaks()])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(BOOTS), shown_runs), max_size=12))
def test_a_process_is_proven_by_its_last_conclusive_run_unless_it_or_one_that_was_proven_leaked(
    steps: list[tuple[str, Shown]],
) -> None:
    expected: dict[str, frozenset[str]] = {}
    leaked_ones: set[str] = set()
    for boot, shown in steps:
        if shown.leak:
            expected = {} if boot in expected else expected
            leaked_ones.add(boot)
        elif not shown.fault and boot not in leaked_ones:
            expected = {**expected, boot: shown.proven | (shown.undecided & expected.get(boot, frozenset()))}
        expected = {name: paths for name, paths in expected.items() if paths}
    record = runs(*steps)
    assert proven(record) == expected
    assert set(record.leaked) == leaked_ones
    assert bool(record.leak) == bool(leaked_ones), "all of them serve still"


def test_a_leak_that_nobody_declared_is_not_over_though_every_process_was_shown_since() -> None:
    left = Processes(("b",), ("b",))
    undeclared = runs(("a", leaks())).model_copy(update={"incident": ""})
    assert run(undeclared, "b", proves(), there=left).leak == undeclared.leak != ""
    assert run(runs(("a", leaks())), "b", proves(), there=left).leak == ""
