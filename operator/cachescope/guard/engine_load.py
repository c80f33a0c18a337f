"""How many requests an engine holds, read from its own metrics in Prometheus' text format.

A sidecar cannot call the engine's queue; zero running and zero waiting after an abort is what it can know.

Names are read from vLLM 0.32.0, xllamacpp 2026.10.11549 (both tried), sglang 0.5.23 (`srt/observability/metrics_collector.py`) and
lmdeploy 0.18.0 (`metrics/loggers.py`). Other engines are asked in vain: their guards lapse at each fence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

_FAMILIES = (
    frozenset({"vllm:num_requests_running", "vllm:num_requests_waiting"}),
    frozenset({"llamacpp:requests_processing", "llamacpp:requests_deferred"}),
    frozenset({"sglang:num_running_reqs", "sglang:num_queue_reqs"}),
    frozenset({"lmdeploy:num_requests_running", "lmdeploy:num_requests_waiting"}),
)


def read_load(text: str) -> int | None:
    """Sum running and waiting requests over all cores of the engine; `None` when either is not there.

    Raises:
        ValueError: A value is no count.
    """
    samples = list(_samples(text))
    for family in _FAMILIES:
        if family <= {name for name, _ in samples}:
            return math.ceil(sum(value for name, value in samples if name in family))
    return None


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        name, _, labelled = line.partition("{")
        name, _, plain = name.partition(" ")
        if any(name in family for family in _FAMILIES):
            # A label's value may hold spaces and braces; what follows the last brace is value and time.
            fields = (labelled.rpartition("}")[2] or plain).split()
            value = float(fields[0] if fields else "missing")
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}; look at the engine's metrics")
            yield name, value
