"""The OpenAI client works by changing `base_url` and `api_key` only."""

from __future__ import annotations

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from e2e.stack import client
from e2e.stack.client import MODEL

Clients = dict[str, openai.OpenAI]
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


def test_chat(who: Clients) -> None:
    answer = who["blue-carol"].chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
    assert answer.choices[0].finish_reason in {"length", "stop"}


def test_chat_streamed(who: Clients) -> None:
    chunks = list(who["blue-carol"].chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4, stream=True))
    assert chunks[-1].choices[0].finish_reason in {"length", "stop"}


def test_completions(who: Clients) -> None:
    answer = who["blue-carol"].completions.create(model=MODEL, prompt="hello", max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def test_completions_streamed(who: Clients) -> None:
    chunks = list(who["blue-carol"].completions.create(model=MODEL, prompt="hello", max_tokens=4, stream=True))
    assert chunks[-1].choices[0].finish_reason in {"length", "stop"}


def test_responses(who: Clients) -> None:
    answer = who["blue-carol"].responses.create(model=MODEL, input="hello", max_output_tokens=4)
    assert answer.status in {"completed", "incomplete"}


def test_responses_streamed(who: Clients) -> None:
    events = [
        event.type for event in who["blue-carol"].responses.create(model=MODEL, input="hello", max_output_tokens=4, stream=True)
    ]
    assert events[-1] in {"response.completed", "response.incomplete"}


def test_models(who: Clients) -> None:
    assert [model.id for model in who["blue-carol"].models.list()] == [MODEL]


def test_an_unknown_key_is_an_authentication_error(gateway: str) -> None:
    with pytest.raises(openai.AuthenticationError):
        client.chat(client.client(gateway, "cs-aaaaaaaaaaaaaaaa.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "hello")


def test_an_unknown_model_is_not_found(who: Clients) -> None:
    with pytest.raises(openai.NotFoundError):
        who["blue-carol"].completions.create(model="unknown", prompt="hello")


def test_an_unknown_route_is_not_found(who: Clients) -> None:
    with pytest.raises(openai.NotFoundError):
        who["blue-carol"].embeddings.create(model=MODEL, input="hello")


def test_an_unknown_parameter_is_a_bad_request_that_names_it(who: Clients) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat(who["blue-carol"], "hello", prompt_embeds="AAAA")
    assert caught.value.param == "prompt_embeds"


def test_a_prompt_that_is_too_long_is_the_engines_bad_request(who: Clients) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat(who["blue-carol"], client.prompt(20_000))
