"""files.*, the upload address and private downloads."""

from __future__ import annotations

import json
import mimetypes
from typing import TYPE_CHECKING

from aiohttp import web

from tests.fakes.slack import rules
from tests.fakes.slack.chat import place, thread
from tests.fakes.slack.records import APP, BOT, BOT_USER, File, Json, Message
from tests.fakes.slack.rules import Refusal
from tests.fakes.slack.web import Args, method, under_fault

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack

LOGIN = "<!DOCTYPE html><html><head><title>Sign in | Slack</title></head><body>Sign in to Fake</body></html>"


@method("files.getUploadURLExternal", "files:write")
def get_upload_url(slack: FakeSlack, args: Args) -> Json:
    name, length = args.need("filename"), args.number("length", 0)
    if length <= 0:
        raise Refusal("invalid_arguments", "length must be greater than 0")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    file = slack.new_file(name, b"", kind, length=length, uploaded=False)
    return {"upload_url": f"{slack.url}/upload/v1/{file.id}", "file_id": file.id}


async def upload(slack: FakeSlack, request: web.Request) -> web.StreamResponse:
    """POST to the upload address: the bytes as they are, or a form with one file. Its faults: "upload"."""
    file = slack.files.get(request.match_info["file"])
    if request.content_type.startswith("multipart/"):
        part = next(iter((await request.post()).values()))
        content = part.file.read() if isinstance(part, web.FileField) else str(part).encode()
    else:
        content = await request.read()

    def keep() -> web.Response:
        if file is None or file.uploaded or len(content) != file.length:
            return web.Response(status=400, text="Bad upload")
        file.content, file.uploaded = content, True
        return web.Response(text=f"OK - {len(content)}")

    return await under_fault(slack, request, "upload", {}, keep)


@method("files.completeUploadExternal", "files:write")
def complete_upload(slack: FakeSlack, args: Args) -> Json:
    """Share uploaded files; the ts of the message that carries them is not told."""
    asked = args.json("files")
    if not isinstance(asked, list) or not asked or not all(isinstance(one, dict) for one in asked):
        raise Refusal("invalid_arguments", "files")
    files = [slack.files.get(one.get("id", "")) for one in asked]
    if None in files:
        raise Refusal("file_not_found")
    for file, one in zip(files, asked, strict=True):
        assert file
        if not file.uploaded:
            raise Refusal("file_upload_not_complete")
        file.title = one.get("title") or file.name
        file.shared = True
    if args.get("channel_id"):
        _share(slack, args, [file for file in files if file])
    return {"files": [{"id": file.id, "title": file.title} for file in files if file]}


def _share(slack: FakeSlack, args: Args, files: list[File]) -> None:
    channel = place(slack, args.need("channel_id"))
    text = args.text("initial_comment")
    message = Message(channel.id, slack.next_ts(), text, BOT_USER, BOT, APP, thread_ts=thread(args))
    message.files = files
    message.subtype = "file_share"
    off = rules.set_off(text)
    message.pings += off.pings
    message.unfurls += off.urls
    slack.put(message)
    slack.echo(message)


async def download(slack: FakeSlack, request: web.Request) -> web.StreamResponse:
    """A private file: without a good token 200 and the login page, as Slack does. Its faults: "download"."""
    file = slack.files.get(request.match_info["file"])
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    slack.downloads.append((request.match_info["file"], token))

    def give() -> web.Response:
        allowed = token in slack.bot_tokens and token not in slack.revoked and "files:read" in slack.scopes
        if not allowed:
            return web.Response(text=LOGIN, content_type="text/html")
        if file is None:
            return web.Response(status=404, text="<h1>Not Found</h1>", content_type="text/html")
        return web.Response(body=file.content, content_type=file.mimetype)

    return await under_fault(slack, request, "download", {"file": request.match_info["file"]}, give)


async def respond(slack: FakeSlack, request: web.Request) -> web.StreamResponse:
    """A POST to a response_url. Its faults: "response_url"."""
    body = json.loads(await request.text())

    def keep() -> web.Response:
        slack.responses.append(body)
        slack.changed()
        return web.json_response({"ok": True})

    return await under_fault(slack, request, "response_url", body, keep)
