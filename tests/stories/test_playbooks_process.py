"""The playbooks that come with the program, on the real process in Slack: as they should go, as they fail, and killed.

The model is a script on loopback. Each of its answers may be given once, so what a restart does twice is seen.
"""

from __future__ import annotations

import json
import signal
from collections import deque
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from bot.playbooks.library import examples
from bot.playbooks.parsing import parse_playbook
from tests.fakes import openai as o
from tests.fakes.http import Stall, error
from tests.fakes.slack import FakeSlack
from tests.serving import FAST, compatible
from tests.stories.test_run_process import environ, running
from tests.stories.test_run_process import settings as write_settings

pytestmark = pytest.mark.anyio

FILES = {name.partition(".")[0]: name for name in examples()}
STAGES = {name: parse_playbook(file, examples()[file]).stages for name, file in FILES.items()}

DYING = """
import os, signal
from bot.playbooks.runs import Runs
from bot.admin.cli import main

save, dies = Runs.save, os.environ["DIES"]

async def save_and_die(self, run, carried_out=""):
    if dies == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    saved = await save(self, run, carried_out)
    os.kill(os.getpid(), signal.SIGKILL)

Runs.save = save_and_die
main()
"""
"""The program, killed at its first border between stages: before the run is stored, or right after."""


def text(words):
    return o.chat_answer(o.Text(words))


def value(**fields):
    return text(json.dumps(fields))


def call(tool, **arguments):
    return o.chat_answer(o.Tool("c1", tool, arguments))


class Model(o.FakeOpenAI):
    """``answers`` has those of each stage, by the word that the playbook is played with.

    A request for an answer of the stages in ``hold`` is not answered, and sets ``holds``.
    """

    def __init__(self, playbook, **answers):
        super().__init__(self._answer)
        self.answers = {
            word: {stage: deque(replies) for stage, replies in stages.items()}
            for word, stages in answers.items()
        }
        self.hold, self.holds = (), anyio.Event()
        self._prompts = {stage.name: stage.act.prompt.strip() for stage in STAGES[playbook]}

    def _answer(self, seen):
        users = [one["content"] for one in seen.json["messages"] if one["role"] == "user"]
        texts = [one if isinstance(one, str) else "\n".join(map(str, one)) for one in map(_parts, users)]
        stage, told = next(
            (name, told) for told in reversed(texts) for name, prompt in self._prompts.items() if prompt in told
        )
        word = next(word for word in self.answers if f"What was asked for: {word}\n" in told)
        replies = self.answers[word].get(stage, deque())
        if (stage, len(replies)) in self.hold:
            self.holds.set()
            return text("never").keep(1, Stall())
        return replies.popleft() if replies else error(400, {"error": {"message": f"{word}: {stage} again"}})

    def left(self):
        """Return the answers that nobody has asked for."""
        return {
            (word, stage): len(replies)
            for word, stages in self.answers.items()
            for stage, replies in stages.items()
            if replies
        }


def _parts(content):
    return content if isinstance(content, str) else [part.get("text", "") for part in content]


class Thread:
    """A thread in which a playbook is played."""

    def __init__(self, slack, root, data):
        self.slack, self.root, self._data = slack, root, data

    @property
    def posts(self):
        return [post for post in self.slack.thread("C1", self.root) if post.ours]

    def outcomes(self, name):
        return [_words(post) for post in self.posts if f"**{name}**" in _words(post)]

    async def outcome(self, name, count=1):
        """Return the last of *count* outcomes, when it is there."""
        await self.slack.until(lambda: len(self.outcomes(name)) == count, 30)
        return self.outcomes(name)[-1]

    def asked(self):
        """Return the first post whose buttons nobody has pressed."""
        return next((post for post in self.posts if "Yes" in _labels(post)), None)

    async def decide(self, label):
        question = await self.slack.until(self.asked, 30)
        await self.slack.press("U1", question.ts, *_button(question, label))
        await self.slack.until(lambda: "Yes" not in _labels(question), 30)

    def run(self):
        """Return the run on disk, or None."""
        path = self._data / "playbooks.json"
        runs = json.loads(path.read_text())["runs"] if path.exists() else {}
        return next((run for thread, run in runs.items() if self.root in thread), None)


def _words(post):
    shown = [block["text"] for block in post.blocks or () if block["type"] == "markdown"]
    return "\n".join(shown) or post.text


def _buttons(post):
    return [one for block in post.blocks or () if block["type"] == "actions" for one in block["elements"]]


def _labels(post):
    return [one["text"]["text"] for one in _buttons(post)]


def _button(post, label):
    found = next(one for one in _buttons(post) if one["text"]["text"].startswith(label))
    return found["action_id"], found["value"]


