"""Every form of a body that servers and the proxies before them send: read, or named at the first try."""

import gzip
import json
import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.openai.chat import OpenAIChatModel
from bot.llm.adapters import stream
from bot.llm.adapters.sse import END, EventDecoder
from bot.ports.errors import (
    BadRequest,
    ContextOverflow,
    ModelUnavailable,
    PaymentRequired,
    ProviderError,
    RateLimited,
    UnknownFailure,
    UnreadableAnswer,
)
from bot.ports.model import Usage
from tests.bot.llm.apis import HELLO, FakeProvider, each_api, model_at
from tests.bot.llm.conftest import ask
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Cut, Garbage, Reply, Stall
from threads.wording import explain

SSE, JSON, TEXT = "text/event-stream", "application/json", "text/plain"


def body_of(reply: Reply) -> bytes:
    return b"".join(reply.steps)


def as_body(body: bytes, kind: str = SSE, **headers: str) -> Reply:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply((body,), headers=(("content-type", kind), *named))


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


def in_members(body: bytes) -> bytes:
    """Each piece is compressed by itself."""
    return b"".join(gzip.compress(body[at : at + 50]) for at in range(0, len(body), 50))


WRAPPED = {
    "labelled JSON": lambda body: as_body(body, JSON),
    "labelled as text": lambda body: as_body(body, TEXT),
    "labelled as a page": lambda body: as_body(body, "text/html"),
    "without a label": lambda body: Reply((body,)),
    "packed": lambda body: as_body(gzip.compress(body), content_encoding="gzip"),
    "packed, without a label": lambda body: as_body(gzip.compress(body)),
    "packed, labelled as another": lambda body: as_body(gzip.compress(body), content_encoding="br"),
    "packed piece by piece": lambda body: as_body(in_members(body), content_encoding="gzip"),
    "deflated": lambda body: as_body(deflated(body), content_encoding="deflate"),
    "labelled as packed": lambda body: as_body(body, content_encoding="gzip"),
    "labelled as packed in an unknown way": lambda body: as_body(body, content_encoding="zstd"),
    "with a byte-order mark": lambda body: as_body(b"\xef\xbb\xbf" + body),
    "with empty data": lambda body: as_body(b"data:\n\ndata: \n\n" + body.replace(b"\n\n", b"\n\ndata:\n\n")),
    "with null": lambda body: as_body(b"data: null\n\n" + body),
    "with comments": lambda body: as_body(b": OPENROUTER PROCESSING\n\n" + body),
    "with other fields": lambda body: as_body(b"retry: 100\nid: 1\n" + body),
    "with CRLF": lambda body: as_body(body.replace(b"\n", b"\r\n")),
    "with CR": lambda body: as_body(body.replace(b"\n", b"\r")),
    "without blank lines": lambda body: as_body(body.replace(b"\n\n", b"\n")),
    "without spaces": lambda body: as_body(body.replace(b"data: ", b"data:")),
    "without its last line break": lambda body: as_body(body.rstrip()),
    "without data:": lambda body: as_body(body.replace(b"data: ", b"")),
    "lines of JSON": lambda body: as_body(b"\n".join(lines_of(body)), "application/x-ndjson"),
}


