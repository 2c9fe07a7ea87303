"""Skills are read fresh: a change counts with the next message, without a restart."""

import json

from tests.bot.extensions.skills.test_skills import add, skill_text
from tests.bot.llm.test_prompt_cache import unmarked
from tests.fakes import anthropic as a
from tests.serving import serving
from tests.stories.test_instructions import settings, system_of


async def test_a_skill_that_came_later_is_listed_and_loaded_and_one_that_went_is_not(tmp_path):
    path, enabled = tmp_path / "skills" / "pdf" / "SKILL.md", {"tools": {"enabled": ["skills"]}}
    path.parents[1].mkdir()

    def reply(seen):
        said = seen.json["messages"][-1]["content"][-1].get("text")
        load = a.Tool("t1", "load_skill", {"name": "pdf"})
        return a.answer(load if said == "use it" else a.Text("ok"))

    async with a.FakeAnthropic(reply) as fake, serving(tmp_path, settings(fake) | enabled) as chat:
        await chat.say("one")
        add(path.parents[1], "pdf", skill_text("pdf", body="Turn the pages."))
        await chat.say("use it")
        path.write_text("---\nname: pd")
        await chat.say("half written")
        assert "skill pdf: its front matter has no end" in (await chat.say("/status")).text
        path.unlink()
        await chat.say("gone")
    listed = ["- pdf: Does it." in system_of(seen) for seen in fake.requests]
    assert listed == [False, True, True, True, False]
    assert "Turn the pages." in json.dumps(fake.requests[2].json["messages"][-1])
    assert len({json.dumps(unmarked(seen.json["tools"])) for seen in fake.requests}) == 1
    assert '"skill"' in next((tmp_path / "audit").glob("*.jsonl")).read_text()