class Place:
    """A bot's data folder and settings, and its Slack."""

    def __init__(self, slack, path):
        self.slack, self.data = slack, path.parent / "data"
        self._path = path

    @asynccontextmanager
    async def run(self, dies=""):
        links = self.slack.sockets.links
        code = {"code": DYING} if dies else {}
        async with running(self._path, environ(self.slack, DIES=dies), **code) as process:
            if not dies:
                await self.slack.until(lambda: self.slack.sockets.links != links or links, 30)
            yield process

    async def play(self, name, word):
        said = await self.slack.say("U1", "C1", f"<@UBOT> /play {name} {word}").delivered(30)
        return Thread(self.slack, said.ts, self.data)


@asynccontextmanager
async def place(tmp_path, name, model, change=str, **more):
    data = tmp_path / "data"
    (data / "playbooks").mkdir(parents=True, mode=0o700)
    file = data / "playbooks" / FILES[name]
    file.write_text(change(examples()[FILES[name]]))
    file.chmod(0o600)
    async with model, FakeSlack(redeliver_after=(0.0, *[0.5] * 60)) as slack:
        path = write_settings(tmp_path, slack={"api_base_url": slack.api_base_url})
        given = {**json.loads(path.read_text()), **FAST, "model": "local/m", "access": {"admins": ["U1"]}}
        provider = compatible("local", model.base_url)
        path.write_text(json.dumps({**given, "providers": provider, **more}))
        yield Place(slack, path)


ASSESS = value(severity="high", affected="the shop", unknown=[])
INCIDENT = call("write_file", path="incident.md", content="The shop is down.")
NOTES = call("write_file", path="release-notes.md", content="Faster.")
CHANGES = value(changes=[{"kind": "added", "what": "a button"}])
ANN = value(name="Ann", role="engineer", starts="Monday")
CHECKLIST = call("write_file", path="checklist.md", content="1. A laptop.")

SUCCESS = {
    "triage": {
        "assess": [ASSESS],
        "plan": [INCIDENT, text("The plan.")],
        "tell": [text("The shop is down. We are on it.")],
    },
    "release-notes": {
        "collect": [CHANGES],
        "draft": [NOTES, text("Written.")],
        "approve": [text("Faster.")],
        "deliver": [call("attach", path="release-notes.md"), text("Attached.")],
    },
    "onboard": {
        "profile": [ANN],
        "checklist": [CHECKLIST, text("Written.")],
        "confirm": [text("- mail")],
        "welcome": [text("Welcome, Ann!")],
    },
}
ASKS = {"triage": "plan", "release-notes": "approve", "onboard": "confirm"}
EVERYTHING_PASSED = {
    "triage": "✓ assess\n✓ plan\n✓ tell\n○ mend\n○ note",
    "release-notes": "✓ collect\n✓ draft\n✓ approve\n✓ deliver",
    "onboard": "✓ profile\n✓ checklist\n✓ confirm\n✓ welcome",
}


async def test_triage_goes_well_is_repaired_aborted_and_turned_down(tmp_path):
    model = Model(
        "triage",
        well=SUCCESS["triage"],
        repaired={
            **SUCCESS["triage"],
            "plan": [text("No file."), text("Still none."), text("It is there.")],
            "mend": [INCIDENT, text("I wrote it.")],
        },
        aborted={"assess": [text("Bad."), text("Very bad."), text("Awful."), text("So bad.")]},
        declined={**SUCCESS["triage"], "tell": [], "note": [text("Noted.")]},
    )
    async with place(tmp_path, "triage", model) as bot, bot.run():
        well, repaired = await bot.play("triage", "well"), await bot.play("triage", "repaired")
        aborted, declined = await bot.play("triage", "aborted"), await bot.play("triage", "declined")
        await well.decide("Yes")
        await repaired.decide("Yes")
        await declined.decide("No")
        outcome = await well.outcome("triage")
        assert outcome.endswith(f"done\n{EVERYTHING_PASSED['triage']}\n\nThe shop is down. We are on it.")
        assert "done\n✓ assess\n✓ plan\n✓ tell\n✓ mend\n○ note\n" in await repaired.outcome("triage")
        assert "ended\n✗ assess\n○ plan\n○ tell\n○ mend\n○ note\n\nassess: " in await aborted.outcome("triage")
        assert "done\n✓ assess\n✗ plan\n○ tell\n○ mend\n✓ note\n" in await declined.outcome("triage")
        assert model.left() == {}
        await once(well, repaired, aborted, declined, name="triage")


async def once(*threads, name):
    """Say one more thing everywhere: nothing but the one outcome was posted before."""
    for thread in threads:
        assert len(thread.outcomes(name)) == 1
        assert thread.asked() is None


