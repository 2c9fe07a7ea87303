"""The agent of a turn: made once for each settings, with what they say and nothing more."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import anyio
import pytest

from bot.agent.prompt.instructions import Instructions
from bot.budget.ledger import Ledger
from bot.config.scopes import CurrentSettings, Place
from bot.config.settings import Scope
from bot.guards.redaction import Masker
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.tool import Arguments
from bot.store.model_choice import ModelChoices, ModelsFile
from bot.wiring.agents import Agents
from bot.wiring.model_chain import ModelChain, terms_of
from tests.hostile.bench import open_harness
from tests.world import inline, state_file
from threads.store.disk import PosixDisk

HERE, ELSEWHERE = Place("slack", "T1", "C1", "U1"), Place("slack", "T1", "C2", "U1")
GIVEN = {
    "model": "offline/demo",
    "tools": {"enabled": ["files", "memory"]},
    "scopes": {
        "slack:T1:C1": {
            "system": "You are on call.",
            "tools": {"enabled": ["memory", "web_fetch"]},
            "limits": {"max_steps": 7},
            "budget": {"limit_usd": {"turn": 0.5, "day": 2}},
        }
    },
}
now = partial(datetime.now, UTC)


@asynccontextmanager
async def agents(tmp_path, monkeypatch, **more):
    async with open_harness(tmp_path, monkeypatch, **{**GIVEN, **more}) as harness:
        disk, tools = PosixDisk(), harness.tools
        ledger = Ledger(disk, tmp_path / "usage", offload=inline, now=now)
        current = CurrentSettings(harness.settings)
        chain = ModelChain(
            terms_of(current.at(ELSEWHERE), ledger, tools.toolbox(harness.settings.tools).specs),
            {},
            http=None,
            chosen=ModelChoices(state_file(tmp_path / "models.json", ModelsFile())),
            random=lambda: 0.5,
            now=now,
            observing=Observing(),
            mask=Masker(),
        )
        instructions = Instructions(disk, tmp_path, "bot", {}, anyio.to_thread.run_sync)
        store = SimpleNamespace(workspace=None)
        yield Agents(current, chain, tools, instructions, store, ledger, lambda tell: tell)


def tools_of(agent):
    return {spec.name for spec in agent.tools.specs}


async def test_an_agent_has_the_settings_of_its_place(tmp_path, monkeypatch):
    async with agents(tmp_path, monkeypatch) as made:
        there = await made.agent_for(made.current.at(HERE))
        elsewhere = await made.agent_for(made.current.at(ELSEWHERE))
    assert tools_of(there) == {"remember", "recall", "web_fetch"}
    assert {"read_file", "remember"} < tools_of(elsewhere)
    assert "web_fetch" not in tools_of(elsewhere), "only the scope enables it"
    assert (there.max_steps, elsewhere.max_steps) == (7, 50)
    assert "You are on call." in there.system
    assert "You are on call." not in elsewhere.system
    policy = there.models.terms.accounts.policy
    assert (policy.limits["turn"], policy.limits["day"]) == (500_000, 50_000_000)
    assert policy.day_limits == {"slack:T1:C1": 2_000_000}


async def test_turns_with_the_same_settings_share_all_that_is_costly(tmp_path, monkeypatch):
    async with agents(tmp_path, monkeypatch) as made:
        one = await made.agent_for(made.current.at(HERE))
        other = await made.agent_for(made.current.at(Place("slack", "T1", "C1", "U2")))
        elsewhere = await made.agent_for(made.current.at(ELSEWHERE))
        assert one.models is other.models
        assert one.tools is other.tools
        assert one.system == other.system
        assert one.summaries is elsewhere.summaries
        made.current.replace(made.current.settings.model_copy(update={"max_tokens": 5}))
        changed = await made.agent_for(made.current.at(HERE))
        assert changed.empty.max_tokens == 5
        assert changed.tools is one.tools, "the tools have not changed"


async def test_a_stage_of_work_has_its_own_model_tools_budget_and_steps_on_top(tmp_path, monkeypatch):
    async with agents(tmp_path, monkeypatch) as made:
        stage = Scope.model_validate_json(
            '{"tools": {"enabled": ["files"]}, "limits": {"max_steps": 3}, "budget": {"limit_usd": {"turn": 0.1}}}'
        )
        effective = made.current.at(HERE).override(stage)
        agent = await made.agent_for(effective)
        one_tool = await made.agent_for(effective, {"read_file", "no_such_tool"})
    assert "read_file" in tools_of(agent)
    assert "recall" not in tools_of(agent)
    assert agent.max_steps == 3
    assert agent.models.terms.accounts.policy.limits["turn"] == 100_000
    assert "You are on call." in agent.system
    assert tools_of(one_tool) == {"read_file"}


async def test_a_scope_whose_model_cannot_be_used_is_named(tmp_path, monkeypatch):
    async with agents(tmp_path, monkeypatch) as made:
        scopes = {"user:U1": Scope.model_validate_json('{"model": "openai/gpt-6"}')}
        with pytest.raises(ConfigInvalid, match=r"scopes\.user:U1: env:OPENAI_API_KEY"):
            made.check(made.current.settings.model_copy(update={"scopes": scopes}))
        made.check(made.current.settings)


class Listed:
    """A tool of an MCP server, as its connection lists it."""

    description, risk, arguments = "Does something.", "send", Arguments

    def __init__(self, server, tool="act"):
        self.name, self.server = f"{server}__{tool}", SimpleNamespace(name=server)

    async def __call__(self, arguments, context):
        return "done"


async def test_tools_of_a_server_reach_each_agent_that_may_have_them_also_late(tmp_path, monkeypatch):
    more = {"user:U7": {"tools": {"mcp_servers": ["github"]}}, "user:U8": {"tools": {"mcp_servers": []}}}
    async with agents(tmp_path, monkeypatch, scopes=more) as made:
        places = [ELSEWHERE, *(Place("slack", "T1", "C2", person) for person in ("U7", "U8"))]
        early = [await made.agent_for(made.current.at(place)) for place in places]
        made.tool_set.offer("github", [Listed("github", "old"), Listed("github")])
        made.tool_set.offer("tickets", [Listed("tickets")])
        made.tool_set.offer("github", [Listed("github")])
        specs = early[0].tools.specs
        late = await made.agent_for(made.current.at(places[1]).override(Scope()))
        assert early[0].tools.specs is specs, "the prompt changes when the tools do, and else not"
    everybody, some, none = ({name for name in tools_of(agent) if "__" in name} for agent in early)
    assert everybody == {"github__act", "tickets__act"}
    assert (some, none) == ({"github__act"}, set())
    assert {name for name in tools_of(late) if "__" in name} == some
