"""The adapters of the end-to-end tests are files that a safetensors reader takes: what the header says of each number is there."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

from e2e.stack import tiny_adapter


def test_the_weights_are_where_the_header_says(tmp_path: Path) -> None:
    tiny_adapter.write(tmp_path, 1)
    content = (tmp_path / "adapter_model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header, numbers = json.loads(content[8 : 8 + length]), content[8 + length :]
    spans = sorted(item["data_offsets"] for item in header.values())
    sizes = {name: item["data_offsets"][1] - item["data_offsets"][0] for name, item in header.items()}
    assert length % 8 == 0
    assert [begin for begin, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, len(numbers))
    assert sizes == {name: 4 * prod(item["shape"]) for name, item in header.items()}
    assert {name.rsplit(".", 3)[1] for name in header} == set(
        json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    )


def test_a_seed_decides_the_files(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tiny_adapter.write(tmp_path / name, seed)
    contents = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
