"""A real search server for the tests: Debian's searx, whose API is that of SearXNG, over one engine of the test's own.

It is unpacked, not installed: `make searx` does that.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.patience import WITHIN_S
from tests.transports.web.process import ROOT, free_port

PACKAGES = Path(os.environ.get("TEST_SEARX", ROOT / ".searx"))
LIBRARY = PACKAGES / "usr/lib/python3/dist-packages"
PYTHON = Path("/usr/bin/python3")

needs_searx = pytest.mark.skipif(
    not ((LIBRARY / "searx").exists() and PYTHON.exists()),
    reason="no searx: `make searx` unpacks it, and TEST_SEARX can name another folder that has it",
)


@asynccontextmanager
async def searx(folder: Path, engine: str):
    """Serve searx over a JSON engine at this address; gives its own address."""
    port, share = free_port(), PACKAGES / "usr/share/python3-searx"
    settings = {
        "general": {"debug": False, "instance_name": "test"},
        "search": {"safe_search": 0, "autocomplete": "", "ban_time_on_fail": 5, "max_ban_time_on_fail": 120},
        "server": {
            "port": port,
            "bind_address": "127.0.0.1",
            "secret_key": "test",
            "base_url": False,
            "image_proxy": False,
            "http_protocol_version": "1.0",
            "method": "GET",
        },
        "ui": {
            "static_path": str(share / "static"),
            "templates_path": str(share / "templates"),
            "default_theme": "oscar",
            "theme_args": {"oscar_style": "logicodev"},
            "default_locale": "",
        },
        "outgoing": {
            "request_timeout": 2.0,
            "useragent_suffix": "",
            "pool_connections": 4,
            "pool_maxsize": 4,
        },
        "checker": {"off_when_debug": True},
        "engines": [
            {
                "name": "test",
                "engine": "json_engine",
                "shortcut": "t",
                "categories": "general",
                "search_url": f"{engine}/?q={{query}}",
                "results_query": "hits",
                "url_query": "url",
                "title_query": "title",
                "content_query": "content",
                "enable_http": True,
            }
        ],
        "locales": {"en": "English"},
        "doi_resolvers": {"oadoi.org": "https://oadoi.org/"},
        "default_doi_resolver": "oadoi.org",
    }
    (folder / "settings.yml").write_text(json.dumps(settings))
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(LIBRARY),
        "SEARX_SETTINGS_PATH": str(folder / "settings.yml"),
    }
    command, said = [str(PYTHON), "-m", "searx.webapp"], b""
    async with await anyio.open_process(command, env=env, cwd=folder, stderr=subprocess.STDOUT) as process:
        try:
            with anyio.fail_after(WITHIN_S):
                while b"Running on" not in said:
                    said += await process.stdout.receive()
            yield f"http://127.0.0.1:{port}"
        except anyio.EndOfStream:
            raise AssertionError(said.decode()[-2000:]) from None
        finally:
            process.kill()
