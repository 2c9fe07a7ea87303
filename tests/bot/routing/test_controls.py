"""What people decide in a thread: answers to questions, a second try, and who may say so."""

from dataclasses import replace

import anyio
import pytest

from bot import wording
from bot.ports.errors import ModelUnavailable
from bot.ports.model import Completion, Usage
from tests.bot.routing.conftest import serve
from tests.one_model import OneModel
from tests.world import ANN, Platform, Scripted, calls, message, running, says
from threads.errors import TransportRejected
from threads.model import Answer, Author, Choice, Option, Question, Resumed, Text, TurnLimits, Waiting

BOB = Author("U2", "bob")
MORE = Question(
    "May I?",
    (Option("Yes, $1.00", approve=True, words="1.00"), Option("No", approve=False)),
    lambda who: who == ANN.id,
    about="your word",
)


class AskingModel(OneModel):
    """A model that asks the people of the thread first, and tells what they said."""

    def __init__(self, question: Question = MORE) -> None:
        self.question = question
        self.answers: list[Answer | None] = []

    async def for_turn(self, turn):
        self._turn = turn
        return self

    async def complete(self, request, on_event):
        self.answers.append(await self._turn.ask(self.question))
        return Completion(says(f"told {self.answers[-1]}"), Usage(1, 1), "end")


async def ask(bot, platform: Platform) -> str:
    """Say something that the model asks a question about; return the id of the question."""
    await bot.orchestrator.receive(message())
    return await asked(platform)


async def asked(platform: Platform, count: int = 1) -> str:
    """Wait for a question and return its id."""
    await platform.until(lambda: sum(bool(post.choices) for post in platform.posts) >= count)
    return [post for post in platform.posts if post.choices][count - 1].choices[0].command.split()[1]


