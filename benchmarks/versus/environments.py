"""Throw-away environments for the peers: pinned versions, from whatever registry pip and npm are set up for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

INSTALL_TIMEOUT_S = 900
NANOBOT = {"nanobot-ai": "0.3.5"}
NANOBOT_SLACK = ("aiohttp==3.14.5", "slack-sdk==3.48.0", "slackify-markdown==0.2.4")
"""What its Slack channel needs, which its package does not bring."""

CHAT_SDK = {"chat": "4.41.1", "@chat-adapter/state-memory": "4.41.0"}
CHAT_SDK_SLACK = CHAT_SDK | {"@chat-adapter/slack": "4.41.1"}


class LeftOut(Exception):
    """A contender takes no part; the message says why, in one line."""


def nanobot(peers: Path) -> Sequence[str]:
    """Return the command that runs nanobot's side, installed under *peers* unless it is there already."""
    return [_nanobot_python(peers, ""), "-m", "benchmarks.versus.peers.nanobot"]


def nanobot_on_slack(peers: Path) -> Sequence[str]:
    """Return the command that runs nanobot with its Slack channel."""
    return [_nanobot_python(peers, "-slack", *NANOBOT_SLACK), "-m", "benchmarks.wire.peers.nanobot_slack"]


def _nanobot_python(peers: Path, suffix: str, *more: str) -> str:
    ((package, version),) = NANOBOT.items()
    folder = peers / f"{package}-{version}{suffix}"
    python = folder / "bin" / "python"
    if not _complete(folder):
        shutil.rmtree(folder, ignore_errors=True)
        _install([sys.executable, "-m", "venv", str(folder)], peers)
        _install([str(python), "-m", "pip", "install", "--quiet", f"{package}=={version}", *more], peers)
        _mark_complete(folder)
    return str(python)


def chat_sdk(peers: Path) -> Sequence[str]:
    """Return the command that runs Chat SDK's side, installed under *peers* unless it is there already."""
    return _node(peers, "", CHAT_SDK, Path(__file__).parent / "peers" / "chat_sdk.mjs")


def chat_sdk_on_slack(peers: Path) -> Sequence[str]:
    """Return the command that runs Chat SDK with its Slack adapter."""
    script = Path(__file__).parent.parent / "wire" / "peers" / "chat_sdk_slack.mjs"
    return _node(peers, "-slack", CHAT_SDK_SLACK, script)


def _node(peers: Path, suffix: str, packages: Mapping[str, str], script: Path) -> Sequence[str]:
    tools = {name: shutil.which(name) for name in ("node", "npm")}
    for name, path in tools.items():
        if path is None:
            raise LeftOut(f"{name} is not installed")
    folder = peers / f"chat-{packages['chat']}{suffix}"
    if not _complete(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": dict(packages)}))
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _install([str(tools["npm"]), "install", *quiet], folder)
        _mark_complete(folder)
    # node looks for packages beside the script, not in the working folder
    return [str(tools["node"]), str(shutil.copy(script, folder))]


def environment(home: Path) -> Mapping[str, str]:
    """Return what a measured process sees: a home of its own, and none of the keys and settings of this shell."""
    inherited = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ
    }
    return {**inherited, "HOME": str(home), "NODE_ENV": "test"}


def _install(command: Sequence[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as failed:
        raise LeftOut(f"it could not be installed: {_install_error(failed.stdout)}") from None
    except subprocess.TimeoutExpired:
        raise LeftOut(f"it could not be installed within {INSTALL_TIMEOUT_S} s") from None


def _install_error(output: str) -> str:
    """Return the first line in which pip or npm says what is wrong; those after it are details."""
    lines = _lines(output)
    return next((line for line in lines if line.lower().startswith(("error", "npm error"))), lines[-1])


def last_error(output: str) -> str:
    """Return the line of a failed process's output that says most: the last error, else the last line."""
    lines = _lines(output)
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])


def _lines(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if line.strip()] or ["it says nothing"]


def _complete(folder: Path) -> bool:
    return (folder / "complete").exists()


def _mark_complete(folder: Path) -> None:
    (folder / "complete").touch()
