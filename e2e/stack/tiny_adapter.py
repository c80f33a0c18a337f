"""LoRA adapters for the tiny model of the vLLM image (`images/vllm-cpu/tiny_model.py`), in PEFT's form, with random weights.

Written without any library: a safetensors file is the length of a JSON header, the header, and the numbers one after the other.
"""

from __future__ import annotations

import json
import random
import struct
from math import prod
from pathlib import Path

LAYERS, HIDDEN, KEY_VALUE, RANK = 4, 256, 128, 8
"""Of the tiny model, and the adapter's rank, which an engine takes without being told (at most 16)."""
MODULES = {"q_proj": HIDDEN, "v_proj": KEY_VALUE}
"""What it adapts: the projections' names and widths."""


def write(folder: Path, seed: int) -> None:
    """Write an adapter; the same seed gives the same files.

    Args:
        folder: Where to; it is made. Files that are there are replaced.
        seed: Decides the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)  # noqa: S311 - weights
    files = {"adapter_config.json": json.dumps(_config()).encode(), "adapter_model.safetensors": _safetensors(chance)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)
    folder.chmod(0o755)


def _config() -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(MODULES),
    }


def _shapes() -> dict[str, tuple[int, int]]:
    found = {}
    for layer in range(LAYERS):
        for module, width in MODULES.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            found[f"{name}.lora_A.weight"] = (RANK, HIDDEN)
            found[f"{name}.lora_B.weight"] = (width, RANK)
    return found


def _safetensors(chance: random.Random) -> bytes:
    header: dict[str, object] = {}
    numbers = b""
    for name, shape in _shapes().items():
        values = [chance.uniform(-0.1, 0.1) for _ in range(prod(shape))]
        begin, numbers = len(numbers), numbers + struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, len(numbers))}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + numbers
