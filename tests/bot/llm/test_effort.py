"""A chosen effort goes into each request of a candidate, unless the model refuses it."""

import pytest

from bot.llm.policies.effort import EffortModel
from bot.ports.errors import BadRequest, ReasoningUnsupported
from tests.bot.llm.conftest import ask
from tests.tool_context import unheard
from tests.world import Scripted, says
from threads.model import TextReset


class Chosen:
    """An effort that is forgotten once it was refused, as the model chain does."""

    def __init__(self, *script, effort="high"):
        self.model, self.effort, self.refused = Scripted(*script), effort, []
        self.asked = EffortModel(self.model, lambda: self.effort, self.refuse)

    def refuse(self, effort):
        self.refused.append(effort)
        self.effort = None

    @property
    def sent(self):
        return [request.reasoning for request in self.model.requests]


@pytest.mark.parametrize("effort", [None, "off", "low", "medium", "high"])
async def test_each_call_is_asked_with_what_was_chosen(effort):
    chosen = Chosen(effort=effort)
    await chosen.asked.complete(ask(), unheard)
    await chosen.asked.complete(ask(), unheard)
    assert chosen.sent == [effort, effort]
    assert chosen.asked.name == "fake/one"


async def test_a_model_that_refuses_it_is_asked_once_more_without_and_never_again_with_it():
    chosen, heard = Chosen(ReasoningUnsupported("no such effort"), says("all the same")), []

    async def hear(event):
        heard.append(event)

    assert (await chosen.asked.complete(ask(), hear)).message.text == "all the same"
    await chosen.asked.complete(ask(), hear)
    assert chosen.sent == ["high", None, None]
    assert chosen.refused == ["high"]
    assert heard[0] == TextReset()


@pytest.mark.parametrize(("error", "effort"), [(ReasoningUnsupported, None), (BadRequest, "high")])
async def test_any_other_refusal_is_raised(error, effort):
    chosen = Chosen(error("no"), effort=effort)
    with pytest.raises(error):
        await chosen.asked.complete(ask(), unheard)
    assert chosen.sent == [effort]
