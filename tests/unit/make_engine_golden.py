"""The pods of every engine: `python tests/unit/make_engine_golden.py` writes them, with `--check` it only compares.

Those of vLLM are frozen for pools that run (`make_pool_golden`). Of the others nobody runs one yet: these files show what changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.engine_pools import OTHERS, arguments, template

FOLDER = Path(__file__).parent / "golden" / "engines"
HOW = "if the change is meant, run `PYTHONPATH=operator:. python tests/unit/make_engine_golden.py` and read the difference"


def written(engine: str) -> str:
    """The golden file as the present code writes it: the pods' template, and the arguments where nothing may be reused."""
    document = {"template": template(engine), "argumentsWithoutReuse": arguments(engine, reuse=False)}
    return json.dumps(document, indent=1) + "\n"


def path(engine: str) -> Path:
    """Where it is."""
    return FOLDER / f"{engine}.json"


def main(*, check: bool) -> int:
    """Write the files, or compare them; 1 when one differs."""
    differing = [engine for engine in OTHERS if not path(engine).exists() or path(engine).read_text() != written(engine)]
    FOLDER.mkdir(exist_ok=True)
    for engine in [] if check else differing:
        path(engine).write_text(written(engine))
    for engine in differing:
        sys.stderr.write(f"{path(engine)} {'differs' if check else 'written'}\n")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
