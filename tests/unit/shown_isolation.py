"""What runs of the probe showed, for the tests of what the operator makes of it."""

from __future__ import annotations

from cachescope.core.probes import Pair
from cachescope.engines.vllm import ROUTES
from cachescope.probe.judgement import Evidence, Judgement, Verdict
from cachescope.probe.live import Finding, Shown

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
WHY = "in 2 of 2 tries somebody else's prompt was found (usage)"


def finding(path: str = CHAT, verdict: Verdict = Verdict.ISOLATED, *, variant: str = "", hits: int = 0) -> Finding:
    """One experiment."""
    assert any(path == known for _, known in ROUTES)
    return Finding(path, variant, Judgement(verdict, WHY if verdict is Verdict.LEAKS else "because", Evidence(2, 2 - hits, hits)))


def proves(*paths: str) -> Shown:
    """A run that proved routes."""
    return Shown([finding(path) for path in paths or (CHAT,)])


def leaks(path: str = CHAT, variant: str = Pair.CASE.value) -> Shown:
    """A run that found a leak."""
    return Shown([finding(), finding(path, Verdict.LEAKS, variant=variant, hits=2)])


NOTHING = Shown([finding(verdict=Verdict.NO_EVIDENCE)])
FAILS = Shown(fault="a request was answered with 503")
