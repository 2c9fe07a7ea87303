"""Which models may answer, how much they reason, and the keys behind them."""

import re
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot import wording
from bot.budget.accounts import Accounts
from bot.config.load import load_bytes
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.host.model_settings import model_faults, model_warnings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.catalog import Catalog
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.effort import EFFORTS
from bot.ports.errors import AllProvidersFailed
from bot.ports.model import ModelInfo, Request
from bot.store.model_choice import ModelChoices, ModelsFile
from bot.wiring.model_chain import ModelChain, Terms, effort_of
from tests.bot.budget.ledgers import Time, empty_disk, opened
from tests.bot.llm.conftest import user
from tests.fakes import anthropic as a
from tests.tool_context import unheard
from tests.world import T1, T2, message, state_file
from threads.model import Incoming

CLAUDE, OLD = "anthropic/claude-sonnet-5-5", "openai/gpt-4o"
WORD = a.answer(a.Text("OK"))
ENVIRON = {"ONE": "sk-1", "TWO": "sk-2", "OPENAI_API_KEY": "sk-3"}


def settings(base_url=None, **fields) -> Settings:
    keys = {"anthropic": {"api_keys": ["env:ONE", "env:TWO"], "base_url": base_url, "free": True}}
    return Settings.model_validate({"model": CLAUDE, "providers": keys, **fields}, strict=False)


@dataclass
class FakeTurn:
    incoming: Incoming
    attempt: int = 1
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)


@asynccontextmanager
async def chain(tmp_path, given: Settings):
    async with opened(empty_disk(), Time()) as ledger, aclosing(SharedHttp()) as http:
        made = ModelChain(
            Terms(given, Catalog.of(given), Accounts.of(ledger, given.budget), ()),
            ENVIRON,
            http=http,
            chosen=ModelChoices(state_file(tmp_path / "models.json", ModelsFile())),
            random=lambda: 0.5,
            now=Time(),
            observing=Observing(),
            mask=Masker(),
        )
        made.check()
        yield made


@pytest.mark.parametrize(
    ("chosen", "own", "general", "as_model", "as_fallback"),
    [
        (None, None, None, None, None),
        (None, None, "low", "low", "low"),
        (None, "medium", "low", "medium", "medium"),
        ("high", "medium", "low", "high", "medium"),
        ("high", None, "low", "high", "high"),
        ("off", None, None, "off", "off"),
    ],
)
def test_a_person_decides_before_the_model_and_the_model_before_the_rest(
    chosen, own, general, as_model, as_fallback
):
    given = settings(reasoning=general, models={CLAUDE: {"reasoning": own}})
    info = ModelInfo(CLAUDE)
    assert effort_of(given, info, chosen, fallback=False) == as_model
    assert effort_of(given, info, chosen, fallback=True) == as_fallback
    assert effort_of(given, ModelInfo(CLAUDE, efforts=()), chosen, fallback=True) is None


async def test_a_model_that_cannot_reason_as_its_settings_say_keeps_the_bot_from_starting(tmp_path):
    given = settings(models={OLD: {"reasoning": "high"}})
    words = f"models.{OLD}.reasoning: {OLD} cannot reason, so there is nothing to choose; correct models.{OLD}.efforts"
    assert model_faults(given)[0].startswith(words)
    with pytest.raises(ExceptionGroup) as raised:
        async with chain(tmp_path, given):
            pass
    assert raised.group_contains(ConfigInvalid, match="cannot reason")
    assert model_faults(settings(models={OLD: {"reasoning": "high", "efforts": ["high"]}})) == []


def test_the_example_of_the_documentation_is_valid_and_says_nothing_odd():
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    [example] = re.findall(r"## How models are asked\n\n```json\n(.*?)```", page, re.DOTALL)
    given = load_bytes(example.encode(), Path("settings.json"), environ={}).settings
    assert (model_faults(given), model_warnings(given)) == ([], [])


async def test_the_general_setting_does_nothing_where_a_model_cannot_reason(tmp_path):
    given = settings(reasoning="high", model=OLD)
    assert model_faults(given) == []
    assert model_warnings(given) == [f"reasoning: {OLD} cannot reason, so there is nothing to choose"]
    async with chain(tmp_path, given) as models:
        assert models.describe_model(T1) == f"Model: {OLD}."


async def test_each_key_has_a_circuit_of_its_own_and_people_hear_of_it_when_no_key_is_left(tmp_path):
    refused: set[str] = set()

    def answer(seen):
        return a.fault(401, "authentication_error") if seen.headers["authorization"] in refused else WORD

    async with a.FakeAnthropic(answer) as fake:
        given = settings(base_url=fake.base_url)
        async with chain(tmp_path, given) as models:

            async def ask() -> None:
                model = await models.for_turn(FakeTurn(message()))
                await model.complete(Request("", (user("hi"),)), unheard)

            await ask()
            own = fake.requests[0].headers["authorization"]
            refused.add(own)
            await ask()
            number = int(own[-1])
            expected = {f"{CLAUDE}, key {number}": "open", f"{CLAUDE}, key {3 - number}": "closed"}
            assert {one.title: one.state for one in models.circuits()} == expected
            assert models.describe_model(T1) == f"Model: {CLAUDE}."
            refused |= {f"Bearer {secret}" for secret in ENVIRON.values()}
            with pytest.raises(AllProvidersFailed):
                await ask()
            assert {one.state for one in models.circuits()} == {"open"}
            assert "the key is not accepted" in models.describe_model(T1)


async def test_a_choice_is_of_one_thread_and_the_usual_one_takes_it_back(tmp_path):
    async with chain(tmp_path, settings()) as models:
        for effort in EFFORTS:
            await models.choose_model(T1, effort.upper(), ())
            assert models.describe_model(T1) == f"Model: {CLAUDE}, {wording.EFFORTS[effort]}."
            assert models.describe_model(T2) == f"Model: {CLAUDE}."
        assert await models.choose_model(T1, "default", ()) == f"This thread uses {CLAUDE} again."
        assert models.describe_model(T1) == f"Model: {CLAUDE}."
        assert await models.choose_model(T1, "default low", ()) == (
            f"From the next message on, {CLAUDE} answers in this thread, with low reasoning."
        )
