"""The interactive console in this process: real prompt_toolkit, keys from a pipe, the screen a string."""

from pathlib import Path

import anyio
import pytest

from tests.patience import WITHIN_S
from tests.transports.console.consoles import at_terminal, terminal
from threads.model import Outgoing, TextDelta, TextReset
from transports.console import Exchange, Lookups
from transports.console.parse import thread_id
from transports.console.terminal import AGAIN
from transports.console.view import BROKE_OFF

CTRL_C, CTRL_D, DOWN, ESCAPE = "\x03", "\x04", "\x1b[B", "\x1b"


@pytest.fixture
def history(tmp_path) -> Path:
    return tmp_path / "new" / "history"


@pytest.fixture
async def session(history):
    async with at_terminal(history_file=history) as session:
        yield session


async def test_an_answer_is_printed_as_markdown_above_the_prompt(session):
    await session.enter("page", "a link (https://example.org/real)", "<b>with a tag</b>", "\n\nmain>\n")
    assert session.bot.got[0].id == "s1.1"
    assert session.bot.got[0].thread == thread_id("main")
    assert session.screen.text.count("A heading") == 1


async def test_the_draft_streams_above_the_prompt_and_the_answer_takes_its_place(session):
    await session.enter("hold", "main> hold\n· One moment.\n\nfirst partial\nmain>", "main | answering… 0 s")
    session.bot.go.set()
    await session.screen.shows("main> hold\n· One moment.\n\nheld to the end\n\nmain>")
    await session.screen.lacks("answering")
    assert "first partial" not in session.screen.text


MAIN = thread_id("main")


async def test_a_finished_block_is_printed_for_good_and_the_answer_adds_only_the_rest(session):
    session.console.show(MAIN, "m", TextDelta("# Head\n\n- one\n- *two*\n\nThe **last** o"))
    await session.screen.shows("Head\n\n • one\n • two\n\nThe last o\nmain>")
    before = len(session.screen.raw)
    text = "(A note.)\n\n# Head\n\n- one\n- *two*\n\nThe **last** one."
    await session.console.post(Outgoing(MAIN, "k", text, reply_to="m"))
    await session.screen.shows("Head\n\n • one\n • two\n\nThe last one.\n\n(A note.)\n\nmain>")
    assert "Head" not in session.screen.raw[before:]


async def test_an_answer_that_begins_again_says_so_below_what_is_printed(session):
    for event in (TextDelta("one\n\ntw"), TextDelta("o\n"), None, TextReset(), TextDelta("1\n\n2\n")):
        if event:
            session.console.show(MAIN, "m", event)
        else:
            await session.screen.shows("one\n\ntwo\nmain>")
    await session.screen.shows(f"one\n\n· {BROKE_OFF}\n1\n\n2\nmain>")


async def test_what_is_finished_in_another_thread_is_printed_when_one_comes_there(session):
    session.console.show(thread_id("work"), "m", TextDelta("one\n\ntwo\n"))
    assert "one" not in session.screen.text
    await session.enter("/thread work", "main> /thread work\none\n\ntwo\nwork>")


async def test_what_is_typed_while_a_turn_runs_is_sent_and_no_copy_of_the_draft_stays(session):
    await session.enter("hold", "first partial", "One moment.")
    await session.enter("next", "main> next\nfirst partial\nmain>", "| 1 waiting")
    assert session.got == ["hold", "next"]
    session.bot.go.set()
    await session.screen.shows("main> next\nheld to the end\n\nYou said: next\n\nmain>")
    assert "first partial" not in session.screen.text


async def test_threads_live_side_by_side_and_a_post_of_another_one_says_so(session):
    await session.enter("hold", "first partial", "One moment.")
    await session.enter("/thread work", "work>", "work | busy: main")
    assert "first partial" not in session.screen.text
    await session.enter("hello", "work> hello\nYou said: hello\n\nwork>")
    assert session.bot.got[-1].thread == thread_id("work")
    await session.enter(
        "go", "work> go\n", "gone\n", "[main]\nheld to the end\n\n", "work | unread: main (1)"
    )
    await session.enter("/thread", "  main (1 unread)\n* work\n")
    await session.enter("/thread main", "work> /thread main\nmain>")
    await session.enter("/thread", "* main\n  work\n")


