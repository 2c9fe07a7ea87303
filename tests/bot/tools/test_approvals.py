"""Approvals in a thread: bound to the exact arguments, used once, and kept over restarts."""

import json
from dataclasses import dataclass, replace
from datetime import timedelta

import anyio
import pytest

from bot.tools.approvals import MAX_INLINE
from bot.tools.labels import format_arguments
from tests.run_tool import Run
from tests.sim.loop import virtual_time
from tests.world import T1, calls, message, says
from threads.invisible_text import escaped
from threads.model import Message, ToolCall

from .approval_harness import Look, commands, press

anyio_backend = virtual_time

LS = calls("shell", command="ls")


async def test_a_call_that_is_allowed_once_runs_once(harness):
    async with harness.start(calls("shell", command="ls -l"), says("done")) as bot:
        post = await harness.asked(bot)
        assert "May I use `shell`?" in post.text
        assert "```\nls -l\n```" in post.text
        assert [choice.label for choice in post.choices] == ["Allow once", "Always here", "Deny"]
        assert harness.run.ran == []
        await press(bot, 2, commands(post)[0])
        await harness.platform.settled("m1", "m2")
    assert harness.run.ran == ["ls -l"]
    verdicts = [(line["details"]["verdict"], line["details"]["about"]) for line in harness.audit_lines()]
    assert verdicts == [("allowed", "ls -l")]
    assert harness.audit_lines()[0]["author"] == "U1"


async def test_a_denied_call_never_runs_and_is_not_asked_about_again_in_its_turn(harness):
    questions = await harness.one_turn(LS, replace(LS), says("all right"), presses=[2])
    assert (harness.run.ran, len(questions)) == ([], 1)
    assert [harness.results(n)[0]["error"]["type"] for n in (1, 2)] == ["permission", "permission"]
    assert harness.results(1)[0]["error"]["recoverable"] is False


async def test_always_here_holds_for_this_thread_and_pattern_and_after_a_restart(harness):
    await harness.one_turn(LS, says("done"), presses=[1])
    async with harness.start(LS, calls("shell", command="ls -a"), says("x")) as bot:
        await bot.orchestrator.receive(message(3))
        await harness.question(2)
        assert harness.run.ran == ["ls", "ls"]
        await press(bot, 4, "/deny")
        await harness.platform.settled("m3")
    async with harness.start(LS, says("x")) as bot:
        await bot.orchestrator.receive(message(5, thread=replace(T1, root="other")))
        await harness.question(3)
        await press(bot, 6, "/deny", thread=replace(T1, root="other"))
        await harness.platform.settled("m5")
    assert harness.run.ran == ["ls", "ls"]


@dataclass
class Changed(Look):
    """A tool that its server has changed: nobody has accepted it as it is now."""

    news: str = "It can send mail now."

    async def accept(self):
        self.news = ""


@pytest.mark.parametrize("rules", [{"look": "allow"}, {"look": "ask"}])
async def test_a_tool_that_was_changed_is_asked_about_before_its_first_use_whatever_was_allowed(
    harness, rules
):
    look = calls("look", what="a")
    await harness.one_turn(look, says("done"), presses=[1], rules={"look": "ask"})
    harness.look = Changed()
    async with harness.start(look, look, says("done"), rules=rules) as bot:
        await bot.orchestrator.receive(message(3))
        post = await harness.question(2)
        assert "It can send mail now." in post.text
        await press(bot, 4, commands(post)[0])
        await harness.platform.settled("m3")
    assert (harness.look.ran, harness.look.news) == (["a", "a"], "")
    assert len(harness.questions) == 2, "the second call is as it was allowed before"


async def test_a_tool_that_was_changed_does_not_run_if_that_is_denied_and_stays_to_be_asked_about(harness):
    harness.look = Changed()
    await harness.one_turn(calls("look", what="a"), says("done"), presses=[2], rules={"look": "allow"})
    assert (harness.look.ran, bool(harness.look.news)) == ([], True)


TWICE = Message("assistant", tuple(ToolCall(f"c{number}", "shell", {"command": "ls"}) for number in range(2)))


@pytest.mark.parametrize("script", [(LS, replace(LS)), (TWICE,)], ids=["two steps", "one step"])
@pytest.mark.parametrize(("second", "ran"), [(0, ["ls", "ls"]), (2, ["ls"])])
async def test_a_press_counts_once_and_the_same_call_has_a_question_of_its_own(harness, script, second, ran):
    """A transport shows what was posted under one name once."""
    questions = await harness.one_turn(*script, says("done"), presses=[0, second])
    assert len({post.key for post in questions}) == 2
    assert harness.run.ran == ran


async def test_a_standing_permission_is_asked_about_once_more_after_outside_text(harness):
    write = calls("write_file", path="a")
    script = (
        write,
        says("done"),
        calls("fetch", url="https://x"),
        replace(write),
        says("done"),
        replace(write),
    )
    async with harness.start(*script, rules={"write_file": "ask"}) as bot:
        await press(bot, 2, commands(await harness.asked(bot))[1])
        await harness.platform.settled("m1", "m2")
        await bot.orchestrator.receive(message(3))
        post = await harness.question(2)
        assert "text from outside" in post.text
        await press(bot, 4, commands(post)[1])
        await harness.platform.settled("m3", "m4")
        await bot.orchestrator.receive(message(5))
        await harness.platform.settled("m5")
    assert harness.write.ran == ["a", "a", "a"]


