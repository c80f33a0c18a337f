"""Writes a small Llama with random weights as a GGUF file, a token a byte: ``tiny_gguf.py FILE SEED``.

The same seed gives the same weights. It is the GGUF counterpart of `images/vllm-cpu/tiny_model.py`.
"""

import sys

# Only the engine's own environment has these.
import gguf  # type: ignore[import-not-found]
import numpy  # type: ignore[import-not-found]

LAYERS, HEADS, KEY_HEADS, HIDDEN, INNER, CONTEXT = 4, 4, 2, 256, 512, 8192
SPECIAL = ("<s>", "</s>", "<unk>")
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def alphabet() -> list[str]:
    """One printable character for each byte, as GPT-2 names them, in the order of the bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def describe(writer: gguf.GGUFWriter) -> list[str]:
    """Writes what the model is, and its tokenizer; returns the vocabulary."""
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    vocabulary = [*SPECIAL, *alphabet()]
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN)
    writer.add_token_types([*kinds, *[gguf.TokenType.NORMAL] * 256])
    # The loader wants at least one merge. Of two bytes that no text holds, it never applies.
    merged = f"{alphabet()[0xFE]} {alphabet()[0xFF]}"
    writer.add_token_merges([merged])
    writer.add_bos_token_id(SPECIAL.index("<s>"))
    writer.add_eos_token_id(SPECIAL.index("</s>"))
    writer.add_chat_template(CHAT_TEMPLATE)
    return vocabulary


def weigh(writer: gguf.GGUFWriter, tokens: int, seed: int) -> None:
    """Writes the weights."""
    random = numpy.random.default_rng(seed)
    keys = HIDDEN // HEADS * KEY_HEADS
    shapes = {
        **{"attn_q": (HIDDEN, HIDDEN), "attn_k": (keys, HIDDEN), "attn_v": (keys, HIDDEN), "attn_output": (HIDDEN, HIDDEN)},
        **{"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)},
    }

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", (random.standard_normal(shape) * 0.02).astype(numpy.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", numpy.ones(HIDDEN, numpy.float32))

    add("token_embd", tokens, HIDDEN)
    add("output", tokens, HIDDEN)
    add_norm("output_norm")
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            add_norm(f"blk.{layer}.{norm}")
        for name, shape in shapes.items():
            add(f"blk.{layer}.{name}", *shape)


def main() -> None:
    """Writes the file."""
    path, seed = sys.argv[1], int(sys.argv[2])
    writer = gguf.GGUFWriter(path, "llama")
    weigh(writer, len(describe(writer)), seed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
