"""Who a browser belongs to: a one-time link becomes a session, and a session an anti-forgery token.

| what         | how long             | where it is |
|--------------|----------------------|---|
| link         | `LINK_S`, used once  | signed; the store remembers which were used |
| session      | `SESSION_S` of rest  | a random cookie; the store holds only its hash |
| sign-in      | until its answer     | a signed cookie; the store remembers which were answered |
| anti-forgery | as its session       | made from the cookie with the store's key, so no other site can know it |

The state is durable and the same for all workers: a page stays open while the bot restarts.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from itsdangerous import BadData, URLSafeSerializer
from pydantic import BaseModel, Field

from threads.model import WallClock
from threads.store.json_file import JsonState, State

LINK_S = 600.0
SESSION_S = 30 * 24 * 3600.0
TOUCH_S = 3600.0
"""How often the use of a session is noted."""

MOST_SESSIONS, MOST_LINKS = 1_000, 10_000
"""Sessions and used links that are remembered; beyond, the oldest session ends, and no new link is taken."""

PERSON = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


class Person(BaseModel):
    """Whom a link or a session belongs to. ``id`` decides about rights; ``name`` is only shown."""

    id: str
    name: str = ""


class WebSession(Person):
    """``by`` is the way somebody signed in, blank for a link. The session is over at ``ends``, used or not."""

    used_at: datetime
    by: str = ""
    ends: datetime | None = None


class WebState(JsonState):
    """What has to outlive the process. ``key`` signs links; ``used`` are links by nonce, until they expire.

    ``url`` is where the page was served last, and ``owner`` who may use it whatever the settings say.
    """

    key: str = ""
    url: str = ""
    owner: str = ""
    used: dict[str, datetime] = Field(default_factory=dict)
    sessions: dict[str, WebSession] = Field(default_factory=dict)


def sign_link(key: str, person: Person, now: datetime) -> str:
    """Return the token of a new one-time link for a person."""
    until = (now + timedelta(seconds=LINK_S)).isoformat(timespec="seconds")
    return str(_signer(key).dumps([person.id, person.name, until, secrets.token_urlsafe(16)]))


def read_link(key: str, token: str, now: datetime) -> tuple[Person, str, datetime] | None:
    """Return whom a link is for, its nonce and when it expires; None for one that is forged or too old."""
    try:
        person_id, name, until, nonce = _signer(key).loads(token[:2_000])
        expires = datetime.fromisoformat(until)
    except (BadData, ValueError, TypeError):
        return None
    return (Person(id=person_id, name=name), nonce, expires) if now < expires else None


def _signer(key: str) -> URLSafeSerializer:
    return URLSafeSerializer(key, salt="threadfast link")


class Sessions:
    """The sessions of all browsers. Raises `StoreUnavailable` where the store cannot be written.

    *way* is how people sign in now. A session that another way opened does not count any more.
    """

    def __init__(self, state: State[WebState], now: WallClock, way: str = "") -> None:
        self._state, self._now, self._ways = state, now, {"", way}

    @property
    def key(self) -> bytes:
        return self._state.value.key.encode()

    async def open(self, url: str = "", owner: str = "") -> None:
        """Make the key, once for all workers, and note where the page is."""
        key = self._state.value.key or secrets.token_urlsafe(32)

        def change(state: WebState) -> WebState:
            known = {"key": state.key or key, "url": url, "owner": owner}
            same = all(getattr(state, name) == value for name, value in known.items())
            return state if same else state.model_copy(update=known)

        await self._state.change(change)

    def link(self, person: Person) -> str:
        """Return the token of a new one-time link."""
        return sign_link(self._state.value.key, person, self._now())

    def person_of(self, token: str) -> Person | None:
        """Return whom a link is for, without using it; None for one that is forged or too old."""
        link = read_link(self._state.value.key, token, self._now())
        return link[0] if link else None

    async def enter(self, token: str) -> str | None:
        """Use a link, and return the cookie of a new session; None if it is not valid, or not any more."""
        link = read_link(self._state.value.key, token, self._now())
        return await self.begin(*link) if link else None

    async def begin(
        self, person: Person, nonce: str, expires: datetime, by: str = "", ends: datetime | None = None
    ) -> str | None:
        """Return the cookie of a new session; None if this *nonce*, known until *expires*, opened one before."""
        now, cookie, taken = self._now(), secrets.token_urlsafe(32), False

        def use(state: WebState) -> WebState:
            nonlocal taken
            used = {each: until for each, until in state.used.items() if until > now}
            taken = nonce not in used and len(used) < MOST_LINKS
            if not taken:
                return state
            session = WebSession(id=person.id, name=person.name, used_at=now, by=by, ends=ends)
            sessions = {**_fresh(state.sessions, now), _hash(cookie): session}
            return state.model_copy(update={"used": {**used, nonce: expires}, "sessions": sessions})

        await self._state.change(use)
        return cookie if taken else None

    def person(self, cookie: str) -> WebSession | None:
        """Return whose session this is, None if it is over."""
        session = self._state.value.sessions.get(_hash(cookie))
        counts = session is not None and session.by in self._ways and not _over(session, self._now())
        return session if counts else None

    async def touch(self, cookie: str) -> None:
        """Note that a session is in use, so that it lasts."""
        now, name = self._now(), _hash(cookie)
        session = self._state.value.sessions.get(name)
        if session and (now - session.used_at).total_seconds() > TOUCH_S:
            used = session.model_copy(update={"used_at": now})
            await self._state.change(
                lambda state: (
                    state.model_copy(update={"sessions": {**_fresh(state.sessions, now), name: used}})
                    if name in state.sessions
                    else state
                )
            )

    async def leave(self, cookie: str) -> None:
        """End a session."""
        name = _hash(cookie)
        await self._state.change(
            lambda state: (
                state.model_copy(update={"sessions": {k: v for k, v in state.sessions.items() if k != name}})
                if name in state.sessions
                else state
            )
        )

    def anti_forgery(self, cookie: str) -> str:
        """Return the token that each changing request of this session carries."""
        return hmac.new(self.key, cookie.encode(), sha256).hexdigest()

    def sealed(self, pending: Mapping[str, object]) -> str:
        """Return the cookie of a sign-in that has begun."""
        return str(URLSafeSerializer(self.key, salt="threadfast sign-in").dumps(pending))

    def unsealed(self, cookie: str) -> Mapping[str, Any]:
        """Return what was sealed; nothing for a cookie that is not ours."""
        try:
            return dict(URLSafeSerializer(self.key, salt="threadfast sign-in").loads(cookie[:2_000]))
        except BadData:
            return {}

    def is_own(self, cookie: str, token: str) -> bool:
        """Return whether a request with this anti-forgery token comes from our own page."""
        return hmac.compare_digest(self.anti_forgery(cookie).encode(), token.encode())


def _hash(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _over(session: WebSession, now: datetime) -> bool:
    return (now - session.used_at).total_seconds() > SESSION_S or (
        session.ends is not None and now > session.ends
    )


def _fresh(sessions: Mapping[str, WebSession], now: datetime) -> dict[str, WebSession]:
    """Return the sessions that still count, the oldest dropped where there are too many."""
    kept = {name: session for name, session in sessions.items() if not _over(session, now)}
    newest = sorted(kept, key=lambda name: kept[name].used_at)[-MOST_SESSIONS + 1 :]
    return {name: kept[name] for name in newest}
