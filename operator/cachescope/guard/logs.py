"""The guard's own log lines, one JSON object each on the engine's standard output; the engine's loggers stay as they are."""

from __future__ import annotations

import logging
import sys

from cachescope.core.log_lines import JsonFormatter

LOGGER = "cachescope"


def install() -> None:
    """Give the guard's loggers their handler, once; nothing of theirs goes on to the engine's handlers."""
    logger = logging.getLogger(LOGGER)
    if any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers):
        return
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
