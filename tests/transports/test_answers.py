"""One set of answers as people read it on Slack, Discord, the page and the terminal.

Beside each ``.md`` file a ``.txt`` file holds what becomes of it. ``UPDATE_GOLDEN=1`` writes them anew; read every change
as the person there would.
"""

import json
import re
from pathlib import Path

import pytest

from tests.transports.golden import golden
from threads.model import Outgoing, ThreadId
from transports.console.render import render
from transports.discord.markdown.render import parts
from transports.slack.markdown.links import Links
from transports.slack.markdown.split import plain, split_markdown
from transports.web.markdown import tree

ANSWERS = Path(__file__).parent / "answers"
LIVE = Links(live=True)
THREAD = ThreadId("console", "local", "main", "main")


def visible(text):
    text = text.replace("\u200b", "⟨200b⟩").replace("\u00a0", "⟨a0⟩")
    return re.sub(r"(?m)[ \t]+$", lambda found: "·" * len(found[0]), text)


def outline(nodes, depth=0):
    """Return a page's tree, a line for each element."""
    for node in nodes:
        if isinstance(node, str):
            yield f"{'  ' * depth}{json.dumps(node, ensure_ascii=False)}"
        else:
            tag, attributes, *children = node
            named = "".join(f" {name}={value}" for name, value in attributes.items())
            yield f"{'  ' * depth}{tag}{named}"
            yield from outline(children, depth + 1)


def everywhere(text):
    shown = split_markdown(text, LIVE)
    return {
        "Slack": "\n⟨next⟩\n".join(shown),
        "Slack, as plain text": "\n⟨next⟩\n".join(map(plain, shown)),
        "Discord": "\n⟨next⟩\n".join(parts(text)),
        "page": "\n".join(outline(tree(text))),
        "terminal": render(Outgoing("k", THREAD, text), 60, colour=False),
    }


@pytest.mark.parametrize("name", sorted(path.stem for path in ANSWERS.glob("*.md")))
def test_an_answer_is_read_as_it_was_meant(name):
    shown = everywhere((ANSWERS / f"{name}.md").read_text(encoding="utf-8"))
    got = visible("".join(f"=== {where}\n{what.strip()}\n" for where, what in shown.items()))
    assert got == golden(ANSWERS / f"{name}.txt", got)


def test_a_long_block_of_code_is_whole_on_all_of_them():
    lines = [f'    print("line {number} of it")  # <@U1> `x`' for number in range(300)]
    answer = "Here it is:\n\n```python\n" + "\n".join(lines) + "\n```\n\nThat is all."
    shown = everywhere(answer)
    del shown["Slack, as plain text"]  # for notifications, and of a bounded length
    for where, what in shown.items():
        flat = re.sub(r"[\s\u200b\\│┆]|⟨next⟩|```(?:python)?", "", what)
        at = 0
        for number in range(300):
            at = flat.find(f"line{number}ofit", at)
            assert at >= 0, f"line {number} on {where}"
        assert flat.endswith(("Thatisall.", '"Thatisall."')), where
