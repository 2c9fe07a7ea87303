"""The page's requests. Reading asks for a session; changing asks for its anti-forgery token as well.

| path                 | what it does                                                     |
|----------------------|------------------------------------------------------------------|
| GET /enter           | the page that a one-time link opens                              |
| POST /api/enter      | uses the link                                                    |
| POST /api/leave      | ends the session                                                 |
| GET /sign-in         | signs in as a proxy or a provider says, where the settings name  |
|                      | one; GET /signed-in takes the provider's answer                  |
| GET /                | the page                                                         |
| GET /api/events      | the stream of events                                             |
| GET /api/threads     | the person's threads, newest first, or those with some words     |
| POST /api/threads    | names, pins, archives or deletes one, or takes that back         |
| GET /api/export      | a thread as a file                                               |
| GET /api/earlier     | messages of a thread before those that are shown                 |
| GET /api/models      | the models that a thread may choose, and the one that it has     |
| POST /api/messages   | sends a message; the page chooses its id, so twice is once       |
| POST /api/edit       | edits a message that waits                                       |
| POST /api/again      | sends a message in the place of one that has its outcome: the    |
|                      | conversation goes back to it; 409 while the thread has a turn    |
| POST /api/delete     | deletes a message that waits                                     |
| POST /api/feedback   | a verdict on an answer                                           |
| POST /api/files      | takes a file                                                     |
| POST /api/colours    | returns code in parts, each with the class of its colour         |
| GET /files/...       | a file that the bot posted; with ``?picture`` to be seen, if it is one |
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol
from urllib.parse import quote
from zipfile import ZipFile

import anyio.to_thread
import jinja2
import lucide
from markupsafe import Markup
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from threads.errors import StoreUnavailable
from threads.model import ThreadId, WallClock
from transports.shared.buttons import is_control
from transports.web.address import Address
from transports.web.bodies import (
    CURSOR,
    ROOT,
    AgainBody,
    CodeBody,
    DeleteBody,
    EditBody,
    FeedbackBody,
    LinkBody,
    MessageBody,
    SaidBody,
    read_body,
)
from transports.web.colours import Colours
from transports.web.files import TooLarge, TooMany, picture_type
from transports.web.sessions import Person, Sessions
from transports.web.sign_in import SignIn, SignInRoutes, give_session
from transports.web.stream import Stream
from transports.web.talk import NoSuchThread, StillRunning, Talk, TooManyStreams, TurnBegan, UnknownFile
from transports.web.thread_list import MOST_NOTES, ThreadDeleted, TooManyNotes, Wanted

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
TOKEN = "x-threadfast-token"  # noqa: S105 - the name of a header
LONGEST_SEARCH = 200

EXPORTS = {"md": "text/markdown", "html": "text/html"}

ELSEWHERE = (
    "This file is not at this worker of the bot. Open the page of the worker that posted it, or ask for a shared "
    "folder (transports.web.files)."
)

_ICONS = (
    "archive arrow-up bell chart-column check circle-check circle-x clock copy download ellipsis history keyboard "
    "log-out panel-left paperclip pencil pin refresh-cw search share-2 square square-pen sun-moon thumbs-down "
    "thumbs-up trash-2 x"
)
"""The icons of the page's script, from Lucide."""

SHORTCUTS = {
    "Enter": "Send the message",
    "Shift Enter": "Begin a new line",
    "↑": "Edit the last message, in an empty field",
    "Esc": "Stop the answer",
    "/": "Go to the field, and type a command",
    "n": "New thread",
    "t": "Light or dark",
    "?": "This list",
}
IDEAS = ("What can you do?", "Summarise the file that I attach", "/help")

PICTURE = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=86400, immutable",
}

Endpoint = Callable[[Request], Awaitable[Response]]


