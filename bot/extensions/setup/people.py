"""Who may use the bot, and who is its admin: asked once for each platform, or given as options."""

from __future__ import annotations

from collections.abc import Sequence

from bot.extensions.setup.dialog import SetupScreen
from bot.extensions.setup.draft import SettingsDraft
from bot.extensions.setup.options import InitOptions
from bot.host.setup import PlatformSetup
from bot.ports.config_error import ConfigInvalid

EVERYONE = "*"
NO_ADMIN = "There is no admin: when a spending limit is reached, nobody can raise it in the chat."
ADD_ONE = 'Add an id to settings.json: "access": {{"admins": ["{example}"]}}. Your own id: {where}.'


class AccessSetup:
    """Puts people of a platform into ``access`` of the draft."""

    def __init__(
        self, setup: PlatformSetup, draft: SettingsDraft, options: InitOptions, screen: SetupScreen
    ) -> None:
        self._setup, self._options, self._screen = setup, options, screen
        self._draft = draft.copy()

    def run(self) -> SettingsDraft:
        """Return the draft with these people. Raises `ConfigInvalid` for an option that is not a member id."""
        members = self._setup.people
        users = self._members("users")
        if named := self._options.users:
            self._put("users", self._ids(named, "--user"))
        elif self._asks("users", new=self._draft.get("access", "users") is None):
            rest = members.everyone if EVERYONE in users else "nobody more"
            self._put(
                "users", self._screen.ask(f"Who may use it? Member ids, or Enter for {rest}", self._answer)
            )
        if named := self._options.admins:
            self._put("admins", self._ids(named, "--admin"))
        elif self._asks("admins"):
            self._screen.say(
                f"An admin can raise spending limits. Your own id: {members.where}.", state="fix"
            )
            self._put(
                "admins", self._screen.ask("Who is admin? Member ids, or Enter for nobody", self._answer)
            )
        self._warn_without_admin()
        return self._draft

    def _members(self, key: str) -> Sequence[str]:
        access = self._draft.loaded().settings.access
        return access.users if key == "users" else access.admins

    def _known(self, key: str) -> bool:
        """Return whether a person of this platform is listed by id."""
        return any(self._setup.people.form.fullmatch(each) for each in self._members(key))

    def _asks(self, key: str, *, new: bool = False) -> bool:
        """Return whether to ask: an earlier decision is not asked again."""
        decided = self._known(key) or EVERYONE in self._members(key)
        return self._screen.interactive and (new or not decided)

    def _answer(self, answer: str) -> list[str]:
        return self._ids(answer.replace(",", " ").split(), "")

    def _ids(self, named: Sequence[str], option: str) -> list[str]:
        """Return the ids without the marks of mentions. Raises `ConfigInvalid`, naming the *option*."""
        ids = [each.strip("<@!>") for each in named]
        for each, bare in zip(named, ids, strict=True):
            if bare != EVERYONE and not self._setup.people.form.fullmatch(bare):
                what = f"{option} {each!r} is not a member id of {self._setup.title}".strip()
                raise ConfigInvalid(f"{what}; one looks like {self._setup.people.example}")
        return ids

    def _put(self, key: str, ids: Sequence[str]) -> None:
        """Add *ids* to the list; a named person replaces "everyone"."""
        if ids:
            others = () if EVERYONE in ids else [each for each in self._members(key) if each != EVERYONE]
            self._draft.put(list(dict.fromkeys([*others, *ids])), "access", key)

    def _warn_without_admin(self) -> None:
        settings = self._draft.loaded().settings
        budget, members = settings.budget, self._setup.people
        can_raise = self._known("admins") or EVERYONE in settings.access.admins or budget.asker_may_grant
        can_stop = budget.mode == "hard" and set(budget.limit_usd.model_dump().values()) != {None}
        if can_stop and not can_raise:
            self._screen.say(NO_ADMIN, state="warn")
            self._screen.say(ADD_ONE.format(example=members.example, where=members.where), state="fix")
