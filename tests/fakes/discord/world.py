"""The fake's guild, direct messages and people, and the one way in which a change of them is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.fakes.discord.ids import (
    APP,
    BOT,
    BOT_ROLE,
    CHANNEL,
    CHANNEL2,
    DM,
    DMS,
    EVERYONE,
    FORUM,
    FORUM_TYPE,
    GRANTED,
    GUILD,
    KINDS,
    PERMISSIONS,
    ROLE,
    TEXT,
    U1,
    U2,
    U3,
    VOICE,
    VOICE_TYPE,
    Json,
    Snowflakes,
)
from tests.fakes.discord.nonces import Nonces
from tests.fakes.discord.records import Call, Channel, Message, Role, User
from tests.fakes.waiting import Waiting


class World(Waiting):
    """``clock`` measures spans, ``wall`` stamps ids; both in seconds, and both are moved by ``later``."""

    url = ""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._skipped = 0.0
        self._clock, self._wall = clock, wall
        self.snowflake = Snowflakes(self.wall)
        self.nonces = Nonces(self.clock)
        self.users: dict[str, User] = {}
        self.roles: dict[str, Role] = {}
        self.channels: dict[str, Channel] = {}
        self.calls: list[Call] = []
        self.whispers: list[Message] = []
        """Ephemeral messages, in order: only one person sees each."""
        self.premium_tier = 0
        self.in_guild = True
        """Whether the bot is a member of the guild."""
        self.generation = 0
        """Addresses of files that were given out in an earlier one are expired."""
        super().__init__()
        self._furnish()

    def _furnish(self) -> None:
        for role, name, more in (
            (EVERYONE, "@everyone", {"permissions": GRANTED}),
            (BOT_ROLE, "threadfast", {"permissions": GRANTED, "bot": BOT}),
            (ROLE, "staff", {}),
        ):
            self.roles[role] = Role(role, name, **more)
        self.users[BOT] = User(BOT, "threadfast", bot=True, roles=[BOT_ROLE])
        for user, name in ((U1, "ada"), (U2, "bob"), (U3, "cleo")):
            self.users[user] = User(user, name)
            self.channels[DMS[user]] = Channel(DMS[user], DM, user=user)
        for channel, name, kind in (
            (CHANNEL, "general", TEXT),
            (CHANNEL2, "random", TEXT),
            (FORUM, "questions", FORUM_TYPE),
            (VOICE, "lounge", VOICE_TYPE),
        ):
            self.channels[channel] = Channel(channel, kind, name, GUILD)

    # time

    def clock(self) -> float:
        return self._clock() + self._skipped

    def wall(self) -> float:
        return self._wall() + self._skipped

    def later(self, seconds: float) -> None:
        """Both clocks jump: what was said before is that much older."""
        self._skipped += seconds

    # people and places

    def user(self, name: str, *, bot: bool = False) -> User:
        made = User(self.snowflake(), name, bot)
        self.users[made.id] = made
        return made

    def channel(self, name: str, kind: str = "text", *, user: str = "") -> Channel:
        """Add a channel: text, voice, news, stage, forum, category, or "dm" with *user*."""
        number = self.snowflake()
        made = Channel(number, DM, user=user) if kind == "dm" else Channel(number, KINDS[kind], name, GUILD)
        self.channels[number] = made
        self.made(made)
        return made

    def made(self, channel: Channel) -> None:
        """A channel is new: the gateway tells it."""

    def dm(self, user: str) -> str:
        """The id of the channel of direct messages with *user*, opened if there is none."""
        found = next((one for one in self.channels.values() if one.user == user), None)
        return (found or self.channel("", "dm", user=user)).id

    def deny(self, channel: str, *permissions: str) -> None:
        """Take permissions from the bot: VIEW_CHANNEL, SEND_MESSAGES, ADD_REACTIONS, CREATE_PUBLIC_THREADS, ..."""
        if unknown := set(permissions) - PERMISSIONS.keys():
            raise LookupError(f"no permissions: {unknown}")
        self.channels[channel].denied.update(permissions)

    def allow(self, channel: str, *permissions: str) -> None:
        self.channels[channel].denied.difference_update(permissions)

    def may(self, channel: Channel, permission: str) -> bool:
        """Whether the bot has *permission* there; a thread has what its parent has."""
        if channel.guild and not self.in_guild:
            return False
        place = self.channels.get(channel.parent, channel)
        return permission not in channel.denied | place.denied

    # messages

    def place(self, id: str) -> Channel:
        """A channel that there is, whoever asks."""
        found = self.channels[id]
        if found.deleted:
            raise KeyError(id)
        return found

    def message(self, said: str | Message) -> Message:
        """A message by its id, whispers and deleted ones too."""
        if isinstance(said, Message):
            return said
        for channel in self.channels.values():
            if said in channel.messages:
                return channel.messages[said]
        for whisper in self.whispers:
            if whisper.id == said:
                return whisper
        raise KeyError(said)

    def messages(self, channel: str) -> list[Message]:
        """What people see in a channel or thread, in order."""
        return [one for one in self.channels[channel].messages.values() if not one.deleted]

    def posts(self, channel: str | None = None) -> list[Message]:
        """What people see of the bot, in order; system messages are none."""
        return sorted(
            (
                message
                for place in list(self.channels.values())
                if channel in (None, place.id) and not place.deleted
                for message in place.messages.values()
                if message.ours and not message.deleted and message.type in (0, 19, 20)
            ),
            key=lambda message: int(message.id),
        )

    def threads(self, channel: str) -> list[Channel]:
        return [one for one in self.channels.values() if one.parent == channel and not one.deleted]

    @property
    def pings(self) -> list[str]:
        """Whom the bot's messages notified: users, roles, "everyone" (edits notify nobody)."""
        return [ping for message in self._all_ours() for ping in message.pings]

    @property
    def unfurls(self) -> list[str]:
        """Every address that Discord fetched because of what the bot sent."""
        return [url for message in self._all_ours() for url in message.unfurls]

    def _all_ours(self) -> list[Message]:
        kept = [one for place in self.channels.values() for one in place.messages.values() if one.ours]
        return [*kept, *self.whispers]

    # watching

    def calls_to(self, *routes: str) -> list[Call]:
        return [call for call in self.calls if call.route in routes]


APPLICATION: Json = {
    "id": APP,
    "name": "threadfast",
    "icon": None,
    "description": "",
    "summary": "",
    "bot_public": False,
    "bot_require_code_grant": False,
    "verify_key": "0" * 64,
    "flags": 0,
    "team": None,
    "tags": [],
    "integration_types_config": {"0": {}},
    "approximate_guild_count": 1,
    "approximate_user_install_count": 0,
}
