"""Answers that mean harm: each has its typed error, is cut off early, and takes no more memory than a long honest one."""

import gzip
import itertools
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.adapters import body_limit
from bot.ports.errors import (
    ApiNotFound,
    BadRequest,
    ModelConnection,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    ProviderError,
    RateLimited,
    UnreadableAnswer,
)
from tests.bot.llm.apis import ANSWERS, APIS, FakeProvider, each_api, model_at
from tests.bot.llm.conftest import ask
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Flood, Reply, Stall, error
from tests.patience import WITHIN_S
from threads.wording import explain

MB = 1_000_000
FLOOD = 100 * MB


async def deaf(event) -> None: ...


async def fail_with(api, http, reply: Reply, **limits) -> tuple[ProviderError, FakeProvider]:
    """Return the failure of a call, and the server."""
    async with FakeProvider([reply]) as fake:
        model = model_at(fake.base_url, api, http, **limits)
        with anyio.fail_after(WITHIN_S), pytest.raises(ProviderError) as caught:
            await model.complete(ask(), deaf)
        with anyio.fail_after(WITHIN_S):
            while not fake.hung_up and reply.steps and isinstance(reply.steps[-1], Flood):
                await anyio.sleep(0.005)
    assert len(fake.requests) == 1
    assert explain(caught.value, "7f3a").endswith("(ref 7f3a)")
    return caught.value, fake


@pytest.fixture(scope="module", autouse=True)
async def warm(http):
    """Have the SDKs imported before anybody measures time or memory."""
    for api in APIS.values():
        await fail_with(api, http, error(500, {}))


@contextmanager
def at_most(megabytes: float) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * MB
    finally:
        tracemalloc.stop()


