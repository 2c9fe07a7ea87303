"""What a person, or the bot, has been granted at an MCP server: tokens, and a sign-in that is under way.

One small state for each server, address and person: a file of mode 0600 in the folder `mcp-tokens`, or a row in
PostgreSQL. It is read again at each use, since another process may have changed it: another worker, or
`threadfast mcp`. Nothing of it is logged, and whatever is secret in it is masked from the first read on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from urllib.parse import parse_qs, urlsplit

import anyio
from pydantic import BaseModel, ConfigDict, JsonValue

from threads.errors import NewerSchema, StoreUnavailable
from threads.model import Author, ThreadId
from threads.store.json_file import JsonState, State, States

FOLDER = "mcp-tokens"
BOT = ""
"""The person of an account that the whole bot uses."""

SECRET_KEYS = frozenset({"access_token", "refresh_token", "client_secret", "registration_access_token"})


class SignInOffer(BaseModel):
    """A sign-in that is open until ``until`` (seconds since 1970), for the conversation ``place``.

    ``state`` is the parameter that OAuth sends along. ``redirect`` is the address that the person was sent back to:
    it has the code. ``outcome`` is None while it is open, blank once it has worked, else why it has not.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    state: str
    place: str
    until: float
    redirect: str = ""
    outcome: str | None = None


class Credentials(JsonState):
    """``tokens``, ``client``, ``metadata`` and ``resource`` are the SDK's own values, as JSON.

    ``expires_at`` is when the access token ends (seconds since 1970), None if nobody knows.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    tokens: dict[str, JsonValue] | None = None
    expires_at: float | None = None
    client: dict[str, JsonValue] | None = None
    metadata: dict[str, JsonValue] | None = None
    resource: dict[str, JsonValue] | None = None
    offer: SignInOffer | None = None

    def with_outcome(self, state: str, outcome: str) -> Credentials:
        """Return this with the end of the sign-in *state*; the address with its code is forgotten."""
        if self.offer is None or self.offer.state != state:
            return self
        ended = self.offer.model_copy(update={"redirect": "", "outcome": outcome})
        return self.model_copy(update={"offer": ended})


def person_of(thread: ThreadId, author: Author) -> str:
    """Return who calls: people of two platforms may have the same id."""
    return f"{thread.transport}:{author.id}"


class CredentialStore:
    """*learn* gets every secret that is read or written, for masking."""

    def __init__(self, states: States, learn: Callable[[Collection[str]], None]) -> None:
        self._states, self._learn = states, learn
        self._changing = anyio.Lock()

    async def read(self, url: str, person: str) -> Credentials:
        """Return what *person* has at the server with this address. Raises `StoreUnavailable`."""
        return (await self._open(url, person)).value

    async def change(
        self, url: str, person: str, function: Callable[[Credentials], Credentials]
    ) -> Credentials:
        """Change it durably and return it. Raises `StoreUnavailable`."""

        def learned(old: Credentials) -> Credentials:
            new = function(old)
            self._learn([*_secrets(new)])
            return new

        async with self._changing:
            state = await self._open(url, person)
            await state.change(learned)
            return state.value

    async def _open(self, url: str, person: str) -> State[Credentials]:
        digest = hashlib.sha256(f"{url}\0{person}".encode("utf-8", "replace")).hexdigest()[:32]
        try:
            state = await self._states.open(f"{FOLDER}/{digest}", Credentials())
        except (OSError, NewerSchema) as error:
            raise StoreUnavailable(f"{FOLDER}: {error}") from error
        self._learn([*_secrets(state.value)])
        return state


def _secrets(credentials: Credentials) -> Iterator[str]:
    parts: Iterable[dict[str, JsonValue] | None] = (credentials.tokens, credentials.client)
    for part in filter(None, parts):
        yield from (value for key, value in part.items() if key in SECRET_KEYS and isinstance(value, str))
    if credentials.offer and credentials.offer.redirect:
        yield parameters(credentials.offer.redirect).get("code", "")


def parameters(address: str) -> dict[str, str]:
    """Return the parameters of an address, the first of each name."""
    try:
        return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    except ValueError:
        return {}
