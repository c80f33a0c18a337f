"""Structured logs: one JSON object a line on standard output."""

from __future__ import annotations

import logging
import sys

from cachescope.core.log_lines import JsonFormatter, fault_of

__all__ = ["configure", "fault_of"]


def configure(level: str = "INFO") -> None:
    """Send all logs of this process to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