def flood(data: bytes, **head) -> Reply:
    """A reply of `FLOOD` bytes, *data* over and over."""
    return Reply((Flood(data, FLOOD // len(data)),), **{"headers": a.SSE, **head})


def text_event(api, words: str) -> bytes:
    if api is AnthropicModel:
        return a.event("content_block_delta", index=0, delta={"type": "text_delta", "text": words})
    if api is OpenAIResponsesModel:
        where = {"item_id": "m", "output_index": 0, "content_index": 0, "sequence_number": 1, "logprobs": []}
        return o.data(type="response.output_text.delta", delta=words, **where)
    return o.chunk({"content": words})


def opening(api) -> tuple[bytes, ...]:
    return a.answer(a.Text("x")).steps[:3] if api is AnthropicModel else ()


@each_api
async def test_an_endless_answer_is_ended_by_the_clock(http, api):
    reply = Reply((*opening(api), Flood(text_event(api, "x"))), headers=a.SSE)
    failure, _ = await fail_with(api, http, reply, total=1.5)
    assert type(failure) is ModelTimeout
    assert failure.usage.output > 100


@each_api
async def test_cancelling_hangs_up_at_once(http, api):
    shown = anyio.Event()

    async def listen(event) -> None:
        shown.set()

    reply = Reply((*opening(api), text_event(api, "x"), Stall(b": keep-alive\n\n")), headers=a.SSE)
    async with FakeProvider([reply]) as fake:
        model = model_at(fake.base_url, api, http)
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(model.complete, ask(), listen)
                await shown.wait()
                tasks.cancel_scope.cancel()
            while not fake.hung_up:
                await anyio.sleep(0.005)


@each_api
async def test_an_answer_of_a_hundred_megabytes_is_cut_off_early(http, api):
    reply = Reply((*opening(api), Flood(text_event(api, "x" * 60_000), FLOOD // 60_000)), headers=a.SSE)
    with at_most(60):
        failure, fake = await fail_with(api, http, reply)
    assert type(failure) is OutputInvalid
    assert not failure.retryable
    assert fake.sent < 20 * MB


@each_api
@pytest.mark.parametrize("end", [b"", b"\n"], ids=["a line", "lines of one event"])
async def test_an_event_that_never_ends_is_cut_off(http, api, end):
    with at_most(60):
        failure, fake = await fail_with(api, http, flood(b"data: " + b"x" * 60_000 + end))
    assert type(failure) is OutputInvalid
    assert "event" in str(failure)
    assert fake.sent < 25 * MB


@each_api
async def test_a_flood_of_what_is_no_content_is_cut_off(http, api, monkeypatch):
    assert body_limit.MAX_BODY == 64 * MB
    monkeypatch.setattr(body_limit, "MAX_BODY", 9 * MB)
    with at_most(40):
        failure, fake = await fail_with(api, http, flood(b": " + b"x" * 60_000 + b"\n\n"))
    assert type(failure) is OutputInvalid
    assert "9000000 bytes" in str(failure)
    assert fake.sent < 25 * MB


@each_api
@pytest.mark.parametrize(
    ("status", "expected"), [(400, BadRequest), (429, RateLimited), (500, ModelUnavailable)]
)
async def test_an_error_s_body_is_read_only_so_far(http, api, status, expected):
    with at_most(40):
        failure, fake = await fail_with(api, http, flood(b"no " * 20_000, status=status, headers=()))
    assert type(failure) is expected
    assert len(str(failure)) < 3000
    assert fake.sent < 20 * MB


@each_api
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_a_page_in_place_of_an_answer_is_read_only_so_far(http, api, kind):
    with at_most(40):
        failure, fake = await fail_with(api, http, flood(b"<p>" * 20_000, headers=(("content-type", kind),)))
    assert type(failure) is UnreadableAnswer
    assert fake.sent < 20 * MB


@each_api
async def test_a_document_without_end_is_read_only_so_far(http, api):
    with at_most(40):
        failure, fake = await fail_with(api, http, flood(b'[{"x":\n' * 8_000))
    assert type(failure) is UnreadableAnswer
    assert fake.sent < 20 * MB


BOMB = gzip.compress(b"\0" * (100 * MB), 9)


@each_api
async def test_a_compressed_answer_is_unpacked_only_so_far(http, api):
    head = (*a.SSE, ("content-encoding", "gzip"))
    with at_most(20):
        failure, fake = await fail_with(api, http, Reply((BOMB,), headers=head))
        assert type(failure) is OutputInvalid
        assert fake.requests[0].headers["accept-encoding"] == "identity"
        failure, _ = await fail_with(api, http, Reply((BOMB,), 429, (*head, ("retry-after", "3"))))
    assert type(failure) is RateLimited
    assert failure.retry_after == 3


@each_api
async def test_heads_without_end_are_cut_off(http, api):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    reply = Reply(silent=(head, Flood(b"x-more: " + b"y" * 1000 + b"\r\n", FLOOD // 1000)))
    with at_most(20):
        failure, fake = await fail_with(api, http, reply)
    assert type(failure) is ModelConnection
    assert fake.sent < 20 * MB


@each_api
async def test_promises_of_a_head_are_ended_by_the_clock(http, api):
    reply = Reply(silent=(Flood(b"HTTP/1.1 103 Early Hints\r\n\r\n"),))
    with at_most(20):
        failure, _ = await fail_with(api, http, reply, first_content=1.0)
    assert type(failure) is ModelTimeout
    assert failure.usage is None


@each_api
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(http, api, status):
    async with FakeProvider([]) as elsewhere:
        head = (("location", f"{elsewhere.base_url}/v1/messages"),)
        failure, _ = await fail_with(api, http, Reply((), status, head))
    assert type(failure) is ApiNotFound
    assert elsewhere.requests == []


STEPS_AFTER_THE_CALL = {AnthropicModel: 1, OpenAIResponsesModel: 1, OpenAIChatModel: 3}


@each_api
async def test_wherever_an_answer_with_a_call_is_cut_off_there_is_nothing_to_execute(http, api):
    whole = ANSWERS[api](a.Text("So."), a.Tool("t1", "shell", {"command": "rm -r /"}))
    for count in range(len(whole.steps) - STEPS_AFTER_THE_CALL[api] + 1):
        failure, _ = await fail_with(api, http, whole.keep(count))
        assert type(failure) is ModelUnavailable, count


async def test_a_server_that_takes_no_connection_is_given_up_soon(http):
    metered = []
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for crowd in (first, second):
            crowd.setblocking(False)
            crowd.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        model = model_at(url, AnthropicModel, http, connect=0.2)
        with anyio.fail_after(WITHIN_S), pytest.raises(ModelTimeout) as caught:
            await model.complete(replace(ask(), meter=metered.append), deaf)
    assert "ConnectionTimeout" in str(caught.value)
    assert caught.value.usage is None
    assert metered == [], "what was never sent costs nothing"


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self):
        for piece in self.pieces:
            yield piece


def guarded(pieces: list[bytes], status: int = 200) -> bytes:
    async def read() -> bytes:
        response = httpx2.Response(status, stream=Pieces(pieces))
        await body_limit.bound(response)
        return await response.aread()

    with pytest.raises(StopIteration) as done:
        read().send(None)  # Nothing here waits for anything, so no loop is needed.
    return done.value.value


def split(body: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(places)]


@given(
    st.lists(st.integers(1, 90), max_size=9),
    st.sampled_from(body_limit.BORDERS),
    st.lists(st.integers(0, 900)) | st.just(list(range(900))),
)
def test_events_of_honest_size_pass_however_they_are_cut(sizes, border, cuts):
    body = b"".join(b"x" * size + border for size in sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_limit, "MAX_EVENT", 100)
        assert guarded(split(body, cuts)) == body


@given(st.lists(st.integers(0, 900)) | st.just(list(range(900))), st.sampled_from([b"", b"x\n\n"]))
def test_an_event_too_large_is_caught_however_it_is_cut(cuts, before):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OutputInvalid):
        patch.setattr(body_limit, "MAX_EVENT", 100)
        guarded(split(before + b"data: x\n" * 40, cuts))


@given(st.lists(st.integers(0, 900)))
def test_an_error_s_body_is_cut_to_the_byte(cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_limit, "MAX_PAGE", 100)
        assert guarded(split(bytes(range(200)), cuts), 400) == bytes(range(100))
