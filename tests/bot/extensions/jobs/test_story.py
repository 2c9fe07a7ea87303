"""A turn leaves a job, the thread goes on, and the job's report comes into it."""

from __future__ import annotations

import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import PurePosixPath

import anyio
import pytest

from bot.extensions.jobs import job_turn
from bot.extensions.jobs import jobs as module
from bot.extensions.jobs.jobs import HOW, NONE
from bot.extensions.jobs.records import JobsFile, Slot
from bot.extensions.retention.forget import without_them
from bot.extensions.retention.whom import Whom
from bot.store.layout import kind_of
from tests.fakes import anthropic as a
from tests.fakes.http import Stall
from tests.patience import WITHIN_S, until
from tests.serving import serving
from tests.stories.test_instructions import settings
from tests.world import ANN, T1, message

STARTS = itertools.count(0, 100)
"""Where the ids of messages begin: no process gets one twice."""

LEAVES = a.Tool("t1", "start_job", {"prompt": "Count the ships and report."})


class Model(a.FakeAnthropic):
    """Leaves a job when asked to, and answers the job with what ``job`` yields; ``asked`` has the job's requests."""

    def __init__(self, *job, leaves=LEAVES):
        super().__init__(self._answer)
        self._job, self._leaves, self.asked = list(job), leaves, []

    def _answer(self, seen):
        first, last = seen.json["messages"][0], seen.json["messages"][-1]
        if "Count the ships" in json.dumps(first):
            self.asked.append(seen.json)
            return self._job.pop(0)
        said = json.dumps(last)
        if "in the background" in said and "tool_result" not in said:
            return a.answer(self._leaves)
        return a.answer(a.Text("It runs." if "tool_result" in said else "Hello."))


@asynccontextmanager
async def bot(tmp_path, model, enabled=("files", "jobs"), tools=None, **given):
    priced = {
        "prices": {"anthropic/claude-x": {"input": 1.0, "output": 1.0}},
        "tools": {"enabled": enabled} | (tools or {}),
    }
    async with serving(tmp_path / "data", settings(model) | priced | given) as chat:
        chat.sent = next(STARTS)
        yield chat


async def reports(chat, count=1):
    with anyio.fail_after(WITHIN_S):
        await until(lambda: len(found(chat)) >= count)
    return found(chat)


def found(chat):
    return [post.text for post in chat.posts if "is done:" in post.text]


def stored(tmp_path):
    return JobsFile.model_validate_json((tmp_path / "data" / "jobs.json").read_bytes()).jobs


async def test_the_thread_goes_on_while_a_job_works_and_its_report_comes_into_the_conversation(tmp_path):
    works = a.answer(a.Text("Seven ships.")).keep(1, Stall())
    async with Model(works) as model, bot(tmp_path, model) as chat:
        left = (await chat.say("count them in the background")).text
        assert "runs in the background: “Count the ships and report.”" in left
        assert (await chat.say("hi")).text == "Hello."
        assert "running for 0 min" in (await chat.say("/jobs")).text
    async with Model(a.answer(a.Text("Seven ships."))) as model, bot(tmp_path, model) as chat:
        (report,) = await reports(chat)
        assert report.endswith("Seven ships.")
        await chat.say("and now?")
        told = json.dumps(model.requests[-1].json["messages"])
        assert "It was asked: Count the ships and report." in told
        assert "Seven ships." in told


async def test_a_job_goes_on_after_a_restart_and_repeats_no_step(tmp_path):
    writes = a.Tool("t2", "write_file", {"path": "ships.txt", "content": "7"})
    stalls = a.answer(a.Text("Seven ships.")).keep(1, Stall())
    async with Model(a.answer(writes), stalls) as model, bot(tmp_path, model) as chat:
        await chat.say("count them in the background")
        await until(lambda: len(model.asked) == 2)
    async with Model(a.answer(a.Text("Seven ships."))) as model, bot(tmp_path, model) as chat:
        (report,) = await reports(chat)
        assert report.endswith("Seven ships.")
        assert "ships.txt" in json.dumps(model.asked[0]["messages"]), "it goes on where it was"
    async with Model() as model, bot(tmp_path, model) as chat:
        assert "done" in (await chat.say("/jobs")).text
        assert found(chat) == [], "it is told once"
    (job,) = stored(tmp_path)
    assert (job.state, job.attempts) == ("reported", 2)
    data = tmp_path / "data"
    files = [path.relative_to(data) for path in data.rglob("*") if path.is_file()]
    assert [path for path in files if kind_of(PurePosixPath(path)) is None] == [], "a backup knows them all"
    assert not any(Slot.model_validate_json(path.read_bytes()).kept for path in data.glob("job-*.json"))


async def test_who_is_forgotten_is_in_no_job(tmp_path):
    async with Model(a.answer(a.Text("x")).keep(1, Stall())) as model, bot(tmp_path, model) as chat:
        writes = a.Tool("t2", "write_file", {"path": "ships.txt", "content": "7"})
        model._job.insert(0, a.answer(writes))
        await chat.say("count them in the background")
        await until(lambda: len(model.asked) == 2)
    data = tmp_path / "data"
    assert any(b"ships.txt" in path.read_bytes() for path in data.glob("job-*.json"))
    whom = Whom(person="", thread=str(T1))
    for path in [*data.glob("job*.json")]:
        after, _ = without_them(path.stem, path.read_text(), whom)
        assert "ships" not in after


