"""Search services on loopback, as their documents describe them, and a bot that searches by them."""

import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from tests.fakes import anthropic as a
from tests.fakes.http import FakeHttp, Reply
from tests.serving import KEYS, anthropic, serving

SECRET = "BSA-7f3a9c21d4e8b6f0"
MODEL = "anthropic/claude-x"
PONIES = "https://heath.example/ponies"


class Everywhere:
    def __contains__(self, path):
        return True


class FakeService(FakeHttp):
    """Answers on any path, for the words stand in it."""

    paths = Everywhere()


def answered(body, status=200, **headers):
    sent = (("content-type", "application/json"), *((k.replace("_", "-"), v) for k, v in headers.items()))
    return Reply((json.dumps(body).encode(),), status, sent)


def brave(*results):
    return answered({"type": "search", "web": {"type": "search", "results": list(results)}})


def asked_of(seen):
    """Return the query of a request by GET."""
    return {name: values[0] for name, values in parse_qs(urlsplit(seen.path).query).items()}


def calls(*queries, then="Ponies live there."):
    """Return the model's script: a search for each query, and a text."""
    searches = [a.Tool(f"t{n}", "web_search", {"query": words}) for n, words in enumerate(queries)]
    script = iter([*searches, a.Text(then)])
    return lambda _: a.answer(next(script))


@asynccontextmanager
async def searching(data, service, model, *, tools=None, key=SECRET, **more):
    """Serve a bot that searches by this service; gives the platform and the fake model."""
    async with service, a.FakeAnthropic(model) as fake:
        given = {
            "service": "brave",
            "key": "env:BRAVE_API_KEY",
            "url": service.base_url,
            **more.pop("search", {}),
        }
        settings = {
            "model": MODEL,
            "prices": {MODEL: {"input": 0, "output": 0}},
            "providers": anthropic(fake.base_url),
            "tools": {"enabled": ["files", "web_fetch"], "web_search": given, **(tools or {})},
            **more,
        }
        async with serving(data, settings, environ={**KEYS, "BRAVE_API_KEY": key}) as chat:
            yield chat, fake


def result_of(fake, number=1):
    """Return what the model was told of its search, in its request with this number."""
    [block] = [
        one for one in fake.requests[number].json["messages"][-1]["content"] if one["type"] == "tool_result"
    ]
    return block["content"] if isinstance(block["content"], str) else json.dumps(block["content"])


def charges(data):
    """Return what the ledger has of searches: its kind, micro-dollars and outcome."""
    lines = [
        json.loads(line)
        for file in sorted((data / "usage").glob("*"))
        for line in file.read_bytes().splitlines()
    ]
    mine = [line for line in lines if line.get("call", {}).get("model", "").startswith("web_search/")]
    return [(line["kind"], line["micros"], line.get("outcome")) for line in mine]