async def test_help_is_shown_and_other_commands_go_to_the_bot(session):
    await session.enter(
        "/help", "/status       show what is going on", "Alt-Enter", "a new line in the same message"
    )
    await session.enter("/status", "· All is well.")
    await session.screen.ends_with("\nmain")
    assert session.got == ["/status"]


async def test_ctrl_c_stops_the_turn_and_keeps_what_is_being_typed(session):
    await session.enter("hold", "first partial")
    session.keys.send_text("half a li" + CTRL_C)
    await session.screen.shows("first partial\n\n(Stopped here.)\n\nStopped.\n\nmain> half a li")
    assert session.got == ["hold", "/stop"]
    await session.enter("ne", "You said: half a line")


async def test_escape_closes_the_list_first_and_then_stops_the_turn_and_keeps_what_is_typed(session):
    await session.enter("hold", "first partial")
    session.keys.send_text("/st")
    await session.screen.shows("/status  show")
    session.keys.send_text(ESCAPE)
    await session.screen.lacks("/status")
    assert session.got == ["hold"]
    session.keys.send_text(ESCAPE)
    await session.screen.shows("(Stopped here.)\n\nStopped.\n\nmain> /st")
    assert session.got == ["hold", "/stop"]


async def begins_to_leave(session, keys=CTRL_C):
    session.keys.send_text(keys)
    await session.screen.shows(f"main> {AGAIN}")
    assert not session.left.is_set()


async def test_escape_neither_clears_a_line_nor_leaves_where_nothing_runs(session):
    session.keys.send_text("words" + ESCAPE + CTRL_C)
    await session.screen.lacks("words")
    await begins_to_leave(session, ESCAPE + CTRL_C)
    assert session.got == []


async def test_a_stop_gives_the_text_of_waiting_messages_back(session):
    await session.enter("hold", "first partial")
    await session.enter("one", "1 waiting")
    await session.enter("two", "2 waiting")
    session.keys.send_text("thr" + CTRL_C)
    await session.screen.shows("main> one", "two", "thr")
    await session.enter("ee", "You said: one", "three")


async def test_a_ctrl_c_that_stops_a_turn_does_not_begin_to_leave(session):
    await session.enter("hold", "first partial")
    session.keys.send_text(CTRL_C)
    await session.screen.shows("(Stopped here.)", "Stopped.")
    await begins_to_leave(session)
    session.keys.send_text(CTRL_C)
    await session.ended()


async def test_a_turn_that_does_not_stop_can_be_left_by_the_third_ctrl_c(session, monkeypatch):
    monkeypatch.setattr(session.bot, "command", lambda _: anyio.sleep_forever())
    await session.enter("hold", "first partial")
    await begins_to_leave(session, CTRL_C + CTRL_C)
    session.keys.send_text(CTRL_C)
    await session.ended()
    assert session.got == ["hold", "/stop"]


async def test_a_ctrl_c_that_clears_a_line_does_not_begin_to_leave(session):
    session.keys.send_text("words")
    await session.screen.shows("main> words")
    session.keys.send_text(CTRL_C)
    await session.screen.lacks("words")
    assert AGAIN not in session.screen.text
    await begins_to_leave(session)
    session.keys.send_text(CTRL_C)
    await session.ended()
    assert session.got == []
    assert "Not everything is answered" not in session.screen.text


@pytest.mark.parametrize("between", ["x\x7f", "hello\r"])
async def test_who_types_after_a_ctrl_c_stays(session, between):
    await begins_to_leave(session)
    session.keys.send_text(between)
    await session.screen.lacks(AGAIN)
    await session.screen.ends_with("\nmain")  # nothing runs
    await begins_to_leave(session)
    await session.enter("here", "You said: here")


@pytest.mark.parametrize("keys", [CTRL_C + CTRL_C, CTRL_D, "/quit\r"])
async def test_an_idle_console_can_be_left_in_three_ways(session, keys):
    session.keys.send_text(keys)
    await session.ended()
    assert session.console.exit_code == 0


async def test_leaving_hands_over_what_was_typed_last_and_says_what_is_open(session):
    await session.enter("hold", "first partial")
    session.keys.send_text("/quit\r")
    await session.ended()
    assert session.got == ["hold"]
    assert "Not everything is answered yet" in session.screen.text


