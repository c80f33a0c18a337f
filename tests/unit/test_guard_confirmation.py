"""The engine confirms through the queue of the aborts, or by its metrics; what it cannot say is no confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from cachescope.core.errors import ClusterError
from cachescope.guard.confirmation import EngineConfirmation
from cachescope.guard.wire import App, Receive, Scope, Send
from tests.unit.guard_fakes import Engine

ID = "0" * 31 + "7"
OTHER = "0" * 31 + "8"


class Client:
    """vLLM's `AsyncLLM`, as far as it is asked: a list of requests, and a queue that is served in order.

    Args:
        requests: The engine's names of the requests that it lists, by its internal ones.
    """

    def __init__(self, **requests: str) -> None:
        states = {key: SimpleNamespace(external_req_id=name) for key, name in requests.items()}
        self.output_processor = SimpleNamespace(request_states=states)
        self.queue: list[str] = []
        self.late: dict[str, str] = {}
        self.broken = False

    async def abort(self, names: list[str]) -> None:
        states = self.output_processor.request_states
        for key in [key for key, state in states.items() if state.external_req_id in names]:
            del states[key]
            self.queue.append(f"abort {key}")

    async def is_sleeping(self) -> bool:
        if self.broken:
            raise RuntimeError("the engine is dead")
        self.queue.append("is_sleeping")
        await asyncio.sleep(0)
        for key, name in self.late.items():
            self.output_processor.request_states[key] = SimpleNamespace(external_req_id=name)
        self.late = {}
        return False


def _asked(client: object, open_requests: Callable[[], int] = lambda: 1) -> EngineConfirmation:
    confirmation = EngineConfirmation(open_requests, _no_pause)
    application = SimpleNamespace(state=SimpleNamespace(engine_client=client))
    confirmation.saw(Engine(), {"type": "http", "app": application})
    return confirmation


async def _no_pause(_: float) -> None:
    await asyncio.sleep(0)


async def test_an_engine_that_knows_nothing_of_them_is_asked_once_through_its_queue() -> None:
    client = Client(other=f"cmpl-{OTHER}-0")
    await _asked(client).confirmed([ID])
    assert client.queue == ["is_sleeping"]


async def test_what_the_engines_client_still_lists_is_aborted_before_the_question() -> None:
    client = Client(first=f"cmpl-given-{ID}-0", second=f"cmpl-given-{ID}-1", other=f"cmpl-{OTHER}-0")
    await _asked(client).confirmed([ID])
    assert client.queue == ["abort first", "abort second", "is_sleeping"]
    assert list(client.output_processor.request_states) == ["other"]


async def test_what_appears_while_it_is_asked_is_aborted_and_asked_about_again() -> None:
    client = Client()
    client.late = {"late": f"chatcmpl-{ID}"}
    await _asked(client).confirmed([ID])
    assert client.queue == ["is_sleeping", "abort late", "is_sleeping"]


async def test_while_nothing_is_open_whatever_is_listed_is_aborted() -> None:
    client = Client(own="resp_that_vllm_named")
    await _asked(client, lambda: 1).confirmed([ID])
    assert client.queue == ["is_sleeping"]
    await _asked(client, lambda: 0).confirmed([ID])
    assert client.queue == ["is_sleeping", "abort own", "is_sleeping"]


async def test_a_client_without_a_list_is_asked_through_its_queue_alone() -> None:
    client = Client()
    del client.output_processor
    await _asked(client).confirmed([ID])
    assert client.queue == ["is_sleeping"]


async def test_an_engine_that_fails_confirms_nothing() -> None:
    client = Client()
    client.broken = True
    with pytest.raises(ClusterError, match=r"did not confirm \(RuntimeError\)"):
        await _asked(client).confirmed([ID])


async def test_an_engine_that_never_answers_never_confirms() -> None:
    client = Client()
    client.is_sleeping = asyncio.Event().wait  # type: ignore[method-assign]
    confirming = asyncio.ensure_future(_asked(client).confirmed([ID]))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not confirming.done()
    confirming.cancel()


def _metrics(*texts: str) -> App:
    """An engine that shows one text after the other, and then the last for ever."""
    left = list(texts)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the signature of ASGI
        text = left.pop(0) if len(left) > 1 else left[0]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    return app


def _load(running: int, waiting: int) -> str:
    return f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} {waiting}\n'


async def test_without_a_client_the_metrics_must_say_that_no_more_runs_than_is_open() -> None:
    confirmation = EngineConfirmation(lambda: 1, _no_pause)
    confirmation.saw(_metrics(_load(1, 1), _load(2, 0), _load(1, 0)), {"type": "http"})
    await asyncio.wait_for(confirmation.confirmed([ID]), 5)
    confirmation.saw(_metrics(_load(2, 0)), {"type": "http"})
    confirming = asyncio.ensure_future(confirmation.confirmed([ID]))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not confirming.done()
    confirming.cancel()


@pytest.mark.parametrize(
    "text", ["", "vllm:num_requests_running 0\n", "vllm:num_requests_running nan\nvllm:num_requests_waiting 0\n"]
)
async def test_metrics_that_do_not_say_it_confirm_nothing(text: str) -> None:
    confirmation = EngineConfirmation(lambda: 5)
    confirmation.saw(_metrics(text), {"type": "http"})
    with pytest.raises(ClusterError, match="/metrics"):
        await confirmation.confirmed([ID])


async def test_before_any_event_nothing_is_known() -> None:
    with pytest.raises(ClusterError, match="/metrics"):
        await EngineConfirmation(lambda: 5).confirmed([ID])


async def test_the_application_is_remembered_by_events_that_do_not_name_it() -> None:
    client = Client()
    confirmation = _asked(client)
    confirmation.saw(Engine(), {"type": "http"})
    await confirmation.confirmed([ID])
    assert client.queue == ["is_sleeping"]