async def test_release_notes_go_well_are_repaired_and_improved_after_a_no(tmp_path):
    model = Model(
        "release-notes",
        well=SUCCESS["release-notes"],
        repaired={
            **SUCCESS["release-notes"],
            "collect": [value(changes=[]), text("None."), CHANGES],
            "draft": [text("Forgotten."), NOTES, text("Written.")],
        },
        declined={
            **SUCCESS["release-notes"],
            "draft": [NOTES, text("Written."), NOTES, text("Written better.")],
            "approve": [text("Fast."), text("Faster.")],
        },
    )
    async with place(tmp_path, "release-notes", model) as bot, bot.run():
        plays = {word: await bot.play("release-notes", word) for word in model.answers}
        await plays["declined"].decide("No")
        for thread in plays.values():
            await thread.decide("Yes")
        for thread in plays.values():
            outcome = await thread.outcome("release-notes")
            assert f"done\n{EVERYTHING_PASSED['release-notes']}\n" in outcome
            assert [file.name for post in thread.posts for file in post.files] == ["release-notes.md"]
        assert model.left() == {}
        await once(*plays.values(), name="release-notes")


async def test_onboarding_goes_well_skips_what_cannot_be_done_and_takes_a_no(tmp_path):
    model = Model(
        "onboard",
        well=SUCCESS["onboard"],
        skipped={**SUCCESS["onboard"], "checklist": [text("Forgotten."), text("Again.")]},
        declined=SUCCESS["onboard"],
    )
    hasty = lambda playbook: playbook.replace("backoff_s: 5", "backoff_s: 0.1")  # noqa: E731
    async with place(tmp_path, "onboard", model, hasty) as bot, bot.run():
        well, skipped, declined = [await bot.play("onboard", word) for word in model.answers]
        await well.decide("Yes")
        await skipped.decide("Yes")
        await declined.decide("No")
        assert f"done\n{EVERYTHING_PASSED['onboard']}\n" in await well.outcome("onboard")
        assert "✓ profile\n↷ checklist\n✓ confirm\n✓ welcome" in await skipped.outcome("onboard")
        assert "✓ profile\n✓ checklist\n✗ confirm\n✓ welcome" in await declined.outcome("onboard")
        assert model.left() == {}
        await once(well, skipped, declined, name="onboard")


async def test_notes_that_cannot_be_written_come_back_by_themselves_after_a_kill(tmp_path):
    """`retry-later`: the run is parked, the process dies, and the next one goes on when the time has come."""
    late = {
        **SUCCESS["release-notes"],
        "draft": [text("Forgotten."), text("Again."), NOTES, text("Written.")],
    }
    async with place(tmp_path, "release-notes", Model("release-notes", late=late)) as bot:
        async with bot.run() as process:
            thread = await bot.play("release-notes", "late")
            outcome = await thread.outcome("release-notes")
            assert "waits\n✓ collect\n⏸ draft\n○ approve\n○ deliver\n\ndraft: The file" in outcome
            process.send_signal(signal.SIGKILL)
            await process.wait()
        bring_forward(bot.data / "schedules.json")
        async with bot.run():
            await thread.decide("Yes")
            outcome = await thread.outcome("release-notes", 2)
            assert f"done\n{EVERYTHING_PASSED['release-notes']}\n" in outcome
            assert json.loads((bot.data / "schedules.json").read_text())["schedules"] == []


def bring_forward(path):
    [schedule] = (content := json.loads(path.read_text()))["schedules"]
    schedule["next_at"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("name", SUCCESS)
async def test_a_kill_inside_each_stage_and_on_both_sides_of_each_border_repeats_nothing(tmp_path, name):
    """No answer of the model is asked for again once it is on disk, no file written twice, no person asked twice."""
    model = Model(name, killed=SUCCESS[name])
    thread = None
    async with place(tmp_path, name, model) as bot:
        for stage in SUCCESS[name]:
            asks = ASKS[name] == stage
            async with bot.run() as process:  # killed while the model writes the last answer of the stage
                model.hold, model.holds = {(stage, 1)}, anyio.Event()
                thread = thread or await bot.play(name, "killed")
                with anyio.fail_after(30):
                    await model.holds.wait()
                process.send_signal(signal.SIGKILL)
                await process.wait()
            model.hold = {}
            assert thread.run()["stage"] == stage
            for dies in ("before", "after"):
                async with bot.run(dies) as process:
                    if asks and dies == "before":
                        await thread.decide("Yes")
                    with anyio.fail_after(30):
                        assert await process.wait() == -signal.SIGKILL
                assert (thread.run()["stage"] == stage) == (dies == "before")
        assert model.left() == {}
        requests = len(model.requests)
        async with bot.run():
            outcome = await thread.outcome(name)
        assert f"**{name}**: done\n{EVERYTHING_PASSED[name]}\n" in outcome
        assert len(model.requests) == requests, "the outcome needs no model"
        assert calls(bot.data) == calls_of(SUCCESS[name])
        assert [line["outcome"] for line in journal(bot.data) if line["kind"] == "settled"][0] == "answered"
        await once(thread, name=name)


def journal(data):
    return [json.loads(line) for line in (data / "journal.jsonl").read_bytes().splitlines()]


def calls(data):
    """Return the tools that ran, as the audit has them."""
    lines = [json.loads(line) for path in sorted((data / "audit").iterdir()) for line in path.open()]
    return [line["details"].get("tool") for line in lines if line["kind"] == "tool"]


def calls_of(stages):
    return []
