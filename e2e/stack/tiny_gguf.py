"""Writes a small Llama with random weights as a GGUF file, for llama.cpp: `python -m e2e.stack.tiny_gguf FILE SEED`.

Written without any library. A GGUF file is a header of named values, a table that says of each tensor its shape and place, and the
tensors one after the other; the same seed gives the same file. The tokenizer knows the 256 bytes and merges only a pair of them
that text never has, so a prompt has a token a byte and its length is known.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3).
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

LAYERS, WIDTH, HEADS, KEY_VALUE_HEADS, INNER = 2, 128, 2, 1, 256
CONTEXT = 32_768
"""Tokens; several slots share it."""
ALIGNMENT = 32
BEGIN, END, UNKNOWN = SPECIAL = ("<s>", "</s>", "<unk>")
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"

_VERSION, _F32 = 3, 0
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_DEVIATION = 0.02
_HEAD = WIDTH // HEADS

Value = int | float | str | Sequence[str] | Sequence[int]


def write(path: Path, seed: int) -> None:
    """Write the model, readable by everybody.

    Args:
        path: The file; its folder is made.
        seed: Decides the weights.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(_file(random.Random(seed))))  # noqa: S311 - weights
    path.chmod(0o644)


def byte_tokens() -> list[str]:
    """The texts that stand for the 256 bytes in a GPT-2 vocabulary: themselves where they can be seen, else characters beyond."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in seen else next(hidden)) for byte in range(256)]


def _file(chance: random.Random) -> Iterator[bytes]:
    values, shapes = _values(), dict(_shapes())
    header = b"GGUF" + struct.pack("<IQQ", _VERSION, len(shapes), len(values))
    header += b"".join(_named(name, value) for name, value in values.items()) + b"".join(_table(shapes))
    yield _padded(header)
    for name, shape in shapes.items():
        yield _padded(_weights(chance, prod(shape), ones=name.endswith("norm.weight")))


def _values() -> Mapping[str, Value]:
    bytewise = byte_tokens()
    tokens = [*SPECIAL, *bytewise]
    return {
        "general.architecture": "llama",
        "general.alignment": ALIGNMENT,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": WIDTH,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KEY_VALUE_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _HEAD,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [_CONTROL, _CONTROL, _UNKNOWN, *[_NORMAL] * len(bytewise)],
        # The reader wants one; UTF-8 has neither byte.
        "tokenizer.ggml.merges": [f"{bytewise[0xFE]} {bytewise[0xFF]}"],
        "tokenizer.ggml.bos_token_id": tokens.index(BEGIN),
        "tokenizer.ggml.eos_token_id": tokens.index(END),
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each tensor's name and shape, the dimension first whose numbers lie side by side."""
    vocabulary, keys = len(SPECIAL) + 256, _HEAD * KEY_VALUE_HEADS
    yield "token_embd.weight", (WIDTH, vocabulary)
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (WIDTH, vocabulary)
    for layer in range(LAYERS):
        of = f"blk.{layer}."
        yield of + "attn_norm.weight", (WIDTH,)
        yield of + "attn_q.weight", (WIDTH, WIDTH)
        yield of + "attn_k.weight", (WIDTH, keys)
        yield of + "attn_v.weight", (WIDTH, keys)
        yield of + "attn_output.weight", (WIDTH, WIDTH)
        yield of + "ffn_norm.weight", (WIDTH,)
        yield of + "ffn_gate.weight", (WIDTH, INNER)
        yield of + "ffn_up.weight", (WIDTH, INNER)
        yield of + "ffn_down.weight", (INNER, WIDTH)


def _table(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[bytes]:
    offset = 0
    for name, shape in shapes.items():
        yield _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _F32, offset)
        offset += _rounded(4 * prod(shape))


def _named(name: str, value: Value) -> bytes:
    if isinstance(value, str):
        return _text(name) + struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int):
        return _text(name) + struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return _text(name) + struct.pack("<If", _FLOAT32, value)
    kind = _STRING if isinstance(value[0], str) else _INT32
    content = b"".join(_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value)
    return _text(name) + struct.pack("<IIQ", _ARRAY, kind, len(value)) + content


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _weights(chance: random.Random, count: int, *, ones: bool) -> bytes:
    numbers = array("f", ((1.0 if ones else chance.gauss(0, _DEVIATION)) for _ in range(count)))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(content: bytes) -> bytes:
    return content.ljust(_rounded(len(content)), b"\0")


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
