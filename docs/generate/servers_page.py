"""docs/servers.md: the catalogue of model servers as a page."""

from __future__ import annotations

from collections.abc import Iterable

from bot.config.params import FORMS
from docs.generate.servers import ANSWER_MARKS, CALL_MARKS, SERVERS, THOUGHT_MARKS, Mark, Server

HEAD = """# Model servers

Made from the catalogue in `docs/generate/servers.py` by `make docs`; a test fails when it is out of date. Each
wording below is tried in the tests: as a status, as an error in an answer with status 200, and as an event of a
stream, from our own server on loopback. Of real servers llama.cpp was asked about too long, tools and pictures, and a
LiteLLM proxy before it and before a server that refuses `max_tokens` (`make real-servers`). The others were not
asked. Their sources are what people and repositories tell, looked up again; "not found again" stands where that found
nothing. Other wordings of the same meaning are recognised too (`bot/llm/refusals.py`).

**Too long.** If a server says that a conversation is too long, the bot summarises it and goes on in the same turn. If
the request for the summary is too long itself, it asks for one of half as much, up to six times. Only then it asks
the person. If the server names its window, that is kept.

**A part that is refused.** The bot asks once more, without that part or in its other form, and remembers that. It is
one request in 30 days for a model on a server, also over restarts. It is paid for as any other.

**Too little room for the answer.** It is asked again for as much as it has, or for half if it does not say.

**Kept out by settings.** A provider may have the model, but no server of it that the account's settings or `params`
allow. An admin reads that, and the next model is asked.

What was learned is kept for each model at each address, in `servers.json` of the data folder. After 30 days the
server is asked anew, since it may have got other switches. `/status`, `threadfast status` and `threadfast doctor`
show what is known. `providers.NAME.forms` in the settings decides about a part in place of what was learned,
and `models.NAME` about `tools`, `vision` and `context_window`:

```json
{"providers": {"mine": {"forms": {"temperature": "none", "max_tokens": "max_completion_tokens", "tools": "sent"}}}}
```

| a part of a request | its forms |
|---|---|
"""
OTHERS = """| `images` | `sent`, or `none`: text takes their place |
| `tools` | `sent`, or `none`; another model that can be asked is asked instead |
| any other parameter | `sent`, or `none` |
"""
TABLE = """
| server | what it refuses | what then | for whoever runs it |
|---|---|---|---|
"""
WORDINGS = """
## What they say

| server | meaning | wording | source |
|---|---|---|---|
"""


MARKS = """
## Marks in the text

A server that was not told of its model's marks leaves them in the text. Thoughts in these marks are thoughts, not
shown as the answer. A call in them is never made from the text: it is asked for once more in its proper form. If it
comes as text again, whoever runs the server is told which switch it lacks. A mark in code stays text.

| what | first mark | last mark | models | source |
|---|---|---|---|---|
"""


def page() -> str:
    forms = "".join(
        f"| `{part}` | {', '.join(f'`{form}`' for form in takes)} |\n" for part, takes in FORMS.items()
    )
    summary = "".join(_row(name, server) for name, server in SERVERS.items())
    wordings = "".join(line for name, server in SERVERS.items() for line in _wordings(name, server))
    kinds = {"a thought": THOUGHT_MARKS, "an answer": ANSWER_MARKS, "a tool call": CALL_MARKS}
    marks = "".join(line for kind, known in kinds.items() for line in _marks(kind, known))
    return HEAD + forms + OTHERS + TABLE + summary + WORDINGS + wordings + MARKS + marks


def _row(name: str, server: Server) -> str:
    parts = list(dict.fromkeys(part for part, *_ in server.refuses))
    refused = ", ".join([*(["too long"] if server.too_long else []), *(f"`{part}`" for part in parts)])
    then = [*(["a summary"] if server.too_long else []), *dict.fromkeys(map(_instead, parts))]
    return f"| {name} | {refused} | {', '.join(then)} | {server.note} |\n"


def _instead(part: str) -> str:
    others = {
        "max_tokens": "`max_completion_tokens`",
        "system": "`developer` or `user`",
        "images": "text in their place",
    }
    return others.get(part, "left out")


def _wordings(name: str, server: Server) -> list[str]:
    told = [("too long", text, source) for text, source in server.too_long.items()] + list(server.refuses)
    told += [("too little room for the answer", text, source) for text, _, _, source in server.room]
    told += [("kept out by settings", text, source) for text, source in server.withheld.items()]
    return [
        f"| {name} | {meaning} | {text.replace('{window}', '8192').replace('|', '/')} | {source} |\n"
        for meaning, text, source in told
    ]


def _marks(kind: str, marks: Iterable[Mark]) -> list[str]:
    return [
        f"| {kind} | {_code(mark.text)} | {_code(mark.end)} | {mark.models} | {mark.source} |\n"
        for mark in marks
    ]


def _code(mark: str) -> str:
    """Return a mark as code in a table, where a bar would end the cell."""
    return f"`{mark.strip().replace('|', chr(92) + '|')}`" if mark else ""