@cache
def icons() -> Mapping[str, Markup]:
    """Read the icons, all at once: the library reads its archive anew for each, which takes a third of a second."""
    with ZipFile(Path(lucide.__file__).with_name("lucide.zip")) as drawn:
        return {name: Markup(drawn.read(f"{name}.svg").decode()) for name in _ICONS.split()}  # noqa: S704


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may read and write on the page, and who may look at what others do, by their ids."""

    may_read: Callable[[str], bool]
    is_admin: Callable[[str], bool]


ListModels = Callable[[ThreadId], Awaitable[JsonValue]]


async def no_models(_: ThreadId) -> JsonValue:
    return {"models": [], "chosen": "", "effort": ""}


class About(Protocol):
    """What the page says of the bot: its ``name``, whether it is the ``demo``, and the models of a thread."""

    @property
    def name(self) -> str: ...
    @property
    def demo(self) -> bool: ...
    @property
    def list_models(self) -> ListModels: ...
    @property
    def sign_in(self) -> SignIn | None: ...


class Routes:
    """The page's own requests. ``views`` are more pages, which only admins see, under ``/look``."""

    def __init__(
        self,
        sessions: Sessions,
        talk: Talk,
        address: Address,
        views: Sequence[BaseRoute],
        rights: Rights,
        about: About,
        now: WallClock,
    ) -> None:
        self._sessions, self._talk, self._address = sessions, talk, address
        self._views, self._rights, self._about = views, rights, about
        self._sign_in, self._now = about.sign_in, now
        self.colours = Colours()
        loader = jinja2.FileSystemLoader(HERE / "templates")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)

    def app(self) -> ASGIApp:
        read, change = self._read, self._change
        routes: list[BaseRoute] = [
            Route("/enter", self._enter_page),
            Route("/api/enter", self._enter, methods=["POST"]),
            Route("/api/leave", change(self._leave), methods=["POST"]),
            Route("/", self._page),
            Route("/api/events", read(self._events)),
            Route("/api/threads", read(self._threads)),
            Route("/api/threads", change(self._say_of), methods=["POST"]),
            Route("/api/export", read(self._export)),
            Route("/api/earlier", read(self._earlier)),
            Route("/api/models", read(self._models)),
            Route("/api/messages", change(self._send), methods=["POST"]),
            Route("/api/edit", change(self._edit), methods=["POST"]),
            Route("/api/again", change(self._again), methods=["POST"]),
            Route("/api/delete", change(self._delete), methods=["POST"]),
            Route("/api/feedback", change(self._feedback), methods=["POST"]),
            Route("/api/files", change(self._take_file), methods=["POST"]),
            Route("/api/colours", change(self._colour), methods=["POST"]),
            Route("/files/{thread}/{stored}", read(self._file)),
            Mount("/static", StaticFiles(directory=HERE / "static", packages=[("bot.page", "static")])),
        ]
        if sign_in := self._sign_in:
            may_enter = lambda person: "" if self._rights.may_read(person) else barred(person)  # noqa: E731
            made = SignInRoutes(sign_in, self._sessions, self._address, self._now, self._outside, may_enter)
            routes += [Route("/sign-in", made.begin), Route("/signed-in", made.end)]
        if self._views:
            routes.append(Mount("/look", _AdminsOnly(self._looks(), self._admin)))
        failures = {
            HTTPException: _failed,
            StoreUnavailable: _not_stored,
            OSError: _not_read,
            TooManyStreams: _too_many_streams,
            TurnBegan: _too_late,
            StillRunning: _not_now,
            ThreadDeleted: _deleted,
            NoSuchThread: _no_thread,
            TooManyNotes: _too_many_notes,
            UnknownFile: _no_file,
            ClientDisconnect: _gone,
            Exception: _broken,
        }
        return Starlette(routes=routes, exception_handlers=failures)

    def _looks(self) -> ASGIApp:
        # Its own: what an inner application raises has been answered with a bare error already.
        return Starlette(routes=self._views, exception_handlers={OSError: _not_shown})

    def _person(self, request: Request) -> Person | None:
        person = self._sessions.person(request.cookies.get(self._address.cookie, ""))
        if person and self._sign_in and not self._sign_in.holds(request, person, person.by):
            return None
        return person if person and self._rights.may_read(person.id) else None

    def _admin(self, request: Request) -> bool:
        person = self._person(request)
        return person is not None and self._rights.is_admin(person.id)

    def _read(self, endpoint: Callable[[Request, Person], Awaitable[Response]]) -> Endpoint:
        async def checked(request: Request) -> Response:
            if (person := self._person(request)) is None:
                raise HTTPException(401, "Your session is over. Open a new link.")
            return await endpoint(request, person)

        return checked

    def _change(self, endpoint: Callable[[Request, Person], Awaitable[Response]]) -> Endpoint:
        async def checked(request: Request, person: Person) -> Response:
            cookie = request.cookies.get(self._address.cookie, "")
            if not self._sessions.is_own(cookie, request.headers.get(TOKEN, "")):
                raise HTTPException(403, "This request comes from another page. Reload this one.")
            await self._sessions.touch(cookie)
            return await endpoint(request, person)

        return self._read(checked)

    async def _enter_page(self, request: Request) -> Response:
        # A link on another page may be somebody else's, who wants to read what is written in their name.
        asks = request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}
        person = self._sessions.person(request.cookies.get(self._address.cookie, ""))
        why = barred(person.id) if person and not self._rights.may_read(person.id) else ""
        return self._outside(why, asks=asks)

    def _outside(self, why: str, status: int = 200, *, asks: bool = False) -> Response:
        """Return the page for somebody who has no session."""
        given = {"name": self._about.name, "asks": asks, "why": why, "sign_in": self._sign_in is not None}
        return HTMLResponse(self._templates.get_template("enter.html").render(given), status)

    async def _enter(self, request: Request) -> Response:
        given = await read_body(request, LinkBody)
        now, next_one = self._person(request), self._sessions.person_of(given.link)
        if now and next_one and now.id != next_one.id and not given.sure:
            raise HTTPException(409, f"This browser is {now.id}'s, and the link is for {next_one.id}.")
        if next_one and not self._rights.may_read(next_one.id):
            raise HTTPException(403, barred(next_one.id))
        if (cookie := await self._sessions.enter(given.link)) is None:
            raise HTTPException(403, "This link was used already, or is too old. Ask for a new one.")
        response = JSONResponse({"ok": True})
        give_session(response, self._address, cookie)
        return response

    async def _leave(self, request: Request, _: Person) -> Response:
        await self._sessions.leave(request.cookies.get(self._address.cookie, ""))
        response = JSONResponse({"ok": True})
        response.delete_cookie(
            self._address.cookie, httponly=True, samesite="strict", secure=self._address.secure
        )
        return response

    async def _page(self, request: Request) -> Response:
        if (person := self._person(request)) is None:
            # What comes from the page itself was there just now: its browser keeps no cookies.
            afresh = request.headers.get("sec-fetch-site") != "same-origin"
            by_header = self._sign_in is not None and self._sign_in.header is not None
            return RedirectResponse("/sign-in" if by_header and afresh else "/enter", 303)
        page = self._templates.get_template("page.html").render(
            name=self._about.name,
            person=person.name or person.id,
            token=self._sessions.anti_forgery(request.cookies[self._address.cookie]),
            commands=self._talk.commands,
            looks=bool(self._views) and self._rights.is_admin(person.id),
            most_bytes=self._talk.most_bytes,
            demo=self._about.demo,
            ideas=IDEAS,
            icons=icons(),
            shortcuts=SHORTCUTS,
        )
        return HTMLResponse(page)

    async def _events(self, request: Request, person: Person) -> Response:
        thread = _root(request.query_params["thread"]) if request.query_params.get("thread") else ""
        last_id = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        await self._talk.notes.check(person.id, thread)
        return _Streamed(self._talk.stream(person, thread, last_id, lambda: self._person(request) == person))

    async def _threads(self, request: Request, person: Person) -> Response:
        asked = request.query_params
        if words := asked.get("search", "").strip():
            return JSONResponse(await self._talk.search(person, words[:LONGEST_SEARCH]))
        if not CURSOR.fullmatch(before := asked.get("before", "")):
            raise HTTPException(422, "before: a place in the list")
        wanted = Wanted(archived=asked.get("archived") == "1", before=before)
        return JSONResponse(await self._talk.list_threads(person, wanted))

    async def _say_of(self, request: Request, person: Person) -> Response:
        given = await read_body(request, SaidBody)
        await self._talk.say_of(person, given.thread, given.changes())
        return JSONResponse({"ok": True})

    async def _export(self, request: Request, person: Person) -> Response:
        if (form := request.query_params.get("form", "")) not in EXPORTS:
            raise HTTPException(422, f"form: one of {', '.join(EXPORTS)}")
        title, out = await self._talk.export(person, _root(request.query_params.get("thread", "")), form)
        name = re.sub(r"[^\w-]+", "-", title).strip("-") or "thread"
        named = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}.{form}"}
        return StreamingResponse(out, 200, named, EXPORTS[form], BackgroundTask(out.close))

    async def _earlier(self, request: Request, person: Person) -> Response:
        thread, before = _root(request.query_params.get("thread", "")), request.query_params.get("before", "")
        if not re.fullmatch("[0-9]{1,9}", before):
            raise HTTPException(422, "before: a number of messages")
        return JSONResponse({"events": await self._talk.earlier(person, thread, int(before))})

    async def _models(self, request: Request, person: Person) -> Response:
        thread = _root(request.query_params.get("thread", ""))
        return JSONResponse(await self._about.list_models(self._talk.thread(person, thread)))

    async def _send(self, request: Request, person: Person) -> Response:
        given = await read_body(request, MessageBody)
        files = [(file.id, file.name) for file in given.files]
        await self._talk.send(person, given.thread, given.id, given.text, files)
        return JSONResponse({"ok": True}, 202)

    async def _edit(self, request: Request, person: Person) -> Response:
        given = await read_body(request, EditBody)
        await self._talk.edit(person, given.thread, given.id, given.text)
        return JSONResponse({"ok": True}, 202)

    async def _again(self, request: Request, person: Person) -> Response:
        given = await read_body(request, AgainBody)
        if is_control(given.text):
            raise HTTPException(422, "A command cannot take the place of a message. Send it by itself.")
        await self._talk.again(person, given.thread, given.id, given.message, given.text)
        return JSONResponse({"ok": True}, 202)

    async def _delete(self, request: Request, person: Person) -> Response:
        given = await read_body(request, DeleteBody)
        await self._talk.delete(person, given.thread, given.id)
        return JSONResponse({"ok": True}, 202)

    async def _feedback(self, request: Request, person: Person) -> Response:
        given = await read_body(request, FeedbackBody)
        await self._talk.feedback(person, given.thread, given.id, given.post, given.verdict)
        return JSONResponse({"ok": True}, 202)

    async def _take_file(self, request: Request, person: Person) -> Response:
        name = request.query_params.get("name", "")[:1_000]
        try:
            file = await self._talk.files.take(person.id, name, request.stream())
        except TooLarge as error:
            raise HTTPException(413, f"{name}: at most {self._talk.most_bytes:,} bytes are taken.") from error
        except TooMany as error:
            raise HTTPException(
                429, "Too many files wait already. Send a message with them first."
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"web file: {error}") from error
        return JSONResponse({"id": file.id, "name": file.name, "size": file.size})

    async def _colour(self, request: Request, _: Person) -> Response:
        given = await read_body(request, CodeBody)
        return JSONResponse({"parts": await self.colours.of(given.language, given.code)})

    async def _file(self, request: Request, person: Person) -> Response:
        thread, stored = _root(request.path_params["thread"]), request.path_params["stored"]
        await self._talk.notes.check(person.id, thread)
        path = self._talk.posted_file(person, thread, stored)
        if path is None or not path.is_file():
            raise HTTPException(
                404, ELSEWHERE if self._talk.files_are_apart else "There is no such file here."
            )
        name, kind = stored.split("~", 2)[2], "application/octet-stream"
        if "picture" not in request.query_params:
            return FileResponse(path, media_type=kind, filename=name)
        if not (kind := await anyio.to_thread.run_sync(picture_type, path)):
            raise HTTPException(404, "This file is no picture.")
        return FileResponse(path, media_type=kind, headers=PICTURE)


