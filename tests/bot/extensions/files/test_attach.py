"""Files out: a file of the workspace goes to its own thread, and nothing else goes anywhere."""

import json
import os
from pathlib import Path

import pytest

from bot.config.settings import Settings, Tools
from bot.extensions.files import attach as attach_module
from bot.extensions.files.attach import Attach
from bot.guards.redaction import Masker
from tests.world import T1, Platform, Scripted, inline, message, opened_tools, running, says
from threads.errors import TransportRateLimited, TransportRejected, TransportUnavailable
from threads.model import Message, ToolCall, ToolFinished, ToolStarted
from threads.store.data_folder import thread_folder
from transports.base.transport import Capabilities


class FilePlatform(Platform):
    """A platform that takes files, or refuses them with an error."""

    def __init__(self, *, files=True, fault=None):
        super().__init__()
        self.capabilities = Capabilities(find=True, files=files)
        self.fault, self.files = fault, []

    async def attach(self, thread, key, file, name):
        if self.fault:
            raise self.fault
        self.files.append((thread, key, file.read_bytes(), name))


@pytest.fixture
def workspace(tmp_path):
    folder = thread_folder(tmp_path, T1) / "workspace"
    folder.mkdir(parents=True)
    (folder / "report.pdf").write_bytes(b"%PDF")
    (tmp_path / "secret").write_text("key")
    return folder


async def result_of(data, platform, **arguments):
    model = Scripted(Message("assistant", (ToolCall("c1", "attach", arguments),)), says("done"))
    async with running(data, platform, model, tools=[Attach(inline, Masker())]) as bot:
        await bot.orchestrator.receive(message())
        await platform.settled("m1")
    return json.loads(model.requests[1].messages[-1].results[0].content)


def nothing_open(workspace):
    return not any(
        str(workspace) in str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()
    )


async def test_a_file_is_posted_to_its_own_thread(tmp_path, workspace):
    platform = FilePlatform()
    result = await result_of(tmp_path, platform, path="report.pdf")
    assert result == {"success": True, "result": {"posted": "report.pdf", "size": 4}}
    assert platform.files == [(T1, "fake:W:C1:m1+c1", b"%PDF", "report.pdf")]
    assert nothing_open(workspace)
    tools = [event for _, event in platform.events if isinstance(event, ToolStarted | ToolFinished)]
    assert tools == [
        ToolStarted("attach", "report.pdf", "c1", "attaching report.pdf", "report.pdf"),
        ToolFinished("attach", ok=True, call_id="c1", result=tools[1].result),
    ]
    assert json.loads(tools[1].result)["success"] is True


async def test_a_name_of_its_own_is_made_safe(tmp_path, workspace):
    platform = FilePlatform()
    await result_of(tmp_path, platform, path="./report.pdf", name="../<!here> Q3.pdf")
    assert platform.files[0][3] == "__here_ Q3.pdf"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        *(
            ("permission", path)
            for path in ("../../../../secret", "/etc/passwd", "/workspace/../../secret", ".")
        ),
        *(("permission", path) for path in ("link", "twin", "pipe")),
        ("not_found", "missing"),
        ("validation", "large"),
    ],
)
async def test_only_plain_files_of_the_workspace_can_be_named(tmp_path, workspace, path, kind, monkeypatch):
    monkeypatch.setattr(attach_module, "MAX_ATTACHED", 100)
    (workspace / "link").symlink_to(tmp_path / "secret")
    (workspace / "twin").hardlink_to(tmp_path / "secret")
    os.mkfifo(workspace / "pipe")
    (workspace / "large").write_bytes(b"x" * 101)
    platform = FilePlatform()
    result = await result_of(tmp_path, platform, path=path)
    assert result["error"]["type"] == kind
    assert platform.files == []
    assert nothing_open(workspace)


@pytest.mark.parametrize(
    ("fault", "kind", "word"),
    [
        (None, "permission", "cannot be posted here"),
        (TransportRejected("channel_is_archived"), "permission", "cannot be posted here"),
        (TransportRateLimited("slow"), "unknown", "It was not posted."),
        (TransportUnavailable("cut", maybe_posted=True), "unknown", "may or may not"),
        (ZeroDivisionError("bug"), "unknown", "may or may not"),
    ],
)
async def test_the_model_reads_how_a_post_failed_and_nothing_of_what_the_platform_said(
    tmp_path, workspace, fault, kind, word
):
    platform = FilePlatform(files=fault is not None, fault=fault)
    error = (await result_of(tmp_path, platform, path="report.pdf"))["error"]
    assert error["type"] == kind
    assert (error.get("suggestion") == "Put what matters into your answer.") == (kind == "permission")
    assert platform.outcomes == {"m1": "answered"}
    assert word in error["message"]
    assert str(fault) not in json.dumps(error)


@pytest.mark.parametrize("offered", [True, False])
async def test_the_tool_is_offered_where_a_transport_takes_files(tmp_path, offered):
    settings = Settings(data=tmp_path, tools=Tools(enabled=("files",)))
    async with opened_tools(settings, files=offered) as tool_set:
        assert ("attach" in [spec.name for spec in tool_set.toolbox(settings.tools).specs]) == offered
