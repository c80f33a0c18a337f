"""Log lines: one JSON object each, made without I/O, for the gateway's processes and for the guard inside an engine."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from pathlib import Path
from typing import Final

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

_NAMED_AFTER_TENANTS: Final = frozenset({"Tenant", "Secret"})


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; what `extra` holds becomes its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": moment, "level": record.levelname, "logger": record.name, "event": record.getMessage(), **fields}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def name_in_logs(kind: str, namespace: str, name: str) -> str:
    """How a log and a report that others may read name an object, below its namespace.

    Args:
        kind: Its kind. Who is a tenant is nobody's business: Tenants, and Secrets, which hold API keys, have a digest for a name.
        namespace: Its namespace.
        name: Its name.

    Returns:
        The name, or 12 hexadecimal digits of the SHA-256 of `namespace/name`, after `sha256:`.
    """
    if kind not in _NAMED_AFTER_TENANTS:
        return name
    return f"sha256:{hashlib.sha256(f'{namespace}/{name}'.encode()).hexdigest()[:12]}"


def fault_of(error: BaseException) -> dict[str, str]:
    """What a log may say of an unexpected error: its type and where it was raised. A message could quote a request."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
    return {"error": type(error).__name__, "where": where}
