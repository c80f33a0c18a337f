"""Folders of the stack."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.layout import from_environment

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = from_environment()
CACHE = LAYOUT.cache
STATE = CACHE / "demo"
EXAMPLES = ROOT / "examples"
CHARTS = ROOT / "charts"
KUBECONFIG = LAYOUT.kubeconfig
DEMO_NAMESPACE = "cachescope-demo"