async def test_errors_and_a_full_disk_are_told_in_red_and_the_prompt_comes_back(session):
    await session.enter("fail", "! Something went wrong. (ref abc)")
    await session.enter("full", "! I cannot save to my disk right now")
    await session.screen.ends_with("\nmain")
    await session.enter("again", "You said: again\n\nmain>")
    assert "\x1b[31m! Something" in session.screen.raw


async def test_alt_enter_makes_a_message_of_two_lines(session):
    session.keys.send_text("one\x1b\rtwo\r")
    await session.screen.shows("You said: one\ntwo")


PASTES = {
    "marked": "\x1b[200~one\r two\r\rfour\x1b[201~",
    "raw": "one\r two\r\rfour",
    "raw, with line feeds": "one\n two\n\nfour",
    "raw, with both": "one\r\n two\r\n\r\nfour",
}
TABS = {
    "marked, with tabs": "\x1b[200~one\r\ttwo\tthree\r\t\tfour\x1b[201~",
    "raw, with tabs": "one\r\ttwo\tthree\r\t\tfour",
}


@pytest.mark.parametrize("name", [*PASTES, *TABS])
async def test_lines_that_are_pasted_are_one_message_and_tabs_in_them_are_text(session, name):
    paste, got = (
        (PASTES[name], "one\n two\n\nfour") if name in PASTES else (TABS[name], "one\n\ttwo\tthree\n\t\tfour")
    )
    session.keys.send_text(paste)
    await session.screen.shows("four")
    assert session.got == []
    session.keys.send_text("\r")
    await session.screen.shows("You said: one\n")
    assert session.got == [got]


async def test_a_raw_paste_that_ends_its_last_line_is_sent(session):
    session.keys.send_text("one\rtwo\rthree\r")
    await session.screen.shows("You said: one")
    assert session.got == ["one\ntwo\nthree"]


async def test_tools_leave_a_dim_line_above_the_answer(session):
    await session.enter("tools", "main> tools\n· running wc a.txt\nmain>")  # a draft first
    session.bot.go.set()
    done = "main> tools\n· running wc a.txt\n· reading b.txt: did not work\ndone\n\nmain>"
    await session.screen.shows(done)
    assert "\x1b[2m· running wc a.txt" in session.screen.raw


async def test_tools_of_another_thread_are_told_with_its_answer(session):
    await session.enter("tools", "· running wc a.txt")
    await session.enter("/thread work", "work>")
    session.bot.go.set()
    await session.screen.shows("[main]\n· running wc a.txt\n· reading b.txt: did not work\ndone\n\nwork>")


async def test_what_was_typed_is_kept_for_its_owner_alone(session, history):
    await session.enter("secret plan", "You said: secret plan")
    assert "secret plan" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.parent.stat().st_mode & 0o777 == 0o700
    session.keys.send_text("\x1b[A\r")
    await session.screen.shows("You said: secret plan")


async def test_a_history_that_cannot_be_written_is_told_once_and_hurts_nobody(session, history):
    history.unlink()
    history.mkdir()
    await session.enter("one", "What you type is not kept for next time: Is a directory.")
    await session.screen.shows("main>")
    session.keys.send_text("/quit\r")
    await session.ended()
    assert session.got == ["one"]


async def test_posts_of_many_threads_at_once_come_out_whole(session):
    async with anyio.create_task_group() as group:
        for n in range(20):
            text = f"line {n}a\nline {n}b"
            group.start_soon(session.console.post, Outgoing(thread_id(f"t{n}"), str(n), text))
    for n in range(20):
        assert f"\n[t{n}]\nline {n}a\nline {n}b\n\n" in session.screen.text


async def test_a_post_after_the_person_left_is_printed_all_the_same(session):
    session.keys.send_text(CTRL_D)
    await session.ended()
    await session.console.post(Outgoing(thread_id("main"), "k", "late"))
    await session.screen.shows("late")


async def test_a_post_before_serving_is_printed_too():
    with terminal() as (_, screen, console):
        await console.post(Outgoing(thread_id("main"), "k", "early"))
        await screen.shows("early")


