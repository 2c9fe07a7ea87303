"""`threadfast init`: which model answers."""

import json
from dataclasses import replace

import pytest

from bot.extensions.setup import models
from bot.llm.detect_model import LOCAL_SERVERS
from tests.fakes import openai
from tests.fakes.http import Reply, Stall
from tests.fakes.openai import FakeOpenAI

GOOD, BAD = "sk-good-0123456789", "sk-bad-0123456789"


def init_mine(setup, fake, *arguments, key="", **options):
    """Set up a model of a server of the person's own, with its key in the environment."""
    setup.env = {"MINE_API_KEY": key} if key else {}
    return setup.run("--model", "mine/llama", "--base-url", fake.base_url, "--free", *arguments, **options)


def picky(seen):
    if seen.headers.get("authorization") == f"Bearer {GOOD}":
        return openai.chat_answer(openai.Text("OK"))
    text = f"Incorrect API key provided: {seen.headers.get('authorization')}"
    return openai.fault(401, "invalid_api_key", text)


async def test_with_nothing_there_and_nobody_to_ask_it_says_what_it_would_take(setup):
    done = await setup.run(code=78)
    assert "--yes" in done.stderr
    assert "--model" in done.stderr
    assert setup.tree() == {}


async def test_with_nothing_there_yes_takes_the_demo_says_so_and_pins_nothing(setup):
    done = await setup.run("--yes")
    assert "no language model" in done.stdout
    assert setup.document() == {"$schema": "./settings.schema.json"}
    assert f"threadfast chat --settings {setup.settings}" in done.stdout


async def test_the_demo_is_pinned_only_by_who_chooses_it(setup):
    await setup.run(answers=[""])
    assert "model" not in setup.document()
    setup.env = {"ANTHROPIC_API_KEY": GOOD}
    await setup.run(answers=["3"])
    assert setup.document()["model"] == "offline/demo"


async def test_a_key_in_the_environment_is_proposed_and_one_enter_takes_it(setup, monkeypatch):
    setup.env = {"OPENAI_API_KEY": GOOD}
    async with FakeOpenAI([openai.response_answer(openai.Text("OK"))]) as fake:
        setup.settings.write_text(json.dumps({"providers": {"openai": {"base_url": fake.base_url}}}))
        done = await setup.run(answers=[""])
    assert len(setup.asked) == 1
    assert "OPENAI_API_KEY is set" in done.stdout
    assert setup.document()["model"] == "openai/gpt-6.1-terra"
    assert setup.secrets() == {}
    assert GOOD not in setup.settings.read_text()


async def test_a_local_server_is_found_and_named(setup, monkeypatch):
    def served(seen):
        if seen.method == "GET":
            both = b'{"data": [{"id": "llama", "owned_by": "vllm"}], "version": "0.11.0"}'
            return Reply((both,), headers=(("content-type", "application/json"),))
        return openai.chat_answer(openai.Text("OK"))

    async with FakeOpenAI(served) as fake:
        fake.paths = (*fake.paths, "/v1/models", "/version")
        port = int(fake.base_url.split(":")[2].split("/")[0])
        vllm = next(server for server in LOCAL_SERVERS if server.name == "vllm")
        monkeypatch.setattr(models, "LOCAL_SERVERS", (replace(vllm, port=port),))
        done = await setup.run("--yes")
    assert setup.document()["model"] == "vllm/llama"
    assert setup.document()["providers"] == {"vllm": {"base_url": fake.base_url, "free": True}}
    assert "price" not in done.stdout


