import io
import json
import logging
import os
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.guards.redaction import mask
from bot.observe.logs import MAX_TEXT, RESERVED, Sink, configure_logging, fields_of, one_line
from bot.ports.errors import ModelNotFound, ModelUnavailable, PaymentRequired, Unauthorized
from threads.errors import StoreUnavailable, retry_fields

pytestmark = pytest.mark.usefixtures("restored_logging")
log = logging.getLogger("bot.test")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def fail(error: Exception) -> None:
    raise error


def record(out: io.StringIO) -> dict[str, object]:
    (line,) = out.getvalue().splitlines()
    return json.loads(line)


def test_a_json_line_holds_time_level_logger_event_and_fields(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    log.info(
        "turn.started: attempt %d of %s",
        2,
        "it",
        extra={"thread_id": "slack:T:C:1", "attempt": 2, "waited": 1.5, "ok": True},
    )
    line = record(out)
    assert line.pop("at")[10:] > "T00:00:00.000+00:00"
    assert line == {
        "level": "info", "logger": "bot.test", "event": "turn.started", "text": "attempt 2 of it",
        "thread_id": "slack:T:C:1", "attempt": 2, "waited": 1.5, "ok": True,
    }  # fmt: skip


def test_a_text_line_can_be_read(out: io.StringIO) -> None:
    configure_logging("info", "text", out)
    log.warning("loop.slow: by %d", 7, extra={"thread_id": "a:b:c:d", "why": "two words"})
    assert out.getvalue()[29:] == ' warning bot.test: loop.slow: by 7 thread_id=a:b:c:d why="two words"\n'


def test_the_level_is_the_least_that_is_written(out: io.StringIO) -> None:
    configure_logging("warning", "json", out)
    log.info("no")
    log.warning("yes")
    assert record(out)["text"] == "yes"


def test_libraries_that_log_what_people_say_are_never_heard_debugging(out: io.StringIO) -> None:
    configure_logging("debug", "text", out)
    for library in ("discord", "discord.gateway", "slack_sdk", "aiohttp"):
        logging.getLogger(library).debug("a whole payload")
    assert out.getvalue() == ""


def test_a_second_call_replaces_the_first(out: io.StringIO) -> None:
    configure_logging("info", "json", io.StringIO())
    configure_logging("info", "text", out)
    log.info("once")
    assert len(out.getvalue().splitlines()) == 1
    assert sum(isinstance(handler, Sink) for handler in logging.getLogger().handlers) == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_gets_through_in_event_argument_field_or_traceback(out: io.StringIO, form) -> None:
    configure_logging("info", form, out, secrets=["canary-literal"])
    try:
        try:
            fail(OSError("GET https://h/?token=canary1"))
        except OSError as error:
            chained = RuntimeError("canary-literal and xoxb-canary2-1234")
            chained.__cause__ = error
            fail(chained)
    except RuntimeError:
        fields = {"url": "https://h/?api_key=canary4", "deep": {"sk-canary5-12345": ["xapp-1-canary6"]}}
        log.exception("sent %s", "Authorization: Bearer canary3", extra=fields, stack_info=True)
    assert "canary" not in out.getvalue()
    assert out.getvalue().count("[masked]") >= 7


def test_a_traceback_is_one_json_line(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    try:
        fail(ValueError("first\nsecond"))
    except ValueError:
        log.exception("failed")
    assert str(record(out)["traceback"]).endswith("ValueError: first\nsecond\n")


@pytest.mark.parametrize(("error", "traced"), [(StoreUnavailable("full"), False), (ValueError("why"), True)])
def test_people_see_no_traceback_of_a_failure_that_has_a_name(out: io.StringIO, error, traced) -> None:
    configure_logging("info", "text", out)
    log.error("turn.failed: %s", error, exc_info=error)
    assert ("Error: why" in out.getvalue()) is traced
    assert len(out.getvalue().splitlines()) == 1 + traced
    configure_logging("info", "json", out)
    log.error("turn.failed: %s", error, exc_info=error)
    assert "traceback" in out.getvalue().splitlines()[-1]


@pytest.mark.parametrize("error", [Unauthorized("401"), PaymentRequired("402"), ModelNotFound("404")])
def test_what_only_tells_how_a_provider_is_has_no_traceback_in_json_either(out: io.StringIO, error) -> None:
    configure_logging("info", "json", out)
    log.error("turn.failed: %s", error, exc_info=error)
    assert record(out).keys() == {"at", "level", "logger", "event", "text", "report"}


def test_a_line_about_a_failure_carries_its_report(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    error = ModelUnavailable("sk-ant-0123456789abcdefghij", status=529)
    log.info("model.retry: no", extra={**retry_fields(error, 2, 1.5), "correlation_id": "1a2b3c4d"})
    line = record(out)
    at = line["report"].pop("timestamp")
    assert line["report"] == {
        "type": "unavailable",
        "message": "ModelUnavailable: [masked]",
        "recoverable": True,
        "context": {"status": 529.0},
        "suggestion": "I'm having trouble reaching my AI provider. Try again in a moment.",
        "ways": ["retry"],
        "correlation_id": "1a2b3c4d",
    }
    assert at == line["at"]
    assert "error" not in line
    log.warning("context.damaged: no", extra={"code": "context_corrupt"})
    assert json.loads(out.getvalue().splitlines()[-1])["report"]["type"] == "context_corrupt"


def test_a_persons_text_cannot_forge_a_line(out: io.StringIO) -> None:
    evil = "a\n2026-01-01 info bot: forged\r\x1b[31m\u2028\u202e\ud800"
    for form in ("json", "text"):
        configure_logging("info", form, out)
        log.info("got %s", evil, extra={"text": evil, evil: 1})
        (line,) = out.getvalue().splitlines()
        assert line.isprintable()
        out.seek(out.truncate(0))
    try:
        fail(ValueError(evil))
    except ValueError:
        log.exception("failed")
    first, *rest = out.getvalue().split("\n")
    assert first.endswith("failed")
    assert all(line.startswith("    ") for line in rest if line)


def test_fields_that_share_a_name_with_the_lines_own_are_kept_beside_them(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    log.info("mine.own: words", extra={"event": "other", "level": 3, "at": "x", "traceback": "y"})
    line = record(out)
    assert (line["event"], line["event_"], line["level_"], line["at_"]) == ("mine.own", "other", 3, "x")
    assert line["traceback_"] == "y"


def test_the_words_of_the_design_are_not_reserved_by_logging() -> None:
    assert (
        not {"thread_id", "message_id", "turn_id", "correlation_id", "provider", "model", "tool"} & RESERVED
    )


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_a_log_call_never_fails_its_caller(out: io.StringIO, monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own fail on purpose
    loop: list[object] = []
    loop.append(loop)
    for form in ("json", "text"):
        configure_logging("info", form, out)
        log.info("%d of %d", *"x")
        log.info(Unprintable(), extra={"a": Unprintable()})
        log.info(
            "odd",
            extra={"a": loop, "b": float("nan"), "c": 10**6000, "d": b"\xff", "e": {1: {2: {3: {4: 5}}}}},
        )
        log.error("none", exc_info=(None, None, None))
    lines = out.getvalue().splitlines()
    assert len(lines) == 8
    assert "%d of %d" in lines[0]
    json.loads(lines[2], parse_constant=pytest.fail)


def test_a_stream_that_refuses_counts_what_was_lost_and_says_nothing_elsewhere(capsys) -> None:
    closed = io.StringIO()
    closed.close()
    configure_logging("info", "json", closed)
    log.info("xoxb-canary-123")
    (sink,) = [handler for handler in logging.getLogger().handlers if isinstance(handler, Sink)]
    assert sink.lost == 1
    assert capsys.readouterr() == ("", "")


def event_of(text: str) -> str:
    return str(fields_of(logging.makeLogRecord({"msg": text}), mask)["text"])


def test_a_long_text_keeps_its_two_ends_and_hides_the_secret_between(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    log.info("start %s end", "x" * 1_000_000)
    event = str(record(out)["text"])
    assert len(event) < MAX_TEXT + 100
    assert event.startswith("start x")
    assert event.endswith("x end")
    key = "-----BEGIN PRIVATE KEY-----" + "canary " * 3000 + "-----END PRIVATE KEY-----"
    assert "canary" not in event_of("a" * 15_000 + key + "b" * 5_000)


def test_other_receivers_see_the_record_unchanged(out: io.StringIO, caplog) -> None:
    configure_logging("info", "json", out)
    try:
        fail(ValueError("x"))
    except ValueError:
        log.exception("%s", "xoxb-123-abc")
    assert caplog.records[0].args == ("xoxb-123-abc",)
    assert caplog.records[0].exc_info


def test_python_warnings_are_logged_too(out: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging("info", "json", out)
        warnings.warn("old", stacklevel=1)
        logging.captureWarnings(capture=False)
    assert record(out)["logger"] == "py.warnings"


@given(text=st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert one_line(text).isprintable()


def test_the_journal_is_told_the_level_of_each_line(tmp_path, monkeypatch) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        there = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino}")
        configure_logging("info", "json", stream)
        log.warning("loop.slow: by %d", 7)
        log.info("turn.started: now")
        stream.seek(0)
        assert [line[:4] for line in stream] == ["<4>{", "<6>{"]