async def test_a_thread_and_a_model_are_picked_from_a_list_that_what_is_typed_narrows_down():
    found = Lookups(threads=lambda: {"trip": "Spring, dog", "w": "Pay" * 30}, models=lambda: {"a/b": "free"})
    async with at_terminal(lookups=found) as session:
        await session.enter("/thread", f"* main\n  trip  Spring, dog\n  w     {'Pay' * 17}…\n")
        session.keys.send_text("/mo")
        await session.screen.shows("/model   choose")
        session.keys.send_text(DOWN + "\r")
        await session.screen.shows("a/b    free")
        session.keys.send_text("\x15/thread ")
        await session.screen.shows(" trip   Spring, dog\n", " w      Pay")
        session.keys.send_text("DOG")
        await session.screen.lacks(" w      Pay")
        await session.screen.shows("trip   Spring")
        session.keys.send_text(DOWN)
        await session.enter("", "main> /thread trip\n")
        await session.screen.lacks("trip   Spring")
        await session.enter("", "main> /thread trip\ntrip>")


async def test_what_was_said_last_is_shown_once_when_a_thread_with_a_past_is_opened():
    def last(thread):
        return Exchange("2026-11-28 09:00", "And?", "**Yes**\x1b[2J") if thread == thread_id("old") else None

    async with at_terminal(lookups=Lookups(last=last)) as session:
        recalled = "· Last time (2026-11-28 09:00) you said: And?\n  Yes[2J\n\n"
        await session.enter("/thread old", f"leaves.\n\nmain> /thread old\n{recalled}old>")
        await session.enter("/thread main", "old> /thread main\nmain>")
        await session.enter("/thread old", "main> /thread old\nold>")


async def test_enter_takes_the_completion_that_is_chosen_and_only_the_next_one_sends(session):
    session.keys.send_text("/st")
    await session.screen.shows("/stop    stop", "/status  show")
    session.keys.send_text(DOWN)
    await session.screen.shows("main> /stop")
    session.keys.send_text(DOWN)
    await session.screen.shows("main> /status")
    session.keys.send_text("\r")
    await session.screen.lacks("/stop")
    assert session.got == []
    await session.enter("", "· All is well.")
    assert session.got == ["/status"]


async def test_escape_closes_the_list_and_leaves_what_was_typed_and_down_opens_it_again(session):
    session.keys.send_text("/st")
    await session.screen.shows("/status  show")
    session.keys.send_text(ESCAPE)
    await session.screen.lacks("/status")
    await session.screen.shows("main> /st\n")
    session.keys.send_text(DOWN)
    await session.screen.shows("main> /stop", "/status  show")
    assert session.got == []


async def test_down_goes_on_through_the_history_from_an_earlier_command(session):
    await session.enter("/status", "· All is well.")
    await session.enter("hello", "You said: hello")
    session.keys.send_text("\x1b[A\x1b[A")
    await session.screen.shows("You said: hello\n\nmain> /status\n")
    session.keys.send_text(DOWN)
    await session.screen.shows("You said: hello\n\nmain> hello\n")


async def test_an_answer_to_an_earlier_session_stands_below_its_question():
    def asked(thread, message_id):
        return {"s0.7": "what\nis it?"}.get(message_id, "") if thread == thread_id("main") else ""

    async with at_terminal(lookups=Lookups(asked)) as session:
        await session.console.post(Outgoing(thread_id("main"), "k", "This.", reply_to="s0.7"))
        await session.screen.shows("· You asked: what is it?\nThis.\n")
        await session.console.post(Outgoing(thread_id("main"), "l", "No more.", reply_to="s1.7"))
        await session.screen.shows("This.\n\nNo more.")


async def test_a_long_draft_leaves_room_for_the_prompt(session):
    session.console.show(thread_id("main"), "m", TextDelta("\n".join(f"line {n}." for n in range(100))))
    await session.screen.shows("line 85.\n", "line 99.\nmain>", "main | answering…")
    assert "line 84." not in session.screen.text


async def test_a_bug_in_the_sink_ends_the_serving_loudly(history):
    async def broken(_: object) -> None:
        raise LookupError

    with terminal() as (keys, _, console):
        keys.send_text("hello\r")
        with anyio.fail_after(WITHIN_S), pytest.raises(ExceptionGroup) as caught:
            await console.serve(broken)
    assert caught.group_contains(LookupError)


async def test_leaving_waits_only_so_long_for_a_disk_that_hangs(monkeypatch):
    monkeypatch.setattr("transports.console.terminal.DRAIN_S", 0.01)
    with terminal() as (keys, _, console):
        keys.send_text("hello\r" + CTRL_D)
        with anyio.fail_after(WITHIN_S):
            await console.serve(lambda _: anyio.sleep_forever())
