"""Writes a small Llama with random weights and a byte-level tokenizer: ``tiny_model.py FOLDER SEED``.

The same seed gives the same weights. The tokenizer has no merges, so a prompt has a token a byte and its length is known.
"""

import sys
from pathlib import Path

# Only the image has these.
import torch  # type: ignore[import-not-found]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-not-found]
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # type: ignore[import-not-found]

BEGIN, END, UNKNOWN = SPECIAL = ("<s>", "</s>", "<unk>")
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def tokenizer() -> PreTrainedTokenizerFast:
    """Builds the tokenizer: special tokens, then the 256 bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
    bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=bytewise, bos_token=BEGIN, eos_token=END, unk_token=UNKNOWN)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def model(vocabulary: int, seed: int) -> LlamaForCausalLM:
    """Builds the model; its weights depend on the seed alone."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=SPECIAL.index(BEGIN),
        eos_token_id=SPECIAL.index(END),
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def main() -> None:
    """Writes tokenizer and model into the folder, readable by everybody."""
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    fast = tokenizer()
    fast.save_pretrained(folder)
    model(len(fast), seed).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    main()
