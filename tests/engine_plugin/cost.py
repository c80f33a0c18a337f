"""What the plugin costs vLLM's scheduler for a request of 4,000 tokens, in instructions (valgrind); needs valgrind and gcc.

Run by `make plugin`. A request is one of those whose first 2,048 tokens are approved, and of a plain salt.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cachescope.core.types import ScopeClass
from tests.conformance.engines.catalogue import ROOT
from tests.engine_plugin.inside import tokens
from tests.engine_plugin.places import Place, of_tenant

_INSIDE = Path(__file__).parent / "inside"
_NAME = re.compile(r"^desc: Trigger: Client Request: (\w+) (\w+) found (\d+)$", re.MULTILINE)
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def instructions(place: Place) -> dict[tuple[str, str], float]:
    """Instructions for each request, by `without` or `with` the plugin and by the kind of its salt."""
    place.approve({ScopeClass.PUBLIC: [tokens.approved()]}, sequence=1)
    counter = place.folder / "counter.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(counter), str(_INSIDE / "counter.c")], check=True)
    path = f"{place.environment['PYTHONPATH']}{os.pathsep}{ROOT}"
    environ = {
        **place.environment,
        "PYTHONPATH": path,
        "PYTHONHASHSEED": "0",
        "VLLM_PLUGINS": "",
        "SEGMENTED_SALT": of_tenant("red"),
    }
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={place.folder}/counts"]
    program = [str(place.python), "-m", "tests.engine_plugin.inside.cost", str(place.model), str(counter)]
    subprocess.run([*tool, *program], check=True, env=environ, cwd=place.folder)
    return dict(_counts(place.folder))


def _counts(folder: Path) -> Iterator[tuple[tuple[str, str], float]]:
    for path in sorted(folder.glob("counts.*")):
        text = path.read_text()
        name, total = _NAME.search(text), _TOTAL.search(text)
        if name and total:
            yield (name[1], name[2]), int(total[1]) / tokens.REQUESTS
