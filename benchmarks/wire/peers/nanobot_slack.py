"""nanobot's gateway with its Slack channel, run by the Python of its environment.

Its settings have no address for Slack, so its Web API client gets one here. The rest is as ``nanobot gateway`` starts
it, but that tokens are estimated from bytes, as in versus.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import nanobot.channels.slack.runtime as slack
import nanobot.utils.helpers
from nanobot.cli.entry import main


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _settings() -> dict[str, Any]:
    tokens = {"botToken": os.environ["SLACK_BOT_TOKEN"], "appToken": os.environ["SLACK_APP_TOKEN"]}
    return {
        "providers": {"custom": {"apiBase": os.environ["MODEL_URL"], "apiKey": "none"}},
        "agents": {"defaults": {"provider": "custom", "model": "instant"}},
        "channels": {"slack": {"enabled": True, "allowFrom": ["*"], **tokens}},
        "gateway": {"port": _free_port()},
    }


def _no_encoding() -> Any:
    raise LookupError  # its tokenizer downloads a file first, and without it tries again at every message


if __name__ == "__main__":
    slack.AsyncWebClient = partial(slack.AsyncWebClient, base_url=os.environ["SLACK_API"])
    nanobot.utils.helpers._get_token_encoding = _no_encoding
    file = Path.home() / ".nanobot" / "config.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(_settings()))
    sys.argv = ["nanobot", "gateway", "--foreground"]
    main()