@pytest.mark.parametrize(
    "given, written",
    [
        (["--free"], {"free": True}),
        (["--price", "0"], {"free": True}),
        (["--price", "0.5/$1.50"], {"prices": {"mine/llama": {"input": 0.5, "output": 1.5}}}),
        ([], {}),
    ],
    ids=lambda value: " ".join(value) or "nothing",
)
async def test_a_model_that_every_message_would_be_refused_for_is_no_success(setup, given, written):
    async with FakeOpenAI([openai.chat_answer(openai.Text("OK"))] * 2) as fake:
        mine = ["--model", "mine/llama", "--base-url", fake.base_url, "--yes"]
        done = await setup.run(*mine, *given, code=0 if given else 78)
        if not given:
            assert "--free if no model of mine costs anything, or --price INPUT/OUTPUT" in done.stderr
            assert setup.tree() == {}
            return
        document = setup.document()
        expected = {"base_url": fake.base_url, **({"free": True} if "free" in written else {})}
        assert document["providers"]["mine"] == expected
        assert document.get("prices") == written.get("prices")
        assert "price" not in done.stdout
        await setup.run("--yes")  # and it stays so


async def test_a_price_that_nobody_knows_is_asked_for(setup):
    async with FakeOpenAI([openai.chat_answer(openai.Text("OK"))]) as fake:
        mine = ["--model", "mine/llama", "--base-url", fake.base_url]
        done = await setup.run(*mine, answers=["", "cheap", "1/2"])
    assert setup.asked[-1].startswith("Price of mine/llama in USD per million tokens")
    assert "for example 0.50/1.50" in done.stdout
    assert setup.document()["prices"] == {"mine/llama": {"input": 1, "output": 2}}


async def test_a_model_whose_price_is_known_is_not_made_free_by_a_word(setup):
    setup.env = {"ANTHROPIC_API_KEY": GOOD}
    model = ["--model", "anthropic/claude-sonnet-5-5", "--no-verify", "--yes"]
    done = await setup.run(*model, "--free", code=78)
    assert "--free: what anthropic/claude-sonnet-5-5 costs is known already" in done.stderr
    assert setup.tree() == {}


async def test_settings_that_keep_the_bot_from_starting_are_no_success(setup):
    setup.env = {"ANTHROPIC_API_KEY": GOOD}
    done = await setup.run("--model", "ollama/gemma2", "--no-verify", "--yes", code=78)
    assert (
        "ollama/gemma2 cannot call tools; choose another one, or correct models.ollama/gemma2" in done.stderr
    )
    assert setup.tree() == {}


async def test_an_address_without_a_model_is_not_left_out_silently(setup):
    done = await setup.run("--yes", "--base-url", "http://127.0.0.1:1/v1", code=2)
    assert "goes with --model" in done.stderr


async def test_a_list_of_keys_is_tried_and_left_as_it_is(setup, tmp_path):
    async with FakeOpenAI(picky) as fake:
        keys = {"base_url": fake.base_url, "api_keys": ["env:K1", "env:K2"], "free": True}
        setup.settings.write_text(json.dumps({"providers": {"mine": keys}}))
        setup.env = {"K1": GOOD, "K2": GOOD}
        await setup.run("--model", "mine/llama", "--yes")
        assert setup.document()["providers"]["mine"] == keys
        (tmp_path / "key").write_text(GOOD)
        done = await setup.run("--model", "mine/llama", "--yes", "--key-file", str(tmp_path / "key"), code=78)
    assert "providers.mine.api_keys lists several keys; change them there" in done.stderr


async def test_a_key_of_another_kind_is_known_before_it_is_sent(setup):
    done = await setup.run(
        "--model", "anthropic/claude-sonnet-5-5", "--no-verify",
        answers=["xoxb-1-2-3", "sk-proj-abcdef", "two words", "", "sk-ant-api03-good"],
    )  # fmt: skip
    assert "a Slack bot token" in done.stdout
    assert "an OpenAI key" in done.stdout
    assert setup.secrets() == {"anthropic_api_key": "sk-ant-api03-good"}
    assert "xoxb-1-2-3" not in done.output


async def test_where_nobody_can_be_asked_a_key_that_fails_ends_it_with_nothing_written(setup):
    async with FakeOpenAI(picky) as fake:
        done = await init_mine(setup, fake, "--yes", code=78, key=BAD)
    assert "does not accept this key" in done.stderr
    assert BAD not in done.output
    assert setup.tree() == {}


async def test_a_key_that_a_server_repeats_in_its_refusal_is_masked(setup):
    key = "zebra-crossing-4711"
    async with FakeOpenAI([openai.fault(400, None, f"do not like {key}")]) as fake:
        done = await init_mine(setup, fake, "--yes", key=key, code=78)
    assert "do not like [masked]" in done.stderr
    assert key not in done.output


