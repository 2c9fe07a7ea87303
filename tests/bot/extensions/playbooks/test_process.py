"""The playbooks that come with the program, on the real process in Slack: as they should go, as they fail, and killed.

The model is a script on loopback. Each of its answers may be given once, so what a restart does twice is seen.
"""

from __future__ import annotations

import json
import signal
from collections import deque
from contextlib import asynccontextmanager

import anyio
import pytest

from bot.extensions.playbooks.folder import examples
from bot.extensions.playbooks.parsing import parse_playbook
from tests.fakes import openai as o
from tests.fakes.http import Stall, error
from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S
from tests.serving import FAST, compatible
from tests.stories.test_run_process import environ, running
from tests.stories.test_run_process import settings as write_settings

FILES = {name.partition(".")[0]: name for name in examples()}
STAGES = {name: parse_playbook(file, examples()[file]).stages for name, file in FILES.items()}

DYING = """
import os, signal
from threads import delivery
from bot.extensions.playbooks.runs import Runs
from bot.cli import main

save, dies = Runs.save, os.environ["DIES"]
delivery.LATE_POST_S = 0.1

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
            (name, told)
            for told in reversed(texts)
            for name, prompt in self._prompts.items()
            if prompt in told
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
        await self.slack.until(lambda: len(self.outcomes(name)) == count)
        return self.outcomes(name)[-1]

    def asked(self, label):
        """Return the first post that has a button with this label and was not decided."""
        return next(
            (post for post in self.posts if any(one.startswith(label) for one in _labels(post))), None
        )

    async def decide(self, label):
        """Press this button of the open question, once it is there and a process can hear of it.

        A process that dies at its next border may be gone before it takes the buttons away.
        """
        question = await self.slack.until(lambda: self.slack.sockets.links and self.asked(label))
        await self.slack.press("U1", question.ts, *_button(question, label))
        await self.slack.until(lambda: not (_buttons(question) and self.slack.sockets.links))

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
        code = {"code": DYING} if dies else {}
        async with running(self._path, environ(self.slack, DIES=dies), **code) as process:
            yield process
        await self.slack.until(lambda: not self.slack.sockets.links)

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
        given["tools"] = {"enabled": ["files", "memory"]}
        free = "prices" not in more
        providers = {"local": {**compatible("local", model.base_url)["local"], "free": free}}
        path.write_text(json.dumps({**given, "providers": providers, **more}))
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
ONE_IN_THE_GATE = ["triage", *(pytest.param(name, marks=pytest.mark.slow) for name in [*SUCCESS][1:])]
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
        assert "ended\n✗ assess\n○ plan\n○ tell\n○ mend\n○ note\n\nassess: " in await aborted.outcome(
            "triage"
        )
        assert "done\n✓ assess\n✗ plan\n○ tell\n○ mend\n✓ note\n" in await declined.outcome("triage")
        assert model.left() == {}
        assert all(len(thread.outcomes("triage")) == 1 for thread in (well, repaired, aborted, declined))


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


@pytest.mark.parametrize("name", ONE_IN_THE_GATE)
async def test_a_kill_inside_each_stage_repeats_nothing_that_was_on_disk(tmp_path, name):
    """Each kill comes while the model writes the last answer of a stage: its tools have run by then."""
    model, written = Model(name, killed=SUCCESS[name]), set()
    async with place(tmp_path, name, model) as bot:
        thread, before = None, ""
        for stage in SUCCESS[name]:
            model.hold, model.holds = {(stage, 1)}, anyio.Event()
            async with bot.run() as process:
                if thread is None:
                    thread = await bot.play(name, "killed")
                elif ASKS[name] == before:
                    await thread.decide("Yes")
                with anyio.fail_after(WITHIN_S):
                    await model.holds.wait()
                process.send_signal(signal.SIGKILL)
                await process.wait()
            assert thread.run()["stage"] == stage
            written |= outputs(bot.data)
            before = stage
        model.hold = ()
        async with bot.run():
            outcome = await thread.outcome(name)
            await over(bot, thread, model, name)
        assert f"({name} went on in stage {stage}.)" in outcome
        assert f"**{name}**: done\n{EVERYTHING_PASSED[name]}\n" in outcome
        assert written == outputs(bot.data), "no file was written again"


@pytest.mark.parametrize("name", ONE_IN_THE_GATE)
async def test_a_kill_on_either_side_of_each_border_plays_no_stage_twice(tmp_path, name):
    model = Model(name, killed=SUCCESS[name])
    async with place(tmp_path, name, model) as bot:
        thread = None
        for stage in SUCCESS[name]:
            for dies in ("before", "after"):
                async with bot.run(dies) as process:
                    thread = thread or await bot.play(name, "killed")
                    if ASKS[name] == stage and dies == "before":
                        await thread.decide("Yes")
                    with anyio.fail_after(WITHIN_S):
                        assert await process.wait() == -signal.SIGKILL
                assert model.answers["killed"][stage] == deque()
                run = thread.run()
                assert (run["stage"] == stage) == (dies == "before")
                assert (stage in run["results"]) == (dies == "after")
        asked = len(model.requests)
        async with bot.run():
            outcome = await thread.outcome(name)
            await over(bot, thread, model, name)
        assert f"**{name}**: done\n{EVERYTHING_PASSED[name]}\n" in outcome
        assert len(model.requests) == asked, "the outcome needs no model"


def outputs(data):
    """Return the files that the model wrote, each as it was written last."""
    found = (path for path in data.glob("threads/**/workspace/*.md") if path.is_file())
    return {(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


async def over(bot, thread, model, name):
    """Check that each answer was given once, one question asked, and one outcome posted."""
    with anyio.fail_after(WITHIN_S):
        while not (ends := settled(bot.data)):
            await anyio.sleep(0.01)
    assert ends == ["answered"]
    assert model.left() == {}
    [question] = [check.person for stage in STAGES[name] for check in stage.assert_.checks if check.person]
    assert len(thread.outcomes(name)) == 1
    assert sum(_words(post).startswith(question) for post in thread.posts) == 1


def settled(data):
    """Return the outcomes of messages in the journal."""
    lines = [
        json.loads(line)
        for line in (data / "journal.jsonl").read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    return [
        line["outcome"] for line in lines if line["kind"] == "settled" and "press" not in line["message_id"]
    ]


PRICES = {"local/m": {"input": 0, "output": 40_000}}
"""An answer of the script costs $0.28, and the next may cost up to $0.40."""


@pytest.mark.parametrize("decision", ["Continue", "Cancel"])
async def test_a_budget_that_ends_mid_way_asks_a_person_also_after_a_kill(tmp_path, decision):
    model = Model("triage", dear=SUCCESS["triage"])
    async with place(tmp_path, "triage", model, prices=PRICES, max_tokens=10) as bot:
        async with bot.run() as process:
            thread = await bot.play("triage", "dear")
            await thread.decide("Yes")
            await bot.slack.until(lambda: thread.asked("Continue"))
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with bot.run():
            await thread.decide(decision)
            outcome = await thread.outcome("triage")
    if decision == "Cancel":
        assert "ended, $0.8400\n✓ assess\n✓ plan\n✗ tell" in outcome
        assert model.left() == {("dear", "tell"): 1}
    else:
        assert "done, $1.1200\n✓ assess\n✓ plan\n✓ tell" in outcome
        assert model.left() == {}