async def test_a_standing_permission_can_be_revoked(harness):
    async with harness.start(LS, says("done"), LS) as bot:
        await press(bot, 2, commands(await harness.asked(bot))[1])
        await harness.platform.settled("m1", "m2")
        await press(bot, 3, "/deny always")
        await harness.platform.settled("m3")
        await bot.orchestrator.receive(message(4))
        await harness.question(2)
        await press(bot, 5, "/deny")
        await press(bot, 6, "/deny always")
        await harness.platform.settled("m4", "m5", "m6")
    assert harness.run.ran == ["ls"]
    replies = {post.reply_to: post.text for post in harness.platform.posts}
    assert replies["m3"] == "Taken back: 1 thing that I was always allowed here. I ask again."
    assert replies["m6"] == "Nothing is always allowed here."


async def test_an_allowed_call_that_was_cut_off_does_not_run_again_by_itself(harness):
    hung = anyio.Event()

    class Hangs(Run):
        async def __call__(self, arguments, context):
            self.ran.append(arguments.command)
            hung.set()
            await anyio.sleep_forever()

    harness.run = Hangs(harness.run.ran)
    async with harness.start(LS) as bot:
        await press(bot, 2, commands(await harness.asked(bot))[0])
        await hung.wait()
    async with harness.start(says("it may have run")):
        await harness.platform.settled("m1")
    assert harness.run.ran == ["ls"]
    assert "may or may not have run" in json.dumps(harness.results())


async def test_the_time_to_answer_goes_on_while_the_bot_is_down(harness):
    async with harness.start(LS) as bot:
        button = commands(await harness.asked(bot))[0]
    harness.clock.offset += timedelta(seconds=3601)
    async with harness.start(says("too late")) as bot:
        await press(bot, 2, button)
        await harness.platform.settled("m2")
    assert harness.run.ran == []


async def test_where_nobody_can_be_asked_a_call_is_denied_with_a_note(harness):
    harness.platform.capabilities = replace(harness.platform.capabilities, asks=False)
    await harness.one_turn(LS, says("then not"), presses=[])
    assert harness.run.ran == []
    assert "nobody can be asked here" in harness.platform.texts[-1]


async def test_after_a_page_was_read_even_an_allowed_write_is_asked_about_and_says_why(harness):
    script = (calls("fetch", url="https://x"), calls("write_file", path="a"), says("done"))
    (post,) = await harness.one_turn(*script, presses=[0], rules={"write_file": "allow"})
    assert "text from outside" in post.text
    assert harness.write.ran == ["a"]
    fetched = harness.model.requests[1].messages[-1].results[0]
    assert fetched.outside
    assert "<outside " in fetched.content


async def test_text_from_outside_taints_the_later_turns_of_its_conversation_too_until_it_is_gone(harness):
    async with harness.start(calls("fetch", url="https://x"), says("read")) as bot:
        await bot.orchestrator.receive(message())
        await harness.platform.settled("m1")
    async with harness.start(calls("write_file", path="a"), says("no")) as bot:
        await bot.orchestrator.receive(message(2))
        await harness.question()
        await press(bot, 3, "/deny")
        await harness.platform.settled("m2")
        await press(bot, 4, "/new")
        await harness.platform.settled("m4")
    async with harness.start(calls("write_file", path="b"), says("done")) as bot:
        await bot.orchestrator.receive(message(5))
        await harness.platform.settled("m5")
    assert harness.write.ran == ["b"]


async def test_long_arguments_are_shown_whole_even_where_no_file_can_be_posted(harness):
    command = "echo " + "x" * (2 * MAX_INLINE)
    (post,) = await harness.one_turn(calls("shell", command=command), says("done"), presses=["/deny"])
    assert command in post.text


async def test_invisible_characters_are_made_visible_and_secrets_are_masked(harness):
    command = "ls \x1b[2K\u202e canary `````\x00"
    (post,) = await harness.one_turn(calls("shell", command=command), says("done"), presses=["/deny"])
    assert "ls \\u{1b}[2K\\u{202e} [masked] `````\\u{0}" in post.text
    assert "``````\nls" in post.text


async def test_a_call_is_denied_if_the_disk_refuses_its_permission(harness):
    async with harness.start(LS, says("not now")) as bot:
        (harness.folder / "approvals.json.tmp").mkdir()
        (harness.folder / "approvals.json.tmp" / "in the way").touch()
        await bot.orchestrator.receive(message())
        await harness.platform.settled("m1")
    assert harness.run.ran == []
    assert "could not be saved" in json.dumps(harness.results())


def test_no_argument_can_look_like_another():
    assert format_arguments({"command": "ls\nrm"}) == "ls\nrm"
    assert format_arguments({"path": "a b", "n": 1}) == "path: a b\nn: 1"
    assert (
        format_arguments({"path": "a", "content": "x\npath: /etc/passwd\n"})
        == "path: a\ncontent:\n  x\n  path: /etc/passwd\n  "
    )
    assert (
        format_arguments({"a": " ", "b": "", "c d": [1, "\u202e"]})
        == 'a: " "\nb: ""\n"c d": [1, "\\u{202e}"]'
    )
    assert escaped("a\u200bb\u2028c") == "a\\u{200b}b\\u{2028}c"
