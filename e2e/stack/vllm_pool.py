"""Pools like the demo's under another name: the same engine, which starts within a minute, and little memory asked for."""

from __future__ import annotations

from typing import Any

import yaml

from e2e.stack.install import Stack


def document(stack: Stack, name: str) -> dict[str, Any]:
    """The pool; clients name it as the model.

    Args:
        stack: The installation.
        name: Its name.
    """
    pool: dict[str, Any] = next(item for item in yaml.safe_load_all(stack.quickstart()) if item["kind"] == "ServingPool")
    pool["metadata"]["name"] = pool["spec"]["model"]["name"] = name
    pool["spec"]["resources"]["requests"] = {"cpu": "100m", "memory": "1Gi"}
    return pool
