"""Write `vllm_fields.json`: which fields the request models of vLLM declare, by route.

`python -m tests.unit.make_vllm_fields FOLDER`, where FOLDER holds an unpacked wheel of vLLM (0.32.0 as the file stands). It is
read, not imported: that would need the whole engine. Run it with each release that the catalogue is to know, and compare.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).with_name("vllm_fields.json")
SOURCES = (
    "pooling/*/protocol.py",
    "serve/tokenize/protocol.py",
    "anthropic/protocol.py",
    "openai/*/protocol.py",
)
MODELS = {
    "/v1/chat/completions": ["ChatCompletionRequest"],
    "/v1/chat/completions/batch": ["BatchChatCompletionRequest"],
    "/v1/completions": ["CompletionRequest"],
    "/v1/responses": ["ResponsesRequest"],
    "/v1/messages": ["AnthropicMessagesRequest"],
    "/v1/messages/count_tokens": ["AnthropicCountTokensRequest"],
    "/v1/embeddings": ["EmbeddingCompletionRequest", "EmbeddingChatRequest"],
    "/pooling": ["PoolingCompletionRequest", "PoolingChatRequest", "IOProcessorRequest"],
    "/classify": ["ClassificationCompletionRequest", "ClassificationChatRequest"],
    "/score": ["ScoreDataRequest", "ScoreQueriesDocumentsRequest", "ScoreQueriesItemsRequest", "ScoreTextRequest"],
    "/rerank": ["RerankRequest"],
    "/tokenize": ["TokenizeCompletionRequest", "TokenizeChatRequest"],
    "/detokenize": ["DetokenizeRequest"],
}


def main(folder: str) -> None:
    classes = {item.name: item for item in _classes(Path(folder) / "vllm" / "entrypoints")}
    found = {route: sorted({name for model in models for name in _fields(model, classes)}) for route, models in MODELS.items()}
    TARGET.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _classes(folder: Path) -> Iterator[ast.ClassDef]:
    for pattern in SOURCES:
        for path in sorted(folder.glob(pattern)):
            yield from (item for item in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(item, ast.ClassDef))


def _fields(model: str, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """The fields that a model declares or inherits; bases outside of these files have none."""
    if model not in classes:
        return
    for base in classes[model].bases:
        yield from _fields(ast.unparse(base), classes)
    for item in classes[model].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and "ClassVar" not in ast.unparse(item.annotation):
            yield from () if item.target.id.startswith("_") else (item.target.id,)


if __name__ == "__main__":
    main(sys.argv[1])