@pytest.mark.parametrize("answers", [[], ["1"], ["1", ""]])
async def test_ctrl_c_leaves_everything_as_it_was(setup, answers):
    setup.settings.write_text('{"name": "Ada"}')
    before = setup.tree()
    await setup.run(answers=answers, code=130)
    assert setup.tree() == before


async def test_a_missing_key_is_named_with_the_flag_that_gives_it(setup):
    done = await setup.run("--yes", "--model", "anthropic/claude-x", code=78)
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "--key-file" in done.stderr


async def test_a_key_can_come_from_a_file(setup, tmp_path):
    key, of_openai = "sk-ant-api03-good", GOOD
    arguments = (
        "--yes",
        "--no-verify",
        "--model",
        "anthropic/claude-sonnet-5-5",
        "--key-file",
        str(tmp_path / "key"),
    )
    for wrong in ("hello", of_openai, "xoxb-1-2-3"):
        (tmp_path / "key").write_text(wrong)
        done = await setup.run(*arguments, code=78)
        assert "Anthropic's key" in done.stderr
        assert wrong not in done.stderr
        assert setup.tree() == {}
    (tmp_path / "key").write_text(f"ANTHROPIC_API_KEY='{key}'\n")
    await setup.run(*arguments)
    assert setup.secrets() == {"anthropic_api_key": key}


@pytest.mark.parametrize("model", ["gpt", "nobody/knows", "offline/other", "../../etc/x"])
async def test_a_model_that_is_none_is_refused(setup, model):
    done = await setup.run("--yes", "--model", model, code=78)
    assert setup.tree() == {}
    assert done.stderr.startswith("--model: ")
    assert "settings.json" not in done.stderr


async def test_a_model_that_its_provider_does_not_know_is_told_with_the_option(setup):
    async with FakeOpenAI([openai.fault(404, "model_not_found", "no such model")]) as fake:
        done = await init_mine(setup, fake, "--yes", code=78)
    assert done.stderr.startswith("--model mine/llama: mine does not have llama")


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [("--base-url", "nonsense", 78), ("--name", "x" * 300, 78), ("--model", "", 2)],
)
async def test_a_faulty_option_is_named(setup, option, value, code):
    more = ("--model", "mine/llama") if option == "--base-url" else ()
    done = await setup.run("--yes", *more, option, value, code=code)
    assert f"{option}: " in done.stderr or f"{option} is empty" in done.stderr
    assert "Correct this in" not in done.stderr
    assert setup.tree() == {}


async def test_broken_settings_are_refused_with_the_fault(setup):
    setup.settings.write_text('{"budget": {"mode": "lax"}}')
    done = await setup.run("--yes", code=78)
    assert "budget.mode" in done.stderr


async def test_json_is_one_document_and_nothing_else(setup):
    done = await setup.run("--json", "--model", "offline/demo")
    document = json.loads(done.stdout)
    assert (document["model"], document["model_answers"]) == ("offline/demo", None)
    assert setup.document()["model"] == "offline/demo"
    assert str(setup.settings) in document["written"]


async def test_name_and_data_are_written_only_where_they_differ(setup, tmp_path):
    await setup.run("--yes", "--name", "threadfast", "--data", str(setup.folder / "data"))
    assert set(setup.document()) == {"$schema"}
    await setup.run("--yes", "--name", "Ada", "--data", str(tmp_path / "big"))
    assert (setup.document()["name"], setup.document()["data"]) == ("Ada", str(tmp_path / "big"))


async def test_a_slow_model_does_not_hold_it_up_for_ever(setup, monkeypatch):
    real = models.verify
    monkeypatch.setattr(models, "verify", lambda *given: real(*given, within_s=0.2))
    async with FakeOpenAI([Reply(silent=(Stall(),))]) as fake:
        done = await init_mine(setup, fake, "--yes", code=78, key=GOOD)
    assert "did not answer in time" in done.stderr