async def test_a_question_is_posted_with_its_choices_and_the_answer_comes_back(tmp_path):
    platform, model = Platform(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        question_id = await ask(bot, platform)
        await bot.orchestrator.receive(message(2, f"/approve {question_id} 1.00"))
        await platform.settled("m1", "m2")
    question = platform.posts[0]
    assert (question.text, question.kind) == ("May I?", "notice")
    expected = (Choice("Yes, $1.00", f"/approve {question_id} 1.00"), Choice("No", f"/deny {question_id}"))
    assert question.choices == expected
    assert model.answers == [Answer(approved=True, by="U1", words="1.00")]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("/approve", Answer(approved=True, by="U1")),
        ("/approve 2.50", Answer(approved=True, by="U1", words="2.50")),
        ("!deny", Answer(approved=False, by="U1")),
        ("/deny because it is late", Answer(approved=False, by="U1", words="because it is late")),
    ],
)
async def test_an_answer_needs_no_id_when_there_is_one_question(tmp_path, said, answer):
    platform, model = Platform(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        await ask(bot, platform)
        await bot.orchestrator.receive(message(2, said))
        await platform.settled("m1", "m2")
    assert model.answers == [answer]


async def test_words_that_make_no_sense_leave_the_question_open(tmp_path):
    picky = replace(MORE, fault=lambda words: "" if words in {"", "1.00"} else "I need an amount.")
    platform, model = Platform(), AskingModel(picky)
    async with running(tmp_path, platform, model) as bot:
        await ask(bot, platform)
        await serve(bot, platform, message(2, "/approve abc"))
        await bot.orchestrator.receive(message(3, "/approve 1.00"))
        await platform.settled("m1", "m3")
    assert model.answers == [Answer(approved=True, by="U1", words="1.00")]
    assert next(post.text for post in platform.posts if post.reply_to == "m2") == "I need an amount."


async def test_only_who_may_decide_does_and_only_once(tmp_path):
    platform, model = Platform(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        question_id = await ask(bot, platform)
        await serve(bot, platform, message(2, f"/approve {question_id}", author=BOB))
        assert model.answers == []
        await bot.orchestrator.receive(message(3, f"/deny {question_id}"))
        await bot.orchestrator.receive(message(4, f"/approve {question_id}"))
        await platform.settled("m1", "m3", "m4")
    texts = {post.reply_to: post.text for post in platform.posts if not post.choices}
    assert texts["m2"] == "This is not yours to decide. Ask whoever runs this bot."
    assert texts["m3"] == "All right, I leave it."
    assert texts["m4"] == "There is no question of mine open here, or it was answered already."
    assert model.answers == [Answer(approved=False, by="U1")]


async def test_waiting_for_a_person_holds_no_slot_and_stops_the_clock(tmp_path):
    platform, model = Platform(), AskingModel()
    limits = TurnLimits(running_turns=1, turn_timeout_s=10)
    async with running(tmp_path, platform, model, limits=limits) as bot:
        await ask(bot, platform)
        other = replace(message(9).thread, root="9.0")
        await bot.orchestrator.receive(message(9, thread=other))
        await asked(platform, 2)
        await anyio.sleep(1000)
        await bot.orchestrator.receive(message(2, "/approve"))
        await platform.settled("m1")
    assert platform.outcomes["m1"] == "answered"
    events = [event for message_id, event in platform.events if message_id == "m1"]
    assert Waiting("your word", float("inf")) in events
    assert Resumed() in events


async def test_a_question_that_nobody_answers_is_a_no_after_an_hour(tmp_path):
    platform, model = Platform(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        began = anyio.current_time()
        await serve(bot, platform, message())
        assert anyio.current_time() - began == pytest.approx(Question("", (), bool).within_s, abs=1)
    assert model.answers == [Answer(approved=False, by="")]


async def test_where_nobody_can_answer_nothing_is_asked(tmp_path):
    platform, model = Platform(), AskingModel()
    platform.capabilities = replace(platform.capabilities, asks=False)
    async with running(tmp_path, platform, model) as bot:
        await serve(bot, platform, message())
    assert model.answers == [None]
    assert [post.choices for post in platform.posts] == [()]


async def test_a_stop_ends_a_turn_that_waits_for_a_person(tmp_path):
    platform, model = Platform(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        await ask(bot, platform)
        await bot.orchestrator.receive(message(2, "/stop"))
        await platform.settled("m1", "m2")
        await serve(bot, platform, message(3, "/approve"))
    assert platform.outcomes["m1"] == "stopped"
    assert platform.texts[-1].startswith("There is no question")


async def test_a_button_of_before_a_restart_answers_the_question_that_is_asked_again(tmp_path):
    platform, model = Platform(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        before = await ask(bot, platform)
    async with running(tmp_path, platform, model) as bot:
        await platform.until(lambda: sum(isinstance(event, Waiting) for _, event in platform.events) == 2)
        await bot.orchestrator.receive(message(2, f"/approve {before} 1.00"))
        await platform.settled("m1")
    assert model.answers == [Answer(approved=True, by="U1", words="1.00")]
    assert sum(bool(post.choices) for post in platform.posts) == 1


async def test_a_question_that_cannot_be_found_after_a_restart_is_posted_again_under_its_old_name(tmp_path):
    platform, model = Platform(find=False), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        before = await ask(bot, platform)
    async with running(tmp_path, platform, model) as bot:
        assert await asked(platform, 2) == before
        await bot.orchestrator.receive(message(2, f"/approve {before} 1.00"))
        await platform.settled("m1")
    assert model.answers == [Answer(approved=True, by="U1", words="1.00")]


async def test_an_answer_that_comes_before_the_post_has_returned_counts(tmp_path):
    class Slow(Platform):
        async def post(self, outgoing):
            posted = await super().post(outgoing)
            if outgoing.choices:
                await self.sink(message(2, outgoing.choices[0].command))
                await self.settled("m2")
            return posted

    platform, model = Slow(), AskingModel()
    async with running(tmp_path, platform, model) as bot:
        platform.sink = bot.orchestrator.receive
        await serve(bot, platform, message())
    assert model.answers == [Answer(approved=True, by="U1", words="1.00")]


async def test_the_button_of_one_question_never_answers_another(tmp_path):
    platform, other = Platform(), replace(MORE, text="May I use another model?")
    async with running(tmp_path, platform, AskingModel()) as bot:
        before = await ask(bot, platform)
    model = AskingModel(other)
    async with running(tmp_path, platform, model) as bot:
        assert await asked(platform, 2) != before
        await serve(bot, platform, message(2, f"/approve {before} 1.00"))
        assert model.answers == []


async def test_a_compaction_that_is_asked_for_during_a_turn_waits_for_it_and_is_not_read_by_the_model(
    tmp_path,
):
    platform = Platform()

    async def slow():
        await bot.orchestrator.receive(message(2, "/compact please"))
        return calls("list_files")

    model = Scripted(slow, says("done"))
    async with running(tmp_path, platform, model) as bot:
        await bot.orchestrator.receive(message())
        await platform.settled("m1", "m2")
    assert platform.outcomes == {"m1": "answered", "m2": "answered"}
    assert platform.texts == ["done", "There is nothing here that I could make shorter."]
    assert all(
        "/compact" not in block.text
        for r in model.requests
        for m in r.messages
        for block in m.blocks
        if isinstance(block, Text)
    )


async def test_what_is_to_be_said_once_is_said_although_the_turn_failed(tmp_path):
    class Notes(OneModel):
        async def for_turn(self, turn):
            turn.note("(80 % of the day's budget are spent.)")
            raise ModelUnavailable

    platform = Platform()
    async with running(tmp_path, platform, Notes()) as bot:
        await serve(bot, platform, message())
    assert platform.texts[0].startswith("(80 % of the day's budget are spent.)\n\nI'm having trouble")


async def test_a_turn_that_may_go_on_needs_no_second_slot(tmp_path):
    """Whoever let it go on holds something for it, as a gate does a permit: it must not queue behind others."""
    platform, model = Platform(), AskingModel()
    began = anyio.Event()

    async def forever():
        began.set()
        await anyio.sleep_forever()

    class Both(AskingModel):
        async def complete(self, request, on_event):
            if request.messages[-1].text.endswith("hog"):
                await forever()
            return await super().complete(request, on_event)

    model = Both()
    async with running(tmp_path, platform, model, limits=TurnLimits(running_turns=1)) as bot:
        await ask(bot, platform)
        await bot.orchestrator.receive(message(9, "hog", thread=replace(message(9).thread, root="9.0")))
        await began.wait()
        await bot.orchestrator.receive(message(2, "/approve"))
        await platform.settled("m1")
    assert platform.outcomes["m1"] == "answered"


async def test_what_failed_is_offered_again_and_a_press_answers_it(tmp_path):
    platform, model = Platform(), Scripted(ModelUnavailable("secret"), says("better now"))
    async with running(tmp_path, platform, model) as bot:
        await serve(bot, platform, message(1, "what is 6 times 7?"))
        (choice,) = platform.posts[0].choices
        assert choice == Choice("Try again", "/retry m1")
        await serve(bot, platform, message(2, choice.command))
    assert platform.outcomes == {"m1": "failed", "m2": "answered"}
    assert platform.texts[-1] == "better now"
    assert model.requests[-1].messages[-1].text.endswith("what is 6 times 7?")


async def test_a_retry_of_a_retry_asks_the_first_question_also_after_a_restart(tmp_path):
    platform, model = Platform(), Scripted(ModelUnavailable(), ModelUnavailable(), says("at last"))
    async with running(tmp_path, platform, model) as bot:
        question = replace(message(1, "the question"), quoted="> obey")
        await serve(bot, platform, question, message(2, "/retry"))
    async with running(tmp_path, platform, model) as bot:
        await serve(bot, platform, message(3, platform.posts[-1].choices[0].command))
    assert platform.texts[-1] == "at last"
    others, _, text = model.requests[-1].messages[-1].blocks
    assert (others.outside, text.text) == (True, "the question")


class SlowPlatform(Platform):
    """Holds the posts for the messages in ``held``, and rejects them at the end. A look-up takes longer than a turn."""

    def __init__(self):
        super().__init__()
        self.held = {name: (anyio.Event(), anyio.Event()) for name in ("m1", "m2")}

    async def post(self, outgoing):
        if held := self.held.get(outgoing.reply_to):
            held[0].set()
            await held[1].wait()
            raise TransportRejected("gone")
        return await super().post(outgoing)

    async def find(self, thread, key):
        await anyio.wait_all_tasks_blocked()
        return await super().find(thread, key)


async def test_a_retry_that_failed_before_a_restart_keeps_its_place_when_its_message_cannot_be_retried_now(
    tmp_path,
):
    platform, model = SlowPlatform(), Scripted(ModelUnavailable(), ModelUnavailable(), says("three"))
    async with running(tmp_path, platform, model) as bot:
        await bot.orchestrator.receive(message(1, "one"))
        await platform.held["m1"][0].wait()
        await bot.orchestrator.receive(message(2, "/retry m1"))
        await bot.orchestrator.receive(message(3, "three!"))
        platform.held["m1"][1].set()
        await platform.held["m2"][0].wait()
    platform.held.clear()
    async with running(tmp_path, platform, model):
        await platform.settled("m2", "m3")
    assert platform.outcomes == {"m1": "undelivered", "m2": "failed", "m3": "answered"}
    assert [post.reply_to for post in platform.posts] == ["m2", "m3"]


async def test_an_answer_that_was_on_its_way_keeps_its_place_whatever_the_settings_say_after_a_restart(
    tmp_path,
):
    platform, model = SlowPlatform(), Scripted(says("one"), says("two"))
    async with running(tmp_path, platform, model) as bot:
        await bot.orchestrator.receive(message(1, "one?", author=BOB))
        await platform.held["m1"][0].wait()
        await bot.orchestrator.receive(message(2, "two?"))
    platform.held.clear()
    async with running(tmp_path, platform, model, allowed=lambda event: event.author == ANN):
        await platform.settled("m1", "m2")
    assert platform.outcomes == {"m1": "answered", "m2": "answered"}
    assert [post.text for post in platform.posts] == ["one", "two"]


async def test_a_retry_by_somebody_else_runs_with_the_rights_of_who_wrote_the_text(tmp_path):
    platform, model = Platform(), Scripted(ModelUnavailable(), says("better now"))
    async with running(tmp_path, platform, model) as bot:
        await serve(
            bot, platform, message(1, "delete it all", author=ANN), message(2, "/retry m1", author=BOB)
        )
    assert f"[{ANN.name or ANN.id}" in model.requests[-1].messages[-1].text


async def test_a_retry_with_nothing_to_retry_says_so(tmp_path):
    platform, model = Platform(), Scripted()
    async with running(tmp_path, platform, model) as bot:
        await serve(bot, platform, message(1, "/retry m99"))
    assert platform.texts == [wording.NOTHING_TO_RETRY]
    assert model.requests == []
