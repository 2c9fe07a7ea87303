"""Playbooks in the whole program: real settings, store and sockets, a model that plays a script, people who answer."""

from __future__ import annotations

import errno
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from textwrap import dedent

import anyio
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.extensions.playbooks.runs import Runs
from bot.schedules.store import Schedules
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Stall, Wait
from tests.patience import until
from tests.serving import Chat, anthropic, compatible, serving
from tests.world import message
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.model import Author, Deleted, Edited, StagesChanged

BOSS, EVE = Author("U9", "boss"), Author("U5", "eve")

TRIAGE = """\
name: triage
description: Triage an incident.
stages:
  - name: assess
    act: {prompt: "How bad is it?"}
    assert:
      schema:
        type: object
        required: [severity]
        properties: {severity: {enum: [high, low]}}
    next: {value: {field: severity, cases: {low: note}}}
  - name: page
    setup: {results: [assess]}
    act: {prompt: Write the page.}
  - name: note
    act: {prompt: Write a note.}
"""


def text(words):
    return o.chat_answer(o.Text(words))


def write(data, name, playbook):
    (data / "playbooks").mkdir(exist_ok=True)
    (data / "playbooks" / f"{name}.yaml").write_text(dedent(playbook))


def settings(fake, **more):
    return {
        "model": "local/m",
        "providers": compatible("local", fake.base_url),
        "access": {"admins": [BOSS.id]},
        **more,
    }


def prompts(fake):
    """Return the last message of each request, as the model reads it."""
    return [_text_of(request.json["messages"][-1]["content"]) for request in fake.requests]


def _text_of(content):
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def shown(chat):
    """Return the stages as they were shown, each time as a row of signs."""
    signs = {"waiting": "-", "running": ">", "passed": "+", "failed": "x", "skipped": "~", "parked": "="}
    events = [event for _, event in chat.events if isinstance(event, StagesChanged)]
    return ["".join(signs[stage.state] for stage in event.stages) for event in events]


@asynccontextmanager
async def playing(tmp_path, *replies, chat=None, **more):
    async with (
        o.FakeOpenAI(list(replies)) as fake,
        serving(tmp_path, settings(fake, **more), chat=chat) as chat,
    ):
        yield chat, fake


async def asked(fake, requests):
    """Wait until the model was asked so often."""
    await until(lambda: len(fake.requests) >= requests)


def stalled():
    return text("never").keep(1, Stall())


def state(data):
    return next(iter(json.loads((data / "playbooks.json").read_text())["runs"].values()))


