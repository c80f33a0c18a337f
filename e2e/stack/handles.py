"""Handles as a client gets and presents them."""

from __future__ import annotations

import httpx2 as httpx
import openai

from e2e.stack.client import MODEL


def handle(gateway: str, key: str, text: str) -> str:
    """The handle of a prompt, as `client.chat` sends it.

    Args:
        gateway: `address:port` of the gateway.
        key: The bearer credential.
        text: The prompt.

    Raises:
        ValueError: The gateway gives none.
    """
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0, "stream": True}
    answer = httpx.post(
        f"http://{gateway}/cachescope/v1/handles",
        json={"path": "/v1/chat/completions", "body": body},
        headers={"authorization": f"Bearer {key}"},
        timeout=60,
    )
    if answer.status_code != 200:
        raise ValueError(f"the gateway answered {answer.status_code}: {answer.text}; see its audit log")
    return str(answer.json()["handle"])


def presenting(who: openai.OpenAI, found: str) -> openai.OpenAI:
    """A client that presents a handle with each request."""
    return who.with_options(default_headers={"x-cachescope-handle": found})
