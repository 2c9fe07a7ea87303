"""The interactive console in this process: real prompt_toolkit, keys from a pipe, the screen a string."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from tests.transports.console.screen import Screen
from tests.transports.console.script import ScriptedBot
from threads.model import Outgoing, TextDelta
from transports.console import Console
from transports.console.parse import thread_id

pytestmark = pytest.mark.anyio

CTRL_C, CTRL_D = "\x03", "\x04"


class Seat:
    def __init__(self, keys: PipeInput, screen: Screen, console: Console, bot: ScriptedBot) -> None:
        self.keys, self.screen, self.console, self.bot = keys, screen, console, bot
        self.left = anyio.Event()

    async def serve(self) -> None:
        await self.console.serve(self.bot.sink)
        self.left.set()

    async def says(self, line: str, *then: str) -> None:
        self.keys.send_text(f"{line}\r")
        await self.screen.shows(*then)

    async def leaves(self) -> None:
        with anyio.fail_after(20):
            await self.left.wait()

    @property
    def got(self) -> list[str]:
        return [message.text for message in self.bot.got]


@pytest.fixture
def history(tmp_path) -> Path:
    return tmp_path / "new" / "history"


@contextmanager
def terminal(history: Path | None = None) -> Iterator[tuple[PipeInput, Screen, Console]]:
    with create_pipe_input() as keys:
        screen = Screen(30, 60, keys.send_text)
        output = Vt100_Output(screen, lambda: Size(screen.rows, screen.columns), term="xterm")
        with create_app_session(input=keys, output=output):
            yield keys, screen, Console(session="s1", history_file=history, interactive=True)


@pytest.fixture
async def seat(history) -> AsyncIterator[Seat]:
    with terminal(history) as (keys, screen, console):
        async with anyio.create_task_group() as group:
            seat = Seat(keys, screen, console, ScriptedBot(console, group))
            group.start_soon(seat.serve)
            await screen.shows("main>")
            yield seat
            group.cancel_scope.cancel()


async def test_an_answer_is_printed_as_markdown_above_the_prompt(seat):
    await seat.says("page", "a link (https://example.org/real)", "<b>with a tag</b>", "\n\nmain>\n")
    assert seat.bot.got[0].id == "s1.1"
    assert seat.bot.got[0].thread == thread_id("main")
    assert seat.screen.text.count("A heading") == 1


async def test_the_draft_streams_above_the_prompt_and_the_answer_takes_its_place(seat):
    await seat.says("hold", "main> hold\n· One moment.\n\nfirst partial\nmain>", "main | answering… 0 s")
    seat.bot.go.set()
    await seat.screen.shows("main> hold\n· One moment.\n\nheld to the end\n\nmain>")
    await seat.screen.lacks("answering")
    assert "first partial" not in seat.screen.text


async def test_what_is_typed_while_a_turn_runs_is_sent_and_no_copy_of_the_draft_stays(seat):
    await seat.says("hold", "first partial", "One moment.")
    await seat.says("next", "main> next\nfirst partial\nmain>", "| 1 waiting")
    assert seat.got == ["hold", "next"]
    seat.bot.go.set()
    await seat.screen.shows("main> next\nheld to the end\n\nYou said: next\n\nmain>")
    assert "first partial" not in seat.screen.text


async def test_threads_live_side_by_side_and_a_post_of_another_one_says_so(seat):
    await seat.says("hold", "first partial", "One moment.")
    await seat.says("/thread work", "work>", "work | busy: main")
    assert "first partial" not in seat.screen.text
    await seat.says("hello", "work> hello\nYou said: hello\n\nwork>")
    assert seat.bot.got[-1].thread == thread_id("work")
    await seat.says("go", "work> go\n", "gone\n", "[main]\nheld to the end\n\n", "work | unread: main (1)")
    await seat.says("/thread", "  main (1 unread)\n* work\n")
    await seat.says("/thread main", "work> /thread main\nmain>")
    await seat.says("/thread", "* main\n  work\n")


async def test_a_switch_of_threads_shows_the_draft_of_the_thread_one_comes_to(seat):
    await seat.says("hold", "first partial", "One moment.")
    await seat.says("/thread work", "work | busy: main")
    await seat.says("/thread main", "work> /thread main\nfirst partial\nmain>")


async def test_a_bad_thread_name_is_refused_with_a_clear_word(seat):
    await seat.says("/thread a b", "! A thread's name is 1 to 64", "digit among them.\n\nmain>")
    assert seat.got == []


async def test_help_is_shown_and_other_commands_go_to_the_bot(seat):
    await seat.says("/help", "/status       what is going on")
    await seat.says("/status", "· All is well.")
    await seat.screen.ends_with("\nmain")
    assert seat.got == ["/status"]


async def test_ctrl_c_stops_the_turn_and_keeps_what_is_being_typed(seat):
    await seat.says("hold", "first partial")
    seat.keys.send_text("half a li" + CTRL_C)
    await seat.screen.shows("· Stopped.\n\nmain> half a li")
    assert seat.got == ["hold", "/stop"]
    await seat.says("ne", "You said: half a line")


async def test_a_second_ctrl_c_leaves_although_a_turn_runs(seat):
    await seat.says("hold", "first partial")
    seat.keys.send_text(CTRL_C + CTRL_C)
    await seat.leaves()


async def test_ctrl_c_clears_a_typed_line_and_says_how_to_leave(seat):
    seat.keys.send_text("words")
    await seat.screen.shows("main> words")
    seat.keys.send_text(CTRL_C)
    await seat.screen.lacks("words")
    await seat.screen.shows("Ctrl-C again to leave | main")
    assert not seat.left.is_set()
    seat.keys.send_text(CTRL_C)
    await seat.leaves()
    assert seat.got == []
    assert "Not everything is answered" not in seat.screen.text


async def test_one_ctrl_c_on_an_empty_prompt_does_not_leave_and_the_hint_goes_away(seat, monkeypatch):
    monkeypatch.setattr("transports.console.terminal.TWICE_S", 0.2)
    seat.keys.send_text(CTRL_C)
    await seat.screen.shows("Ctrl-C again to leave | main")
    await seat.screen.lacks("Ctrl-C again to leave")
    seat.keys.send_text(CTRL_C)  # too late to be the second of two
    await seat.screen.shows("Ctrl-C again to leave | main")
    assert not seat.left.is_set()
    await seat.says("hello", "You said: hello")


@pytest.mark.parametrize("keys", [CTRL_C + CTRL_C, CTRL_D, "/quit\r"])
async def test_an_idle_console_can_be_left_in_three_ways(seat, keys):
    seat.keys.send_text(keys)
    await seat.leaves()
    assert seat.console.exit_code == 0


async def test_leaving_hands_over_what_was_typed_last_and_says_what_is_open(seat):
    await seat.says("hold", "first partial")
    seat.keys.send_text("/quit\r")
    await seat.leaves()
    assert seat.got == ["hold"]
    assert "Not everything is answered yet" in seat.screen.text


async def test_errors_and_a_full_disk_are_told_in_red_and_the_prompt_comes_back(seat):
    await seat.says("fail", "! Something went wrong. (ref abc)")
    await seat.says("full", "! I cannot save to my disk right now")
    await seat.screen.ends_with("\nmain")
    await seat.says("again", "You said: again\n\nmain>")
    assert "\x1b[31m! Something" in seat.screen.raw


async def test_a_wait_for_the_provider_is_on_the_status_line(seat):
    await seat.says("limited", "main | waiting: rate limited, trying again in 20 s, 2 of 6")


async def test_alt_enter_makes_a_message_of_two_lines(seat):
    seat.keys.send_text("one\x1b\rtwo\r")
    await seat.screen.shows("You said: one\ntwo")


PASTES = {
    "marked": "\x1b[200~one\r two\r\rfour\x1b[201~",
    "raw": "one\r two\r\rfour",
    "raw, with line feeds": "one\n two\n\nfour",
    "raw, with both": "one\r\n two\r\n\r\nfour",
}


@pytest.mark.parametrize("paste", PASTES.values(), ids=PASTES)
async def test_lines_that_are_pasted_are_one_message(seat, paste):
    seat.keys.send_text(paste)
    await seat.screen.shows("four")
    assert seat.got == []
    seat.keys.send_text("\r")
    await seat.screen.shows("You said: one\n")
    assert seat.got == ["one\n two\n\nfour"]


async def test_a_raw_paste_that_ends_its_last_line_is_sent(seat):
    seat.keys.send_text("one\rtwo\rthree\r")
    await seat.screen.shows("You said: one")
    assert seat.got == ["one\ntwo\nthree"]


async def test_help_tells_how_to_write_several_lines(seat):
    await seat.says("/help", "Alt-Enter", "a new line in the same message")


async def test_a_mistyped_command_of_the_consoles_own_is_suggested(seat):
    await seat.says("/thead work", "! I do not know /thead. Did you mean /thread?", "\n\nmain>")
    assert seat.got == []


async def test_tools_leave_a_dim_line_above_the_answer(seat):
    await seat.says("tools", "main> tools\n· running wc a.txt\nmain>")  # a draft first
    seat.bot.go.set()
    done = "main> tools\n· running wc a.txt\n· reading b.txt: did not work\ndone\n\nmain>"
    await seat.screen.shows(done)
    assert "\x1b[2m· running wc a.txt" in seat.screen.raw


async def test_tools_of_another_thread_are_told_with_its_answer(seat):
    await seat.says("tools", "· running wc a.txt")
    await seat.says("/thread work", "work>")
    seat.bot.go.set()
    await seat.screen.shows("[main]\n· running wc a.txt\n· reading b.txt: did not work\ndone\n\nwork>")


async def test_no_escape_sequence_of_the_model_reaches_the_terminal(seat):
    await seat.says("escape", "a[2Jb0mc ]0;titled")


async def test_what_was_typed_is_kept_for_its_owner_alone(seat, history):
    await seat.says("secret plan", "You said: secret plan")
    assert "secret plan" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.parent.stat().st_mode & 0o777 == 0o700
    seat.keys.send_text("\x1b[A\r")
    await seat.screen.shows("You said: secret plan")


async def test_a_history_that_cannot_be_written_is_told_once_and_hurts_nobody(seat, history):
    history.unlink()
    history.mkdir()
    await seat.says("one", "What you type is not kept for next time: Is a directory.")
    await seat.screen.shows("main>")
    seat.keys.send_text("/quit\r")
    await seat.leaves()
    assert seat.got == ["one"]


async def test_posts_of_many_threads_at_once_come_out_whole(seat):
    async with anyio.create_task_group() as group:
        for n in range(20):
            text = f"line {n}a\nline {n}b"
            group.start_soon(seat.console.post, Outgoing(thread_id(f"t{n}"), str(n), text))
    for n in range(20):
        assert f"\n[t{n}]\nline {n}a\nline {n}b\n\n" in seat.screen.text


async def test_a_post_after_the_person_left_is_printed_all_the_same(seat):
    seat.keys.send_text(CTRL_D)
    await seat.leaves()
    await seat.console.post(Outgoing(thread_id("main"), "k", "late"))
    await seat.screen.shows("late")


async def test_a_post_before_serving_is_printed_too():
    with terminal() as (_, screen, console):
        await console.post(Outgoing(thread_id("main"), "k", "early"))
        await screen.shows("early")


async def test_a_completion_offers_the_commands_and_the_threads(seat):
    seat.keys.send_text("/th")
    await seat.screen.shows("/thread main")
    seat.keys.send_text("\x15/s")
    await seat.screen.shows("/stop", "/status")


async def test_a_long_draft_leaves_room_for_the_prompt(seat):
    seat.console.show(thread_id("main"), "m", TextDelta("\n".join(f"line {n}." for n in range(100))))
    await seat.screen.shows("line 85.\n", "line 99.\nmain>", "main | answering…")
    assert "line 84." not in seat.screen.text


async def test_a_narrower_window_is_used_at_once(seat):
    seat.screen.columns = 30
    await seat.says("page", " alpha  the first letter of\n        the Greek alphabet,\n")


async def test_a_bug_in_the_sink_ends_the_serving_loudly(history):
    async def broken(_: object) -> None:
        raise LookupError

    with terminal() as (keys, _, console):
        keys.send_text("hello\r")
        with anyio.fail_after(20), pytest.raises(ExceptionGroup) as caught:
            await console.serve(broken)
    assert caught.group_contains(LookupError)


async def test_leaving_waits_only_so_long_for_a_disk_that_hangs(monkeypatch):
    monkeypatch.setattr("transports.console.terminal.DRAIN_S", 0.01)
    with terminal() as (keys, _, console):
        keys.send_text("hello\r" + CTRL_D)
        with anyio.fail_after(20):
            await console.serve(lambda _: anyio.sleep_forever())
