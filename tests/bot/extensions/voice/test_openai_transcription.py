"""Transcriptions over the real SDK: what is sent, what is read, and every way in which it fails."""

import anyio
import pytest

from bot.config.settings import StreamTimeouts
from bot.extensions.voice.openai_transcription import OpenAITranscription, wire_name
from bot.extensions.voice.recording import AudioUsage, TranscriptionRequest
from bot.ports.errors import (
    BadRequest,
    ModelConnection,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    PaymentRequired,
    RateLimited,
    Unauthorized,
)
from bot.ports.model import Request
from tests.bot.llm.apis import NO_COUNTS
from tests.fakes.http import Cut, Garbage, Reply, Stall, Wait
from tests.fakes.openai import FakeOpenAI, by_seconds, by_tokens, fault, transcript
from tests.patience import WITHIN_S
from threads.background import background_tasks
from threads.model import File

OGG = b"OggS\0\xff binary \r\n--"
SOUND = File("holiday in Rome.ogg", "", "audio/ogg")
CANARY = "canary-5417"


async def read():
    return OGG


async def transcribe(http, listener, *replies, read=read, base_url="", meter=lambda _: None, **limits):
    """Return the completion, and the requests that the server saw."""
    async with FakeOpenAI(replies) as fake:
        model = OpenAITranscription(
            "p",
            "whisper",
            api_key=lambda: "sk-fake",
            base_url=base_url or fake.base_url,
            http=http,
            timeouts=StreamTimeouts(**limits),
        )
        request = TranscriptionRequest("", (), file=SOUND, read=read, meter=meter)
        completion = await model.complete(request, listener)
    return completion, fake.requests


async def test_a_recording_is_sent_whole_without_its_own_name_and_its_text_comes_back(http, listener):
    completion, [seen] = await transcribe(http, listener, transcript(" hello "))
    assert completion.message.text == " hello "
    assert completion.message.model == "p/whisper"
    assert seen.headers["authorization"] == "Bearer sk-fake"
    assert (seen.json["model"], seen.json["response_format"]) == ("whisper", "json")
    file = seen.json["file"]
    assert (file.name, file.kind, file.content) == ("recording.ogg", "audio/ogg", OGG)
    assert listener.heard == []


@pytest.mark.parametrize(
    ("name", "kind", "sent"),
    [
        ("audio_message.m4a", "audio/mp4", ".m4a"),
        ("a.OGA", "", ".ogg"),
        ("a.opus", "audio/ogg", ".ogg"),
        ("voice", "audio/webm;codecs=opus", ".webm"),
        ("voice", "audio/mpeg", ".mp3"),
        ("voice", "", ""),
    ],
)
def test_the_ending_of_the_name_tells_the_format(name, kind, sent):
    assert wire_name(File(name, media_type=kind)) == f"recording{sent}"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, AudioUsage()),
        (by_seconds(12.5), AudioUsage(seconds=12.5)),
        (by_tokens(120, 30), AudioUsage(input=120, output=30, audio_tokens=120)),
        *(({"seconds": odd, "input_tokens": odd}, None) for odd in NO_COUNTS),
        ([], AudioUsage()),
    ],
)
async def test_seconds_and_tokens_are_counted_and_nonsense_is_not(http, listener, usage, counted):
    completion, _ = await transcribe(http, listener, transcript("hi", usage))
    if counted is None:
        assert completion.usage.input == 0
        assert 0 <= completion.usage.seconds <= 7.0
    else:
        assert completion.usage == counted


@pytest.mark.parametrize(
    ("reply", "expected"),
    {
        "key": (fault(401, "invalid_api_key"), Unauthorized),
        "quota": (fault(429, "insufficient_quota"), PaymentRequired),
        "rate": (fault(429, "rate_limit_exceeded", retry_after="7"), RateLimited),
        "model": (fault(404, "model_not_found"), ModelNotFound),
        "format": (fault(400, "invalid_value", "Invalid file format."), BadRequest),
        "too long": (fault(400, None, "audio duration 1600 s is longer than 1500 s"), BadRequest),
        "too many bytes": (fault(413, None, "Maximum content size limit exceeded"), None),
        "server": (fault(500, "server_error"), ModelUnavailable),
        "gateway": (fault(502, None, f"<h1>{CANARY}</h1>"), ModelUnavailable),
    }.values(),
)
async def test_an_error_of_the_provider_is_typed_costs_nothing_and_says_nothing_to_people(
    http, listener, reply, expected
):
    metered = []
    with pytest.raises(expected or Exception) as raised:
        await transcribe(http, listener, reply, meter=metered.append)
    assert metered == []
    assert CANARY not in raised.value.friendly
    assert raised.value.fields["model"] == "whisper"
    if expected is RateLimited:
        assert raised.value.retry_after == 7


@pytest.mark.parametrize(
    ("reply", "expected"),
    {
        "cut before": (Reply(silent=(Cut("rst"),)), ModelConnection),
        "cut within": (transcript("hello").keep(0, Cut()), ModelConnection),
        "garbage": (Reply(silent=(Garbage(),)), ModelConnection),
        "silence": (Reply(silent=(Stall(),)), ModelTimeout),
        "drips": (transcript("x").keep(0, Stall(b" ")), ModelTimeout),
        "a page": (Reply((b"<html>",), headers=(("content-type", "text/html"),)), ModelUnavailable),
        "no text": (Reply((b'{"text": 7}',)), ModelUnavailable),
        "not an object": (Reply((b"[]",)), ModelUnavailable),
        "too deep": (Reply((b"[" * 100_000,)), ModelUnavailable),
    }.values(),
)
async def test_a_call_that_was_sent_and_has_no_transcript_may_have_cost_something(
    http, listener, reply, expected
):
    metered, total = [], 0.3 if expected is ModelTimeout else WITHIN_S
    with pytest.raises(expected):
        await transcribe(http, listener, reply, meter=metered.append, total=total)
    assert metered


async def test_a_call_that_finds_nobody_costs_nothing(http, listener):
    metered = []
    with pytest.raises(ModelConnection):
        await transcribe(http, listener, base_url="http://127.0.0.1:9/v1", meter=metered.append)
    assert metered == []


async def test_a_stop_ends_the_call_at_once_and_its_cost_is_counted(http, listener):
    metered, reached = [], anyio.Event()

    hang = Reply(silent=(Wait(anyio.Event()),))
    async with FakeOpenAI(lambda _: (reached.set(), hang)[1]) as fake, background_tasks() as tasks:
        tasks.start_soon(lambda: transcribe(http, listener, base_url=fake.base_url, meter=metered.append))
        await reached.wait()
    assert metered == [AudioUsage()]


async def test_a_recording_that_cannot_be_read_is_not_sent(http, listener):
    async def read():
        raise OSError("the disk")

    metered = []
    with pytest.raises(OSError, match="the disk"):
        await transcribe(http, listener, read=read, meter=metered.append)
    assert metered == []


async def test_a_request_without_a_recording_is_refused(http, listener):
    model = OpenAITranscription("p", "m", lambda: "k", None, http, StreamTimeouts())
    with pytest.raises(BadRequest):
        await model.complete(Request("", ()), listener)
