"""`threadfast ask` as a process, with the real SDKs against the wire on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import anyio
import pytest

from tests.fakes.http import Reply, Stall, error
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.patience import CODE, WITHIN_S

ROOT = Path(__file__).parents[2]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
FITS = '{"city": "Oslo", "people": 717710}'


class Asking:
    """A folder with settings for a scripted server, which answers with ``says``; `ask` runs the command there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.says, self.asked = folder, list[str | Reply](), anyio.Event()
        self.fake = FakeOpenAI(self._reply)

    def configure(self, *, free: bool = True, **more: object) -> None:
        local = {"kind": "openai-compatible", "base_url": self.fake.base_url, "api_key": None, "free": free}
        settings = {
            "model": "local/llama",
            "providers": {"local": local},
            "models": {"local/third": {"context_window": 100_000}},
            "data": "data",
            **more,
        }
        (self.folder / "settings.json").write_text(json.dumps(settings))
        (self.folder / "schema.json").write_text(json.dumps(SCHEMA))

    def _reply(self, _: object) -> Reply:
        self.asked.set()
        says = self.says.pop(0)
        return chat_answer(Text(says)) if isinstance(says, str) else says

    @property
    def seen(self) -> list[dict]:
        """The requests that the server had."""
        return [request.json for request in self.fake.requests]

    def process(self, *words: str) -> dict:
        """Return what starts the command with these words."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", CODE, "ask", *words]
        return {"command": command, "env": environment, "cwd": self.folder}

    async def ask(self, *words: str, piped: bytes = b"") -> tuple[int, str, str]:
        with anyio.fail_after(WITHIN_S):
            done = await anyio.run_process(**self.process(*words), input=piped, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
async def asking(tmp_path):
    asking = Asking(tmp_path)
    async with asking.fake:
        asking.configure()
        yield asking


def texts(request):
    return [message["content"] for message in request["messages"] if message["role"] != "system"]


async def test_the_answer_alone_is_on_standard_output_and_what_was_piped_is_below_the_question(asking):
    asking.says.append("Two errors.")
    code, answer, notes = await asking.ask("what", "is", "wrong?", piped=b"error 1\nerror 2\n")
    assert code == 0
    assert answer.startswith("Two errors.")
    assert notes == ""
    assert "what is wrong?\n\nerror 1\nerror 2" in str(texts(asking.seen[0])[-1])


async def test_a_question_may_come_from_a_pipe_alone_and_an_empty_one_is_a_wrong_call(asking):
    asking.says.append("Hello.")
    assert (await asking.ask(piped=b"hello"))[0] == 0
    code, answer, notes = await asking.ask()
    assert (code, answer) == (2, "")
    assert "Nothing was asked" in notes


@pytest.mark.parametrize("answer", [FITS, f"```json\n{FITS}\n```"], ids=["plain", "in a fence"])
async def test_an_answer_with_a_schema_is_json_and_nothing_else(asking, answer):
    asking.says.append(answer)
    code, found, notes = await asking.ask("the largest city of Norway", "--schema", "schema.json")
    assert (code, json.loads(found), notes) == (0, json.loads(FITS), "")
    [request] = asking.seen
    assert request["response_format"]["json_schema"]["schema"]["required"] == ["city", "people"]


async def test_a_model_whose_answer_does_not_fit_is_told_why_and_asked_once_more(asking):
    asking.says.append('{"city": "Oslo"}')
    asking.says.append(FITS)
    code, found, _ = await asking.ask("the largest city of Norway", "--schema", "schema.json")
    assert (code, json.loads(found)) == (0, json.loads(FITS))
    again = texts(asking.seen[1])
    assert again[-2] == '{"city": "Oslo"}'
    assert "'people' is a required property" in str(again[-1])


async def test_an_answer_that_never_fits_is_no_answer_and_has_an_exit_code_of_its_own(asking):
    asking.says.append("Oslo.")
    asking.says.append('{"city": 1}')
    code, found, notes = await asking.ask("the largest city of Norway", "--schema", "schema.json")
    assert (code, found) == (4, "")
    assert "did not follow the schema" in notes


async def test_a_model_that_there_is_not_is_refused(asking):
    code, found, notes = await asking.ask("hello", "--model", "nobody/knows")
    assert (code, found) == (78, "")
    assert "nobody" in notes


async def test_a_thread_goes_on_and_a_new_question_knows_nothing_of_it(asking):
    for answer in ("Noted.", "Blue.", "I do not know."):
        asking.says.append(answer)
    await asking.ask("my colour is blue", "--thread", "colours")
    await asking.ask("what is my colour?", "--thread", "colours")
    await asking.ask("what is my colour?")
    assert [len(texts(request)) for request in asking.seen] == [1, 3, 1]
    code, _, notes = await asking.ask("x", "--thread", "a/b")
    assert code == 78
    assert "--thread a/b: A thread's name is" in notes


async def test_the_model_of_the_call_counts_also_in_a_thread_that_chose_another(asking):
    asking.says += ["Hello."] * 2
    assert "local/third answers" in (await asking.ask("/model local/third", "--thread", "t"))[1]
    await asking.ask("hello", "--thread", "t")
    await asking.ask("hello", "--thread", "t", "--model", "local/other")
    assert [request["model"] for request in asking.seen] == ["third", "other"]


async def test_files_go_with_the_question(asking):
    (asking.folder / "notes.txt").write_text("the launch is on Monday")
    asking.says.append("On Monday.")
    code, _, _ = await asking.ask("when?", "--file", "notes.txt")
    assert code == 0
    assert "the launch is on Monday" in str(texts(asking.seen[0]))
    code, _, notes = await asking.ask("when?", "--file", "none.txt")
    assert (code, notes) == (78, "--file none.txt: No such file or directory\n")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "the end is missing"),
        ("[]", "should be an object"),
        ('{"type": "objekt"}', "'objekt' is not valid"),
    ],
)
async def test_a_schema_that_is_none_is_refused_before_anything_is_asked(asking, schema, why):
    (asking.folder / "schema.json").write_text(schema)
    code, _, notes = await asking.ask("x", "--schema", "schema.json")
    assert code == 78
    assert notes.startswith("--schema schema.json: ")
    assert why in notes
    assert asking.seen == []


async def test_what_a_killed_one_left_is_answered_by_the_next_and_not_on_standard_output(asking):
    asking.says += [Reply([Stall()])]
    process = await anyio.open_process(**asking.process("first"), stdin=subprocess.DEVNULL)
    await asking.asked.wait()
    process.kill()
    await process.wait()
    asking.says += ["An answer.", "An answer."]
    code, answer, notes = await asking.ask("second")
    assert (code, answer) == (0, "An answer.\n")
    assert "first" not in answer + notes


async def test_kills_within_calls_cost_their_prompts_and_the_time_to_the_next_start(asking):
    """$0.9 are set aside for each call; three deaths would take more than the half of a turn's and a person's day."""
    asking.configure(
        free=False,
        max_tokens=60_000,
        prices={"local/llama": {"input": 1.0, "output": 15.0, "cache_read": 1.0}},
    )
    for n in range(3):
        asking.says += [Reply([Stall()])] * (n + 1)
        asking.asked = anyio.Event()
        process = await anyio.open_process(**asking.process(f"question {n}"), stdin=subprocess.DEVNULL)
        with anyio.fail_after(WITHIN_S):
            await asking.asked.wait()
        process.kill()
        await process.wait()
        asking.says.clear()
    asking.says += ["An answer."] * 9
    code, answer, notes = await asking.ask("the last one")
    assert (code, answer) == (0, "An answer.\n"), notes
    records = [
        json.loads(line)
        for path in (asking.folder / "data" / "usage").glob("*.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    reserved = {record["seq"]: record for record in records if record["kind"] == "reserve"}
    died = [r for r in records if r["kind"] == "commit" and r["outcome"] == "lifecycle_failure"]
    assert len(died) >= 3
    for end in died:
        call = reserved[end["reserve"]]
        seconds = (datetime.fromisoformat(end["at"]) - datetime.fromisoformat(call["at"])).total_seconds()
        pace = call["pace"]
        assert pace["per_s"] == 500 * 15
        most = pace["at_once"] + (seconds + 1) * pace["per_s"]
        assert most <= end["micros"] <= most + 1 + pace["per_s"] / 1000, (
            "the record's times are whole milliseconds"
        )
        assert end["micros"] < call["micros"], "a start takes less than two minutes"


async def test_what_goes_wrong_is_told_on_standard_error(asking):
    asking.says += [error(400, {"error": {"message": "no"}})]
    code, answer, notes = await asking.ask("hello")
    assert (code, answer) == (1, "")
    assert "My AI provider refused this request, for its form and not for your words." in notes