async def test_the_stages_are_played_in_order_and_the_outcome_is_one_post(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    replies = text('{"severity": "high"}'), text("Wake up: the site is down."), text("Noted.")
    async with playing(tmp_path, *replies) as (chat, fake):
        outcome = await chat.say("/play triage the site is down")
        assert outcome.text == ("**triage**: done\n✓ assess\n✓ page\n✓ note\n\nNoted.")
        assert len(chat.posts) == 1, "one outcome, and nothing else is posted"
        assert chat.outcomes == {"m1": "answered"}
        assess, page, note = prompts(fake)
        assert assess.endswith("What was asked for: the site is down\n\nHow bad is it?")
        assert 'The result of the stage assess:\n{"severity": "high"}' in page
        assert note.endswith("Write a note.")
        assert "response_format" in fake.requests[0].json
        assert "response_format" not in fake.requests[1].json
        assert shown(chat) == [">--", "+>-", "++>", "+++"]


async def test_what_others_say_in_the_message_comes_with_its_words_and_is_no_part_of_them(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    async with playing(tmp_path, text('{"severity": "low"}'), text("Noted.")) as (chat, fake):
        asked = replace(message(1, "/play triage is it bad?"), quoted="> the site is down")
        await chat.sink(asked)
        await chat.settled(asked.id)
    assert ["> > the site is down" in prompt for prompt in prompts(fake)] == [True, True]
    assert ["What was asked for: is it bad?\n" in prompt for prompt in prompts(fake)] == [True, True]


async def test_a_value_of_the_result_chooses_the_next_stage(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    async with playing(tmp_path, text('{"severity": "low"}'), text("Noted.")) as (chat, fake):
        outcome = await chat.say("/play triage\na typo,  \nin two lines")
    assert outcome.text == "**triage**: done\n✓ assess\n○ page\n✓ note\n\nNoted."
    assert "What was asked for: a typo,  \nin two lines\n" in prompts(fake)[0]


REPAIRED = """\
name: release
description: Write release notes.
stages:
  - name: draft
    act: {prompt: Write notes.md.}
    assert: {checks: [{file: notes.md}]}
    next: {success: publish, failure: mend}
    visits: 2
  - name: mend
    act: {prompt: Put it right.}
    next: {success: draft}
    visits: 2
  - name: publish
    act: {prompt: Publish it.}
"""


async def test_a_failed_check_is_repaired_by_the_stage_that_it_leads_to(tmp_path):
    write(tmp_path, "release", REPAIRED)
    written = o.chat_answer(o.Tool("c1", "write_file", {"path": "notes.md", "content": "New."}))
    replies = text("I forgot."), written, text("Mended."), text("Written."), text("Out.")
    async with playing(tmp_path, *replies) as (chat, fake):
        outcome = await chat.say("/play release")
        assert outcome.text == "**release**: done\n✓ draft\n✓ mend\n✓ publish\n\nOut."
        mend = prompts(fake)[1]
        assert "The stage draft failed (assertion): The file notes.md is not there" in mend
        assert shown(chat) == [">--", "x>-", ">+-", "++>", "+++"]


async def test_an_answer_that_does_not_fit_is_asked_for_again_and_then_tried_anew(tmp_path):
    stage = TRIAGE.replace("    next: {value", "    retry: {attempts: 2, from: setup}\n    next: {value")
    write(tmp_path, "triage", stage)
    replies = text("Bad."), text("Very bad."), text('{"severity": "low"}'), text("Noted.")
    async with playing(tmp_path, *replies) as (chat, fake):
        outcome = await chat.say("/play triage x")
        assert outcome.text.startswith("**triage**: done")
        assert "That cannot be used" in prompts(fake)[1], "the model is told once within the attempt"
        third = fake.requests[2].json["messages"]
        assert [_text_of(one["content"]) for one in third if one["role"] == "user"] == [prompts(fake)[2]]
        assert "Your last attempt failed (assertion): the answer is not valid JSON" in prompts(fake)[2]


def unrecoverable(resolution, **retry):
    return f"""\
    name: three
    description: Three stages.
    stages:
      - name: one
        act: {{prompt: First.}}
      - name: two
        act: {{prompt: Second.}}
        assert: {{checks: [{{file: there.txt}}]}}
        unrecoverable: {resolution}
        retry: {json.dumps(retry)}
      - name: three
        act: {{prompt: Third.}}
    """


GONE = "two: The file there.txt is not there: There is no 'there.txt' here."


async def test_abort_says_what_was_done_and_what_not(tmp_path):
    write(tmp_path, "three", unrecoverable("abort"))
    async with playing(tmp_path, text("1"), text("2")) as (chat, _):
        outcome = await chat.say("/play three")
        assert outcome.text.startswith(
            "**three**: ended\n✓ one\n✗ two\n○ three\n\ntwo: The file there.txt is not there"
        )
        assert outcome.text.endswith(
            "Not done: two, three. /play retry [STAGE] or /play skip go on from here."
        )


async def test_an_ended_run_goes_on_where_a_person_wants_it(tmp_path):
    write(tmp_path, "three", unrecoverable("abort"))
    async with playing(tmp_path, text("1"), text("2"), text("2 again"), text("3")) as (chat, _):
        await chat.say("/play three")
        assert (await chat.say("/play retry two")).text.startswith("**three**: ended")
        assert (await chat.say("/play skip")).text == f"**three**: done\n✓ one\n↷ two\n✓ three\n\n{GONE}\n\n3"
        assert (await chat.say("/play skip")).text == "No playbook is under way here. /play lists them."


async def test_a_parked_run_comes_back_by_itself_once_also_after_a_restart(tmp_path):
    write(tmp_path, "three", unrecoverable("retry-later", later_s=60, later=1))
    async with playing(tmp_path, text("1"), text("2")) as (chat, _):
        outcome = await chat.say("/play three")
        assert outcome.text.startswith("**three**: waits\n✓ one\n⏸ two\n○ three\n\ntwo: The file there.txt")
        assert "I try it again at " in outcome.text
        assert (await chat.say("/play three")).text.startswith("three waits here.")
    schedules = tmp_path / "schedules.json"
    [schedule] = (content := json.loads(schedules.read_text()))["schedules"]
    schedule["next_at"] = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    schedules.write_text(json.dumps(content))
    async with playing(tmp_path, text("2 again"), text("3"), chat=chat) as (chat, fake):
        await chat.until(lambda: len(chat.posts) == 3)
        again = chat.posts[-1]
        assert again.text.startswith("⏰ Scheduled by ann: /play retry two\n\n**three**: ended\n✓ one\n✗ two")
        assert len(fake.requests) == 1, "the first stage is not played again"
        assert json.loads(schedules.read_text())["schedules"] == [], (
            "it comes back as often as the playbook says"
        )


async def test_a_failed_tool_reaches_the_stage_as_a_typed_error_that_chooses_the_next(tmp_path):
    write(
        tmp_path,
        "read",
        """\
        name: read
        description: Read a file.
        stages:
          - name: look
            act: {prompt: Read it.}
            next: {success: end, on_error: {not_found: mend}}
          - name: mend
            act: {prompt: Say what is wrong.}
        """,
    )
    missing = o.chat_answer(o.Tool("c1", "read_file", {"path": "gone.txt"}))
    async with playing(tmp_path, missing, text("I could not."), text("It is gone.")) as (chat, fake):
        outcome = await chat.say("/play read")
        assert (
            outcome.text
            == "**read**: done\n✗ look\n✓ mend\n\nlook: There is no 'gone.txt' here.\n\nIt is gone."
        )
        assert "- read_file failed (not_found): There is no 'gone.txt' here." in prompts(fake)[2]


ASKING = """\
name: send
description: Send something.
stages:
  - name: draft
    act: {prompt: Write it.}
    assert: {checks: [{person: "Shall I send this?"}]}
    retry: {attempts: 3}
  - name: send
    act: {prompt: Send it.}
"""


async def test_a_persons_yes_lets_the_stage_pass_and_shows_the_result_first(tmp_path):
    write(tmp_path, "send", ASKING)
    async with playing(tmp_path, text("Dear all"), text("Sent.")) as (chat, _):
        await chat.send("/play send")
        await chat.until(lambda: any(post.choices for post in chat.posts))
        question = chat.posts[0]
        assert question.text == "Shall I send this?\n\nDear all"
        yes, _ = question.choices
        assert (
            await chat.say(yes.command, author=EVE)
        ).text == "This is not yours to decide. Ask whoever runs this bot."
        await chat.say(yes.command)
        await chat.settled("m1")
        assert chat.posts[-1].text == "**send**: done\n✓ draft\n✓ send\n\nSent."


async def test_a_persons_no_is_final(tmp_path):
    write(tmp_path, "send", ASKING)
    async with playing(tmp_path, text("Dear all")) as (chat, fake):
        await chat.send("/play send")
        await chat.until(lambda: any(post.choices for post in chat.posts))
        await chat.say(chat.posts[0].choices[1].command)
        await chat.settled("m1")
        assert chat.posts[-1].text.startswith("**send**: ended\n✗ draft\n○ send\n\ndraft: A person said no.")
        assert len(fake.requests) == 1, "a no is not asked about again"


async def test_a_question_is_open_again_after_a_restart_and_its_stage_is_not_paid_twice(tmp_path):
    write(tmp_path, "send", ASKING)
    async with playing(tmp_path, text("Dear all")) as (chat, _):
        await chat.send("/play send")
        await chat.until(lambda: any(post.choices for post in chat.posts))
    yes = chat.posts[0].choices[0]
    async with playing(tmp_path, text("Sent."), chat=chat) as (chat, fake):
        await chat.say(yes.command)
        await chat.settled("m1")
        assert len(fake.requests) == 1
        assert "(send went on in stage draft.)" in chat.posts[-1].text
        assert chat.posts[-1].text.endswith("**send**: done\n✓ draft\n✓ send\n\nSent.")


async def test_an_outcome_that_only_the_conversation_holds_is_posted_and_not_made_again(
    tmp_path, monkeypatch
):
    write(tmp_path, "triage", TRIAGE)
    append = FileJournal._write

    def refuse(self, data):
        if b'"kind":"intent"' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, data)

    def outcomes():
        files = (tmp_path / "threads").rglob("context.jsonl")
        return [line for file in files for line in file.read_text().splitlines() if "**triage**" in line]

    replies = text('{"severity": "low"}'), text("Noted.")
    with monkeypatch.context() as full:
        full.setattr(FileJournal, "_write", refuse)
        async with playing(tmp_path, *replies) as (chat, _):
            await chat.send("/play triage the site is down")
            await chat.until(outcomes)
    assert not chat.posts
    async with playing(tmp_path, chat=chat) as (chat, fake):
        await chat.settled("m1")
        assert len(chat.posts) == 1
        assert chat.posts[0].text.endswith("**triage**: done\n✓ assess\n○ page\n✓ note\n\nNoted.")
        assert not fake.requests
    assert len(outcomes()) == 1


@pytest.mark.parametrize("stage", [1, 2, 3])
async def test_a_run_goes_on_in_the_stage_in_which_the_process_died(tmp_path, stage):
    write(tmp_path, "three", unrecoverable("skip"))
    done = [text(str(n)) for n in range(1, stage)]
    async with playing(tmp_path, *done, stalled()) as (chat, fake):
        await chat.send("/play three")
        await asked(fake, stage)
    write(tmp_path, "three", "name: changed meanwhile")
    left = [text(str(n)) for n in range(stage, 4)]
    async with playing(tmp_path, *left, chat=chat) as (chat, fake):
        await chat.settled("m1")
        assert len(fake.requests) == 4 - stage, "what passed a border is not done again"
        name = ["one", "two", "three"][stage - 1]
        assert f"(three went on in stage {name}.)" in chat.posts[-1].text
        assert chat.posts[-1].text.endswith(f"**three**: done\n✓ one\n↷ two\n✓ three\n\n{GONE}\n\n3")


@pytest.mark.parametrize("stage", [1, 2])
async def test_deaths_count_from_the_last_border_and_the_third_in_one_stage_is_a_dead_letter(tmp_path, stage):
    write(tmp_path, "three", unrecoverable("skip"))
    chat, before = Chat(), [text("1")] if stage == 2 else []
    for death in range(3):
        replies = [stalled()] if death else [*before, stalled()]
        async with playing(tmp_path, *replies, chat=chat) as (chat, fake):
            if not death:
                await chat.send("/play three")
            await asked(fake, len(replies))
    left = [text(str(n)) for n in range(stage, 4)]
    async with playing(tmp_path, *left, chat=chat) as (chat, fake):
        await chat.settled("m1")
        assert chat.outcomes["m1"] == "dead_letter"
        assert fake.requests == []
        done = await chat.say("/play retry")
        assert done.text.endswith(f"**three**: done\n✓ one\n↷ two\n✓ three\n\n{GONE}\n\n3")
        assert len(fake.requests) == 4 - stage, "a person has it go on where it was"


async def test_a_run_that_comes_further_each_time_is_never_a_dead_letter(tmp_path):
    stages = "".join(f"  - {{name: s{n}, act: {{prompt: 'Do {n}.'}}}}\n" for n in range(6))
    write(tmp_path, "long", f"name: long\ndescription: Long.\nstages:\n{stages}")
    chat = Chat()
    for stage in range(5):
        async with playing(tmp_path, *([text("ok")] if stage else []), stalled(), chat=chat) as (chat, fake):
            if not stage:
                await chat.send("/play long")
            await asked(fake, 2 if stage else 1)
    async with playing(tmp_path, text("ok"), text("ok"), chat=chat) as (chat, fake):
        await chat.settled("m1")
        assert chat.outcomes == {"m1": "answered"}
        assert len(fake.requests) == 2


async def test_a_stop_ends_the_run_until_a_person_takes_it_up(tmp_path):
    write(tmp_path, "three", unrecoverable("skip"))
    async with playing(tmp_path, text("1"), stalled(), text("2"), text("3")) as (chat, fake):
        await chat.send("/play three")
        await asked(fake, 2)
        assert (await chat.say("/play status")).text.startswith(
            "three: in stage two, attempt 1 of 1.\n✓ one\n▸ two"
        )
        assert (await chat.say("/play stop")).text.startswith("Stopped")
        assert chat.outcomes["m1"] == "stopped"
        assert (await chat.say("/play status")).text.startswith("three: stopped in stage two; ")
        assert (await chat.say("/play retry", author=EVE)).text == (
            "Only the person who started the playbook, or an admin, can do that."
        )
        assert (
            await chat.say("/play retry", author=BOSS)
        ).text == f"**three**: done\n✓ one\n↷ two\n✓ three\n\n{GONE}\n\n3"


async def test_a_stage_that_runs_can_be_left_out_or_begun_again(tmp_path):
    write(tmp_path, "three", unrecoverable("abort"))
    async with playing(tmp_path, stalled(), text("1"), stalled(), text("3")) as (chat, fake):
        await chat.send("/play three")
        await asked(fake, 1)
        assert (await chat.say("/play retry")).text == "I go on in stage one."
        await asked(fake, 3)
        assert (await chat.say("/play skip")).text == "I leave out stage two."
        await chat.settled("m1")
        assert chat.posts[-1].text == "**three**: done\n✓ one\n↷ two\n✓ three\n\n3"


class Border:
    """Holds a playbook at the border after its first stage, until ``open`` is set; then it raises ``error``."""

    def __init__(self, monkeypatch, error=None):
        self.reached, self.open, self.error = anyio.Event(), anyio.Event(), error
        save = Runs.save

        async def held(runs, run, carried_out=""):
            first, _ = not self.reached.is_set(), self.reached.set()
            if first:
                await self.open.wait()
                if self.error:
                    raise self.error
            return await save(runs, run, carried_out)

        monkeypatch.setattr(Runs, "save", held)


async def test_a_stop_between_two_stages_stops(tmp_path, monkeypatch):
    write(tmp_path, "three", unrecoverable("skip"))
    border = Border(monkeypatch)
    async with playing(tmp_path, text("1"), text("2"), text("3")) as (chat, fake):
        await chat.send("/play three")
        await border.reached.wait()
        assert (await chat.say("/play stop")).text.startswith("Stopped")
        border.open.set()
        await chat.settled("m1")
        assert chat.outcomes["m1"] == "stopped"
        assert len(fake.requests) == 1


async def test_what_a_person_chooses_between_two_stages_counts(tmp_path, monkeypatch):
    write(tmp_path, "three", unrecoverable("skip"))
    border = Border(monkeypatch)
    async with playing(tmp_path, text("1"), text("1 again"), text("2"), text("3")) as (chat, fake):
        await chat.send("/play three")
        await border.reached.wait()
        assert (await chat.say("/play retry one")).text == "I go on in stage one."
        border.open.set()
        await chat.settled("m1")
        assert len(fake.requests) == 4
        assert chat.posts[-1].text.startswith("**three**: done\n✓ one\n↷ two\n✓ three\n\n")


async def test_a_full_disk_at_a_border_is_told_and_a_person_goes_on_from_there(tmp_path, monkeypatch):
    write(tmp_path, "three", unrecoverable("skip"))
    border = Border(monkeypatch, StoreUnavailable("playbooks.json: No space left on device"))
    border.open.set()
    async with playing(tmp_path, *map(text, "1123")) as (chat, fake):
        told = await chat.say("/play three")
        assert chat.outcomes["m1"] == "failed"
        assert "disk" in told.text or "save" in told.text, told.text
        assert len(fake.requests) == 1
        assert (await chat.say("/play status")).text.startswith("three: stopped in stage one; ")
        assert (await chat.say("/play retry")).text.startswith("**three**: done")
        assert len(fake.requests) == 4


async def test_a_full_disk_at_the_end_of_a_parked_run_loses_no_return(tmp_path, monkeypatch):
    write(tmp_path, "three", unrecoverable("retry-later"))
    add, refusals = Schedules.add, [StoreUnavailable("schedules.json: No space left on device")] * 2

    async def refuse_first(self, new):
        if refusals:
            raise refusals.pop()
        return await add(self, new)

    monkeypatch.setattr(Schedules, "add", refuse_first)
    monkeypatch.setattr("threads.delivery.retry_pauses", lambda: repeat(0.0))
    async with playing(tmp_path, *map(text, "12")) as (chat, _):
        assert "I try it again at " in (await chat.say("/play three")).text
        assert chat.outcomes["m1"] == "answered"
    assert len(json.loads((tmp_path / "schedules.json").read_text())["schedules"]) == 1


async def test_new_and_edit_while_a_stage_runs_change_nothing_and_a_delete_stops_the_run(tmp_path):
    write(tmp_path, "three", unrecoverable("skip"))
    slow = replace(text("1"), steps=(Wait(anyio.Event()), *text("1").steps))
    async with playing(tmp_path, slow) as (chat, fake):
        first = await chat.send("/play three")
        await asked(fake, 1)
        assert (await chat.say("/new")).text.startswith("I still have something to answer here.")
        await chat.sink(Edited(first.id, first.thread, "/play other"))
        await chat.sink(Deleted(first.id, first.thread))
        await chat.settled("m1")
        assert chat.outcomes["m1"] == "withdrawn"
        assert (await chat.say("/play status")).text.startswith("three: stopped in stage one; ")
        assert len(fake.requests) == 1


async def test_a_secret_in_the_words_or_a_result_is_in_no_post(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    key = "sk-ant-api03-" + "a1B2" * 20
    async with playing(tmp_path, text('{"severity": "low"}'), text(f"The key is {key}")) as (chat, _):
        outcome = await chat.say(f"/play triage {key}\nand more")
        assert key not in outcome.text
        assert oct((tmp_path / "playbooks.json").stat().st_mode)[-3:] == "600"


async def test_a_new_conversation_forgets_the_run(tmp_path):
    write(tmp_path, "three", unrecoverable("retry-later"))
    async with playing(tmp_path, text("1"), text("2")) as (chat, _):
        await chat.say("/play three")
        await chat.say("/new")
        assert (await chat.say("/play status")).text == "No playbook is under way here. /play lists them."
        assert json.loads((tmp_path / "schedules.json").read_text())["schedules"] == []


async def test_a_stage_that_takes_too_long_is_a_failure_of_its_own_type(tmp_path):
    write(
        tmp_path,
        "slow",
        """\
        name: slow
        description: Slow.
        stages:
          - name: wait
            act: {prompt: Wait., timeout_s: 0.2}
            next: {success: end, on_error: {timeout: mend}}
          - name: mend
            act: {prompt: Say so.}
        """,
    )
    async with playing(tmp_path, text("hi"), stalled(), text("Too slow.")) as (chat, fake):
        await chat.say("hello")  # the first call loads the SDK, which takes longer than the stage may
        outcome = await chat.say("/play slow")
        assert (
            outcome.text
            == "**slow**: done\n✗ wait\n✓ mend\n\nwait: The stage took longer than 0.2 s.\n\nToo slow."
        )
        assert "The stage wait failed (timeout): The stage took longer than 0.2 s." in prompts(fake)[2]


async def test_the_time_of_the_whole_playbook_ends_it(tmp_path):
    write(tmp_path, "three", unrecoverable("skip").replace("stages:", "limits: {time_s: 3}\n    stages:"))
    async with playing(tmp_path, text("1"), stalled()) as (chat, _):
        outcome = await chat.say("/play three")
        assert outcome.text.startswith("**three**: ended\n✓ one\n✗ two\n")
        assert "\n\ntwo: The time of the playbook is used up.\n\n" in outcome.text


async def test_a_stage_has_the_tools_and_the_model_that_it_names(tmp_path):
    write(
        tmp_path,
        "own",
        """\
        name: own
        description: Own tools.
        stages:
          - name: read
            act: {prompt: Read., tools: [read_file], model: local/other}
          - name: think
            act: {prompt: Think., tools: []}
          - name: all
            act: {prompt: All.}
        """,
    )
    async with playing(tmp_path, text("1"), text("2"), text("3")) as (chat, fake):
        await chat.say("/play own")
        first, second, third = [request.json for request in fake.requests]
        assert [tool["function"]["name"] for tool in first["tools"]] == ["read_file"]
        assert first["model"] == "other"
        assert not second.get("tools")
        assert len(third["tools"]) > 1
        assert third["model"] == "m"


async def test_play_alone_lists_the_playbooks_and_their_faults(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    write(tmp_path, "broken", "name: broken\ndescription: x\nstages: []\n")
    async with playing(tmp_path) as (chat, _):
        listing = (await chat.say("/play")).text
        assert listing.startswith("triage: Triage an incident.\n")
        assert "Not usable: broken.yaml: stages: " in listing
        assert (
            await chat.say("/play triaje")
        ).text == "I know no playbook of that name. Did you mean triage? /play lists them."
        assert chat.outcomes == {"m1": "answered", "m2": "answered"}


async def test_a_person_schedules_a_playbook_and_a_model_cannot(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    tools = {"enabled": ["files", "schedule"], "policy": {"schedule": "allow"}}
    sly = o.chat_answer(o.Tool("c1", "schedule", {"text": "/play triage x", "in_minutes": 1}))
    async with playing(
        tmp_path, sly, text("no"), text('{"severity": "low"}'), text("Noted."), tools=tools
    ) as (chat, fake):
        await chat.say("hello")
        assert "A command cannot be scheduled: only people give commands." in prompts(fake)[1]
        reply = (await chat.say("/play at 0 9 * * 1-5 Europe/Berlin triage check the alerts")).text
        assert reply.startswith("⏰ Scheduled “/play triage check the alerts”, next on ")
        assert (await chat.say("/play at 9 o'clock")).text.startswith("Say /play at, the time, the time zone")
    schedules = tmp_path / "schedules.json"
    [schedule] = (content := json.loads(schedules.read_text()))["schedules"]
    schedule["next_at"] = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    schedules.write_text(json.dumps(content))
    async with playing(tmp_path, text('{"severity": "low"}'), text("Noted."), chat=chat, tools=tools) as (
        chat,
        _,
    ):
        await chat.until(lambda: any("**triage**" in post.text for post in chat.posts))
        assert chat.posts[-1].text.startswith(
            "⏰ Scheduled by ann: /play triage check the alerts\n\n**triage**: done"
        )


SONNET = "anthropic/claude-sonnet-5-5"


def paid(fake, turn_usd=None):
    limits = {"turn": turn_usd, "thread": None, "user_day": None, "day": None, "month": None}
    return {
        "model": SONNET,
        "providers": anthropic(fake.base_url, model_map={}, requests_per_minute=None),
        "budget": {"limit_usd": limits},
        "access": {"admins": [BOSS.id]},
        "max_tokens": 1000,
    }


def costly(usd, where="stages:", extra="limits: {{usd: {}}}\n    stages:"):
    return unrecoverable("abort").replace(where, extra.format(usd))


async def asked_for_money(chat):
    await chat.until(lambda: any(post.choices or post.reply_to for post in chat.posts))
    return next(post for post in chat.posts if post.choices)


@pytest.mark.parametrize("whose", ["stage", "playbook"])
async def test_a_budget_that_ends_mid_way_asks_a_person_and_then_ends_the_run(tmp_path, whose):
    playbook = costly(0.05)
    if whose == "stage":
        playbook = costly(0.001, "prompt: Second.", "prompt: Second., usd: {}")
    write(tmp_path, "three", playbook)
    async with a.FakeAnthropic([a.answer(a.Text("1"))]) as fake, serving(tmp_path, paid(fake)) as chat:
        if whose == "playbook":
            fake.script = [a.answer(a.Text("1"), end_usage={"output_tokens": 3000})]
        await chat.send("/play three")
        question = await asked_for_money(chat)
        assert "The next step may cost up to $" in question.text
        assert len(fake.requests) == 1
        await chat.say(question.choices[1].command, author=BOSS)
        await chat.settled("m1")
        assert chat.posts[-1].text.split("\n\n")[0].endswith("\n✓ one\n✗ two\n○ three")
        assert chat.outcomes["m1"] == "answered"


async def test_a_person_can_grant_a_stage_more(tmp_path):
    write(
        tmp_path, "three", costly(0.001, "prompt: First.", "prompt: First., usd: {}").replace("abort", "skip")
    )
    replies = [a.answer(a.Text(words)) for words in "123"]
    async with a.FakeAnthropic(replies) as fake, serving(tmp_path, paid(fake)) as chat:
        await chat.send("/play three")
        question = await asked_for_money(chat)
        assert fake.requests == []
        await chat.say(question.choices[0].command, author=BOSS)
        await chat.settled("m1")
        assert "✓ one\n↷ two\n✓ three" in chat.posts[-1].text
        assert ", $0.0" in chat.posts[-1].text, "the outcome says what it cost"


async def test_all_stages_together_cost_no_more_than_one_message_may(tmp_path):
    write(tmp_path, "three", unrecoverable("skip"))
    heavy = a.answer(a.Text("1"), end_usage={"output_tokens": 2500})
    async with a.FakeAnthropic([heavy]) as fake, serving(tmp_path, paid(fake, turn_usd=0.04)) as chat:
        await chat.send("/play three")
        await asked_for_money(chat)
        assert len(fake.requests) == 1


async def test_a_command_is_run_by_the_usual_rules_and_its_exit_code_counts(tmp_path):
    write(
        tmp_path,
        "build",
        """\
        name: build
        description: Build it.
        stages:
          - name: make
            act: {prompt: Make it.}
            assert: {checks: [{command: "echo done > made.txt"}, {file: made.txt}, {command: "exit 3", exit_code: 3}]}
            next: {success: fail}
          - name: fail
            act: {prompt: Fail.}
            assert: {checks: [{command: "exit 1"}]}
        """,
    )
    tools = {"enabled": ["files", "shell"], "policy": {"shell(echo *)": "allow"}, "sandbox": "unsafe-host"}
    async with playing(tmp_path, text("1"), text("2"), tools=tools) as (chat, _):
        await chat.send("/play build")
        await chat.until(lambda: any(post.choices or post.reply_to == "m1" for post in chat.posts))
        if "The shell is off" in chat.posts[-1].text:
            pytest.skip("no sandbox here")
        assert "exit 3" in chat.posts[0].text, "the first command is allowed, the second is asked about"
        await chat.say(chat.posts[0].choices[0].command)
        await chat.until(lambda: sum(bool(post.choices) for post in chat.posts) == 2)
        await chat.say([post for post in chat.posts if post.choices][1].choices[0].command)
        await chat.settled("m1")
        assert chat.posts[-1].text.startswith(
            "**build**: ended\n✓ make\n✗ fail\n\nfail: `exit 1` ended with exit code 1, not 0."
        )


async def test_a_message_meanwhile_joins_the_stage_that_runs(tmp_path):
    write(tmp_path, "three", unrecoverable("skip"))
    look = o.chat_answer(o.Tool("c1", "list_files", {"path": "."}))
    gate = anyio.Event()
    slow = replace(look, steps=(Wait(gate), *look.steps))
    async with playing(tmp_path, slow, text("1"), text("2"), text("3")) as (chat, fake):
        await chat.send("/play three")
        await asked(fake, 1)
        await chat.send("mind the gap")
        await chat.send("/play three")
        gate.set()
        await chat.settled("m1", "m2", "m3")
        assert chat.outcomes["m2"] == "merged"
        assert "mind the gap" in prompts(fake)[1]
        assert chat.outcomes["m3"] == "answered", "another playbook waits for its turn"


async def test_why_tells_what_a_playbook_did(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    look = o.chat_answer(o.Tool("c1", "list_files", {"path": "."}))
    async with playing(tmp_path, look, text('{"severity": "low"}'), text("Noted.")) as (chat, _):
        await chat.say("/play triage x")
    told = CliRunner().invoke(main, ["why", "m1", "--data", str(tmp_path)]).output
    assert "list_files" in told


async def test_a_message_that_is_edited_into_a_playbook_plays_it(tmp_path):
    write(tmp_path, "triage", TRIAGE)
    gate = anyio.Event()
    slow = replace(text("hi"), steps=(Wait(gate), *text("hi").steps))
    async with playing(tmp_path, slow, text('{"severity": "low"}'), text("Noted."), busy="queue") as (
        chat,
        fake,
    ):
        await chat.send("hello")
        await asked(fake, 1)
        second = await chat.send("/play triage old")
        await chat.sink(Edited(second.id, second.thread, "/play triage new"))
        gate.set()
        await chat.settled("m1", "m2")
        assert "What was asked for: new" in prompts(fake)[1]
        assert chat.posts[-1].text.startswith("**triage**: done")
