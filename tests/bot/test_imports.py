"""What is not used is not imported: start-up stays fast."""

import subprocess
import sys

import pytest

IMPORTS = {  # what is imported and done; the libraries that it does without
    "settings build nothing and bring no SDK": (
        "bot.config.load, bot.config.settings as m; assert m.Settings.__pydantic_complete__ is False",
        {"httpx2", "anthropic", "openai", "anyio", "bot.ports.model", "threads.model"},
    ),
    "choosing a model brings no HTTP client": (
        "bot.llm.detect_model",
        {"httpx2", "anthropic", "openai", "h11"},
    ),
    "the chain of models waits for the adapters": (
        "bot.wiring.model_chain",
        {"bot.llm.adapters.sdk", "bot.llm.classify"},
    ),
    "the adapters import no SDK": (
        "bot.extensions.anthropic.messages, bot.extensions.openai.chat, bot.llm.classify, bot.llm.adapters.http_client",
        {"anthropic", "openai", "httpx2"},
    ),
    "who has no skills reads no YAML": (
        "bot.extensions.skills.extension, bot.extensions.skills.tool",
        {"yaml"},
    ),
    "a browser is looked for without playwright": (
        "bot.extensions.browser.session, bot.extensions.browser.tool, bot.extensions.browser.launch as launch; launch.unavailable()",
        {"playwright"},
    ),
    "MCP servers are known without the SDK": (
        "bot.extensions.mcp.servers",
        {"mcp", "mcp_types", "jsonschema", "httpx2"},
    ),
}


@pytest.mark.parametrize(("used", "libraries"), IMPORTS.values(), ids=IMPORTS)
def test_what_is_not_used_is_not_imported(used, libraries):
    code = f"import sys, {used}; print({libraries} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "set()\n"


def test_a_chat_starts_with_no_model_of_pydantic_built_but_those_of_constants():
    code = (
        "import bot.wiring.chat, bot.extensions.playbooks.plays; from pydantic import BaseModel\n"
        "def below(kind):\n    return {kind}.union(*map(below, kind.__subclasses__()))\n"
        "built = {kind.__name__ for kind in below(BaseModel) - {BaseModel} if kind.__pydantic_complete__}\n"
        "print(sorted(built))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "['Failure', 'Provider']\n"