async def test_a_job_that_is_begun_again_and_again_is_given_up_and_the_thread_is_told(tmp_path):
    for _ in range(module.MOST_ATTEMPTS):
        async with Model(a.answer(a.Text("x")).keep(1, Stall())) as model, bot(tmp_path, model) as chat:
            if not (tmp_path / "data" / "jobs.json").exists():
                await chat.say("count them in the background")
            await until(lambda model=model: model.asked)
    async with Model() as model, bot(tmp_path, model) as chat:
        assert module.GIVEN_UP in (await reports(chat))[0]


async def test_a_job_plays_a_playbook(tmp_path):
    playbook = tmp_path / "data" / "playbooks" / "ships.yaml"
    playbook.parent.mkdir(parents=True)
    playbook.write_text(
        "{name: ships, description: Ships., stages: [{name: count, act: {prompt: Count the ships}}]}"
    )
    leaves = a.Tool("t1", "start_job", {"prompt": "all", "playbook": "ships"})
    async with Model(a.answer(a.Text("Seven.")), leaves=leaves) as model, bot(tmp_path, model) as chat:
        await chat.say("count them in the background")
        assert "**ships**" in (await reports(chat))[0]


async def test_a_job_is_stopped_by_a_word_and_reports_nothing(tmp_path):
    async with Model(a.answer(a.Text("x")).keep(1, Stall())) as model, bot(tmp_path, model) as chat:
        await chat.say("count them in the background")
        await until(lambda: model.asked)
        (job,) = stored(tmp_path)
        assert (await chat.say(f"/jobs stop {job.id}")).text == "Stopped: “Count the ships and report.”"
        assert "stopped" in (await chat.say("/jobs")).text
        assert "No job" in (await chat.say(f"/jobs stop {job.id}")).text
        assert found(chat) == []


async def test_a_job_has_its_own_money_steps_and_time(tmp_path):
    loops = [a.answer(a.Tool(f"t{n}", "list_files", {"path": f"{n}"})) for n in range(3)]
    end = a.answer(a.Text("So far: seven."))
    leaves = a.Tool("t1", "start_job", {"prompt": "Count the ships.", "steps": 3, "usd": 0.5, "minutes": 2})
    async with Model(*loops, end, leaves=leaves) as model, bot(tmp_path, model) as chat:
        await chat.say("count them in the background")
        assert (await reports(chat))[0].endswith("So far: seven.")
        assert len(model.asked) == 4, "three steps, and the last word"
    (job,) = stored(tmp_path)
    assert (job.usd, job.steps, (job.until - job.began_at).total_seconds()) == (0.5, 3, 120)


async def test_a_job_that_would_spend_more_than_it_may_says_so(tmp_path):
    leaves = a.Tool("t1", "start_job", {"prompt": "Count the ships.", "usd": 0.000001})
    async with Model(leaves=leaves) as model, bot(tmp_path, model, budget={"mode": "hard"}) as chat:
        await chat.say("count them in the background")
        assert "spend" in (await reports(chat))[0]
        assert model.asked == []


async def test_a_job_has_the_tools_of_its_thread_but_leaves_no_job_and_asks_nobody(tmp_path):
    deletes = a.Tool("t2", "write_file", {"path": "x", "content": "1"})
    async with (
        Model(a.answer(deletes), a.answer(a.Text("I may not."))) as model,
        bot(tmp_path, model, tools={"policy": {"write_file": "ask"}}) as chat,
    ):
        await chat.say("count them in the background")
        assert (await reports(chat))[0].endswith("I may not.")
    assert "start_job" not in [tool["name"] for tool in model.asked[0]["tools"]]
    assert "nobody" in json.dumps(model.asked[1]["messages"][-1]).lower()


async def test_text_from_outside_stays_that_in_the_job_and_in_its_report(tmp_path):
    async with (
        Model(a.answer(a.Text("Seven."))) as model,
        bot(tmp_path, model, tools={"after_outside_text": "allow"}) as chat,
    ):
        outside = message(50, "count them in the background", T1, ANN)
        await chat.sink(replace(outside, quoted="> Count all of them, it says here."))
        await reports(chat)
    assert job_turn.LEFT_AFTER_OUTSIDE in json.dumps(model.asked[0]["messages"])
    (job,) = stored(tmp_path)
    assert job.outside


@pytest.mark.parametrize("words", ["/jobs", "/jobs stop j1", "/jobs report j1", "/jobs nonsense"])
async def test_where_there_are_none_it_says_so(tmp_path, words):
    async with Model() as model, bot(tmp_path, model) as chat:
        assert (await chat.say(words)).text.endswith((NONE, HOW))
    async with Model() as model, bot(tmp_path, model, enabled=("files",)) as chat:
        assert "that is off" in (await chat.say("/jobs")).text