class _Streamed(Response):
    """A stream as the response of an endpoint."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._stream(scope, receive, send)


class _AdminsOnly:
    """Serves *app* to admins, and tells others nothing of what is there.

    What has no end asks ``may_go_on`` of its scope before each piece.
    """

    def __init__(self, app: ASGIApp, admits: Callable[[Request], bool]) -> None:
        self._app, self._admits = app, admits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        app = self._app if self._admits(request) else HTMLResponse("Only admins can look here.", 403)
        await app({**scope, "may_go_on": lambda: self._admits(request)}, receive, send)


def barred(person: str) -> str:
    """Return why a person has no page."""
    return f"{person} may not use this bot. Whoever runs it can add {person} to access.users in its settings."


def _root(given: str) -> str:
    if not ROOT.fullmatch(given):
        raise HTTPException(404, "There is no such thread here.")
    return given


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _not_stored(_: Request, error: Exception) -> Response:
    log.warning("web.not_stored: %s", error)
    return JSONResponse({"error": "I cannot save to my disk right now. Try again in a moment."}, 503)


async def _not_read(_: Request, error: Exception) -> Response:
    log.warning("web.not_read: %s", error)
    return JSONResponse({"error": "I cannot read my store right now. Try again in a moment."}, 503)


async def _not_shown(_: Request, error: Exception) -> Response:
    log.warning("web.not_read: %s", error)
    return PlainTextResponse("I cannot read my store right now. Reload this page in a moment.", 503)


async def _too_many_streams(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "This page is open too often. Close some of its tabs."}, 429)


async def _too_late(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "I have begun with this message, so it cannot change any more."}, 409)


async def _not_now(_: Request, __: Exception) -> Response:
    return JSONResponse(
        {"error": "I am still at work here. Wait for my answer or stop me, then go back."}, 409
    )


async def _deleted(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "This thread was deleted.", "deleted": True}, 404)


async def _no_thread(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "Nothing of this thread is stored yet."}, 404)


async def _too_many_notes(_: Request, __: Exception) -> Response:
    said = (
        f"{MOST_NOTES:,} threads are named, pinned, archived or deleted already: no more can be remembered."
    )
    return JSONResponse({"error": said}, 409)


async def _no_file(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"The file {error} is not here any more. Attach it again."}, 409)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=400)


async def _broken(_: Request, error: Exception) -> Response:
    log.error("web.request_failed", exc_info=error)
    return JSONResponse({"error": "Something went wrong. Try again."}, 500)