def lines_of(body: bytes) -> list[bytes]:
    data = (line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: "))
    return [line for line in data if line != b"[DONE]"]


@each_api
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
async def test_a_stream_is_read_in_any_wrapping(complete, listener, api, wrap):
    done, _ = await complete(api, reply=wrap(body_of(HELLO[api])))
    assert listener.text == done.message.text == "Hello, world"
    assert done.usage.output == 7


@each_api
@pytest.mark.parametrize("then", [Stall(), Stall(b": ping\n\n"), Cut(), Cut("rst"), Garbage(b"x")])
async def test_an_answer_whose_end_was_told_is_shown_whatever_the_connection_does(
    complete, listener, api, then, monkeypatch
):
    monkeypatch.setattr(stream, "CLOSING_S", 0.05)
    steps = [step for step in HELLO[api].steps if step != o.DONE]
    done, _ = await complete(api, reply=Reply((*steps, then), headers=o.SSE))
    assert listener.text == done.message.text == "Hello, world"


async def test_a_count_that_never_comes_after_the_finish_reason_is_not_waited_for(complete, monkeypatch):
    monkeypatch.setattr(stream, "AFTERWORD_S", 0.05)
    reply = o.stream(o.chunk({"content": "Hello"}), o.chunk(finish="stop"), Stall())
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert (done.message.text, done.usage) == ("Hello", Usage())


async def test_the_connection_is_used_again_after_an_answer(http, listener):
    async with FakeProvider([HELLO[OpenAIChatModel]] * 3) as fake:
        model = model_at(fake.base_url, OpenAIChatModel, http)
        for _ in range(3):
            await model.complete(ask(), listener)
    assert fake.connections == 1


CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
WHOLE = {"id": "c", "object": "chat.completion", "choices": [CHOICE]}
DOCUMENTS = {
    "on one line": as_body(json.dumps(WHOLE).encode(), JSON),
    "on many lines": as_body(json.dumps(WHOLE, indent=2).encode(), JSON),
    "labelled as a stream": as_body(json.dumps(WHOLE, indent=2).encode()),
    "as the one event of a stream": o.stream(o.data(**WHOLE)),
    "without a finish reason": as_body(
        json.dumps({"choices": [{**CHOICE, "finish_reason": None}]}).encode(), JSON
    ),
    "over many data lines": as_body(
        b"".join(b"data: %b\n" % line for line in json.dumps(WHOLE, indent=1).encode().splitlines()) + b"\n"
    ),
}


@pytest.mark.parametrize("reply", DOCUMENTS.values(), ids=DOCUMENTS)
async def test_a_whole_answer_is_read_in_place_of_a_stream(complete, listener, reply):
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert listener.text == done.message.text == "Hello"


@each_api
async def test_a_server_that_does_not_stream_is_understood_in_every_api(complete, api):
    call = {"type": "tool_use", "id": "t1", "name": "go", "input": {"x": 1}}
    item = {"type": "function_call", "call_id": "t1", "name": "go", "arguments": '{"x": 1}'}
    chat = {"id": "t1", "function": {"name": "go", "arguments": '{"x": 1}'}}
    body = {
        "messages": {"type": "message", "content": [call], "stop_reason": "tool_use", "usage": a.USAGE},
        "responses": {"object": "response", "status": "completed", "output": [item]},
        "completions": {"choices": [{"message": {"tool_calls": [chat]}, "finish_reason": "tool_calls"}]},
    }[api.path.rpartition("/")[2]]
    done, _ = await complete(api, reply=as_body(json.dumps(body).encode(), JSON))
    assert done.stop == "tool_calls"
    assert [(made.name, made.arguments) for made in done.message.calls] == [("go", {"x": 1})]


VLLM = {"object": "error", "message": "no such thing", "type": "BadRequestError", "param": None, "code": 400}
TOO_LONG = {"message": "This model's maximum context length is 8 tokens.", "code": 400}
FAULTS = {
    "vLLM": (VLLM, BadRequest),
    "vLLM, too long": (VLLM | TOO_LONG, ContextOverflow),
    "in words": ({"error": "the model has crashed"}, UnknownFailure),
    "in an object": ({"error": {"message": "slow down", "code": "429"}}, RateLimited),
    "a flag": ({"error": True, "message": "slow down", "code": 429}, RateLimited),
    "FastAPI": ({"detail": "credit balance is too low", "status_code": 403}, PaymentRequired),
    "problem details": ({"title": "Bad", "status": 422, "detail": "no"}, BadRequest),
    "words and a number": ({"code": 429, "msg": "slow down"}, RateLimited),
    "MiniMax": ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, PaymentRequired),
    "a list": ([{"error": {"code": 400, "message": "no"}}], BadRequest),
}
FORMS = {
    "a document": lambda fault: as_body(json.dumps(fault).encode(), JSON),
    "a document on many lines": lambda fault: as_body(json.dumps(fault, indent=2).encode(), JSON),
    "a document, labelled as a stream": lambda fault: as_body(json.dumps(fault).encode()),
    "an event": lambda fault: as_body(b"data: %b\n\n" % json.dumps(fault).encode()),
    "an event with a name": lambda fault: as_body(b"event: error\ndata: %b\n\n" % json.dumps(fault).encode()),
    "an event, and [DONE]": lambda fault: as_body(b"data: %b\n\n%b" % (json.dumps(fault).encode(), o.DONE)),
    "an event midway": lambda fault: HELLO[OpenAIChatModel].keep(
        3, b"data: %b\n\n" % json.dumps(fault).encode()
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("fault", "expected"), FAULTS.values(), ids=FAULTS)
async def test_an_error_with_status_200_has_its_type_in_every_form(complete, fault, expected, form):
    with pytest.raises(ProviderError) as caught:
        await complete(OpenAIChatModel, reply=form(fault))
    assert type(caught.value) is expected, caught.value


UNREAD = {
    "a page": (as_body(b"\n<!doctype html><p>Sign in</p>"), UnreadableAnswer),
    "words": (as_body(b"upstream connect error", TEXT), UnreadableAnswer),
    "packed in an unknown way": (as_body(b"\x1b\x2f\x00\xf8\x9d", content_encoding="br"), UnreadableAnswer),
    "zstd without a label": (as_body(b"\x28\xb5\x2f\xfd\x00\x58\x31\x00"), UnreadableAnswer),
    "broken gzip": (as_body(b"\x1f\x8b\x08\xff broken, very much so"), UnreadableAnswer),
    "a list of models": (as_body(b'{"object": "list", "data": []}', JSON), UnreadableAnswer),
    "half a document": (as_body(b'{"choices": [', JSON), UnreadableAnswer),
    "nothing": (as_body(b""), ModelUnavailable),
    "only comments": (as_body(b": ping\n\n"), ModelUnavailable),
}


@each_api
@pytest.mark.parametrize(("reply", "expected"), UNREAD.values(), ids=UNREAD)
async def test_what_cannot_be_read_is_named(complete, api, reply, expected):
    with pytest.raises(ProviderError) as caught:
        await complete(api, reply=reply)
    assert type(caught.value) is expected, caught.value
    page = b"<p>" in body_of(reply)
    assert caught.value.retryable is (page or expected is ModelUnavailable)
    assert ("cannot read" in explain(caught.value, "7f3a")) is (expected is UnreadableAnswer)


@each_api
async def test_a_status_is_told_whatever_its_body_is(complete, api):
    for body in (b"\x1b\x2f\x00\xf8\x9d", b"\x1f\x8b\x08\xff broken, very much so"):
        with pytest.raises(RateLimited):
            await complete(api, reply=replace(as_body(body, content_encoding="br"), status=429))
    packed = gzip.compress(json.dumps({"error": {"type": "billing_error", "message": "no"}}).encode())
    with pytest.raises(PaymentRequired):
        await complete(api, reply=replace(as_body(packed, JSON, content_encoding="gzip"), status=400))


BODIES = {
    **{name: b"".join(wrap(body_of(HELLO[OpenAIChatModel])).steps) for name, wrap in WRAPPED.items()},
    **{name: body_of(reply) for name, reply in DOCUMENTS.items()},
}


def decode(pieces: list[bytes]) -> list:
    decoder = EventDecoder({})
    return [*(event for piece in pieces for event in decoder.feed(piece)), *decoder.finish()]


@given(
    st.sampled_from([body for body in BODIES.values() if not body.startswith((b"\x1f", b"\x78", b"\xef"))]),
    st.data(),
)
def test_the_size_of_the_pieces_changes_nothing(body, data):
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8) | st.just(list(range(len(body)))))
    pieces = [body[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(body)])]
    assert decode(pieces) == decode([body])


@given(st.lists(st.integers(1, 9)), st.binary(max_size=30))
def test_what_follows_the_last_event_is_not_read(numbers, rest):
    events = [{"choices": [number]} for number in numbers]
    body = b"".join(o.data(**event) for event in events) + o.DONE + rest
    assert decode([body]) == [*events, END]


ODD = [
    '"\\ud83d"',
    '"\\ude00 \\ud83d\\ude00"',
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 4000,
    "[" * 500 + "]" * 500,
    '{"a": 1, "a": 2}',
]


@pytest.mark.parametrize("value", ODD)
def test_what_is_odd_in_an_event_is_read_as_the_standard_library_reads_it(value):
    line = f'{{"type": "x", "odd": {value}}}'
    [event] = EventDecoder({}).feed(f"data: {line}\n\n".encode())
    assert repr(event) == repr(json.loads(line))
