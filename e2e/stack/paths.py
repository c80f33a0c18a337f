"""Folders of the stack."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("CACHESCOPE_CACHE", "~/.cache/cachescope")).expanduser()
STATE = CACHE / "demo"
EXAMPLES = ROOT / "examples" / "demo"
KUBECONFIG = CACHE / "cluster" / "kubeconfig"
