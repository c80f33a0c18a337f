"""The engine's metrics, under the names of vLLM 0.32 (`v1/metrics/loggers.py`)."""

from __future__ import annotations

from e2e.stub_engine.core import EngineCore


def exposition(core: EngineCore, model: str) -> bytes:
    """Prometheus text."""
    values = (
        ("vllm:num_requests_running", "gauge", len(core.running)),
        ("vllm:num_requests_waiting", "gauge", len(core.waiting)),
        ("vllm:prefix_cache_queries_total", "counter", core.cache.queries),
        ("vllm:prefix_cache_hits_total", "counter", core.cache.hits),
    )
    labels = f'{{engine="0",model_name="{model}"}}'
    lines = (f"# TYPE {name} {kind}\n{name}{labels} {float(value)}\n" for name, kind, value in values)
    return "".join(lines).encode()
