"""The engine's own counters of tokens that were found in its cache, from what it tells Prometheus.

Names as in vLLM: `v1/metrics/loggers.py` of 0.32.0, `hits` count tokens. The caches beyond the engine's own memory count too.
"""

from __future__ import annotations

import re

COUNTERS = ("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total")
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", re.ASCII)


def rise(before: int | None, after: int | None) -> int | None:
    """By how much a counter rose; `None` where it is not known, and of one that fell: it began anew, with an engine that did."""
    return None if before is None or after is None or after < before else after - before


def found_tokens(exposition: str) -> int | None:
    """Tokens that were found so far, over all engines of a process.

    Args:
        exposition: Prometheus text.

    Returns:
        `None` if no counter that is known is there.
    """
    samples = (_SAMPLE.match(line) for line in exposition.splitlines())
    values = [float(sample[2]) for sample in samples if sample and sample[1] in COUNTERS]
    return int(sum(values)) if values else None
