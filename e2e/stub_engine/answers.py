"""OpenAI's answers, whole and streamed. Each one carries a fingerprint (`e2e.stub_engine.fingerprint`)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from e2e.stub_engine.asking import Asked
from e2e.stub_engine.core import Request, Token
from e2e.stub_engine.fingerprint import Fingerprint

Json = dict[str, Any]


def word(index: int) -> str:
    """The word that the stub answers at a place."""
    return f"word-{index} "


Answered = tuple[Request, Token]


def whole(asked: Asked, answered: Sequence[Answered]) -> bytes:
    """An answer that is not streamed, once the last token of each of its texts is made.

    Its usage is about the prompt of the last of them, as in vLLM.
    """
    request, token = answered[-1]
    answer = _envelope(asked, request, token.fingerprint, "chat.completion")
    answer["choices"] = [_text(asked, index, each.made) for index, (each, _) in enumerate(answered)]
    return json.dumps({**answer, "usage": _usage(asked, request, sum(each.made for each, _ in answered))}).encode()


def _text(asked: Asked, index: int, made: int) -> Json:
    text = "".join(map(word, range(made)))
    content: Json = {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
    return {"index": index, **content, "logprobs": None, "finish_reason": "length"}


async def streamed(asked: Asked, request: Request, tokens: AsyncIterator[Token]) -> AsyncIterator[bytes]:
    """Server-sent events: one for each token, then the usage if it was asked for, then the end.

    The iterator below is left to the garbage collector when this one is dropped, as vLLM does it: the abort is then sent only some
    turns of the event loop after the application has returned.
    """
    token: Token | None = None
    async for token in tokens:
        yield _event({**_envelope(asked, request, token.fingerprint, "chat.completion.chunk"), "choices": [_choice(asked, token)]})
    if token is not None and asked.include_usage:
        usage = {"choices": [], "usage": _usage(asked, request, token.index + 1)}
        yield _event({**_envelope(asked, request, token.fingerprint, "chat.completion.chunk"), **usage})
    yield b"data: [DONE]\n\n"


def error(message: str, status: int) -> bytes:
    """An error in vLLM's shape, whose code is a number."""
    kind = "NotFoundError" if status == 404 else "BadRequestError"
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


def _choice(asked: Asked, token: Token) -> Json:
    text = word(token.index)
    first = {"role": "assistant"} if token.index == 0 else {}
    content: Json = {"delta": {**first, "content": text}} if asked.chat else {"text": text}
    return {"index": 0, **content, "logprobs": None, "finish_reason": "length" if token.last else None}


def _envelope(asked: Asked, request: Request, fingerprint: Fingerprint, chat_object: str) -> Json:
    return {
        "id": request.external_req_id,
        "object": chat_object if asked.chat else "text_completion",
        "created": int(time.time()),
        "model": asked.model,
        "system_fingerprint": str(fingerprint),
    }


def _usage(asked: Asked, request: Request, made: int) -> Json:
    return {
        "prompt_tokens": len(request.prompt),
        "completion_tokens": made,
        "total_tokens": len(request.prompt) + made,
        "prompt_tokens_details": {"cached_tokens": request.cached_tokens if asked.tells_cached else 0},
    }


def _event(answer: Json) -> bytes:
    return b"data: " + json.dumps(answer).encode() + b"\n\n"
