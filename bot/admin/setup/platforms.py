"""Adds a chat platform: its secrets are found or asked for, checked live, and put into the draft.

| a secret is taken from                      | and kept                        |
|---------------------------------------------|---------------------------------|
| a file that a flag names                    | in ``credentials/``             |
| a paste at an earlier question              | in ``credentials/``             |
| the environment                             | in ``credentials/``             |
| where the settings say, if it can be read   | where it is                     |
| ``credentials/``, from an earlier run       | where it is                     |
| lines piped in (with ``--yes``), or a paste | in ``credentials/``             |

A variable that the settings name counts as "where the settings say". Any other replaces the stored secret.

The form of a secret decides where it goes, not the field it was given for: two tokens cannot be swapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio

from bot.admin.platform_checks import platform_checks
from bot.admin.setup import tokens
from bot.admin.setup.dialog import TRIES, Screen
from bot.admin.setup.draft import Draft
from bot.admin.setup.options import InitOptions
from bot.admin.setup.tokens import read_piped, read_secret
from bot.config.load import resolve_secret
from bot.config.settings import Settings
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding

PATIENCE = 20
"""How often a person may fix something on the platform's pages and look again."""


@dataclass(frozen=True, slots=True)
class Field:
    """One secret of a platform; ``kind`` is what it is by its form (`bot.admin.setup.tokens`)."""

    name: str
    kind: str
    title: str
    variable: str
    flag: str


@dataclass(frozen=True, slots=True)
class Members:
    """How a platform names its people. ``where`` is where they find their own id."""

    form: re.Pattern[str]
    example: str
    where: str
    everyone: str


@dataclass(frozen=True, slots=True)
class Platform:
    """What is special about a platform.

    ``files`` are written beside the settings, ``guide`` says where to click, and ``hello`` is what a person does to
    hear from the bot.
    """

    name: str
    title: str
    fields: Sequence[Field]
    files: Callable[[Settings], dict[str, bytes]]
    guide: Callable[[Screen, Settings], None]
    people: Members
    hello: Callable[[Settings], str]


class PlatformSetup:
    """Takes a platform into the draft."""

    def __init__(
        self,
        platform: Platform,
        draft: Draft,
        options: InitOptions,
        screen: Screen,
        *,
        running: bool = False,
    ) -> None:
        self._platform, self._options, self._screen, self._running = platform, options, screen, running
        self._draft = draft.copy()
        self._secrets: dict[str, str] = {}
        self.findings: list[Finding] = []

    def run(self) -> Draft:
        """Return the draft with the platform in it. Raises `ConfigInvalid` when something is missing or wrong."""
        self._place()
        self._draft.files.update(self._platform.files(self._settings))
        self._find()
        if self._missing():
            self._get()
        for _ in range(PATIENCE):
            if not self._options.verify:
                break
            self.findings = anyio.run(self._check)
            if not any(finding.state == "fail" for finding in self.findings):
                break
            if self._next_step() == "t":
                self._secrets.clear()
                self._get()
        else:
            raise ConfigInvalid("Nothing was changed")
        return self._draft

    @property
    def _settings(self) -> Settings:
        return self._draft.loaded().settings

    def _at(self, key: str) -> tuple[str, str, str]:
        return "transports", self._platform.name, key

    def _place(self) -> None:
        draft, here = self._draft, ("transports", self._platform.name)
        if not isinstance(draft.get(*here), dict):
            draft.put({}, *here)
        for key in ("api_base_url", "gateway_url"):
            if url := getattr(self._options, key):
                draft.put(url, *here, key, option=f"--{key.replace('_', '-')}")

    # secrets that exist

    def _find(self) -> None:
        for field in self._platform.fields:
            if file := self._options.files.get(field.name):
                self._take(read_secret(file, field.flag), field.flag, keep=True)
        self._take_pasted()
        known = [(field, self._stored(field), self._from_environment(field)) for field in self._missing()]
        replaced = []
        for field, stored, fresh in known:
            if fresh and fresh != stored:
                self._take(fresh, field.variable, keep=True)
                replaced += [field.variable] if stored else []
            elif stored:
                self._take_stored(field, stored)
        if replaced:
            self._screen.say(f"{' and '.join(replaced)}: used instead of the stored one", state="ok")

    def _take_pasted(self) -> None:
        for field in self._missing():
            if pasted := self._screen.pasted.pop(field.kind, ""):
                self._take(pasted, "", keep=True)

    def _from_environment(self, field: Field) -> str:
        """Return what the environment gives, unless that is where the settings look anyway."""
        if str(self._reference(field)).startswith("env:") and self._stored(field):
            return ""
        return next(iter(tokens.words(self._draft.environ.get(field.variable, ""))), "")

    def _stored(self, field: Field) -> str:
        return self._resolved(field) or self._draft.stored_secret(self._file(field))

    def _take_stored(self, field: Field, stored: str) -> None:
        if self._resolved(field):
            self._take(stored, f"transports.{self._platform.name}.{field.name}", keep=False, into=field)
        else:
            self._take(stored, self._file(field), keep=True)

    def _reference(self, field: Field) -> str:
        return str(self._draft.get(*self._at(field.name)) or "")

    def _resolved(self, field: Field) -> str:
        """Return the secret that the settings refer to, or "" if they refer to none that can be read."""
        try:
            return resolve_secret(self._reference(field), self._draft.loaded().environ)
        except ConfigInvalid:
            return ""  # other places are searched, then a person is asked

    def _missing(self) -> list[Field]:
        return [field for field in self._platform.fields if field.name not in self._secrets]

    # missing secrets

    def _get(self) -> None:
        if self._screen.interactive:
            self._platform.guide(self._screen, self._settings)
            self._ask()
        elif self._options.yes:
            for word in tokens.words(read_piped(len(self._missing()))):
                self._take(word, "standard input", keep=True)
        if missing := self._missing():
            names = " and ".join(f"{field.title} ({field.variable} or {field.flag})" for field in missing)
            hint = "" if self._options.yes else "; or add --yes and pipe it in, a line each"
            raise ConfigInvalid(f"{self._platform.title} needs the {names}{hint}. Nothing was changed.")

    def _ask(self) -> None:
        for _ in range(TRIES * len(self._platform.fields)):
            self._take_pasted()
            if not (missing := self._missing()):
                return
            pasted = self._screen.ask_secret(f"Paste the {missing[0].title} (hidden)")
            if not (words := tokens.words(pasted)):
                self._screen.say("Nothing was pasted. Paste it again.", state="warn")
            for word in words:
                try:
                    self._take(word, "", keep=True)
                except ConfigInvalid as error:
                    self._screen.say(str(error), state="warn")

    def _take(self, secret: str, origin: str, *, keep: bool, into: Field | None = None) -> None:
        """Put a secret into the field that its form says. Raises `ConfigInvalid` for a secret without a field."""
        kind = tokens.kind(secret)
        field = next((each for each in self._platform.fields if each.kind == kind), None)
        if field is None or not tokens.usable(secret):
            wanted = " or ".join(each.title for each in self._missing() or self._platform.fields)
            seems = f"That is {kind}" if kind else "That does not look like a token"
            raise ConfigInvalid(f"{origin}: {seems}, not the {wanted}.".removeprefix(": "))
        self._secrets[field.name] = secret
        if keep or field is not into:
            reference = self._draft.store_secret(self._file(field), secret)
            self._draft.put(reference, *self._at(field.name))
        if not origin:
            self._screen.say(f"{field.title.capitalize()}: {len(secret)} characters", state="ok")

    def _file(self, field: Field) -> str:
        return f"{self._platform.name}_{field.name}"

    # live checks

    async def _check(self) -> list[Finding]:
        """Check with secrets that may not be on disk yet: the settings refer to them in a separate environment."""
        findings = []
        self._screen.hide(self._secrets.values())
        names = {name: f"THREADFAST_SETUP_{name.upper()}" for name in self._secrets}
        environ = {**self._draft.environ, **{names[name]: secret for name, secret in self._secrets.items()}}
        trial = self._draft.copy()
        for name, variable in names.items():
            trial.put(f"env:{variable}", *self._at(name))
        with self._screen.working(f"Checking {self._platform.title} …"):
            settings = trial.loaded().settings
            checks = platform_checks(self._platform.name, settings, environ, running=self._running)
            async with aclosing(checks):
                async for finding in checks:
                    findings.append(finding)
                    self._report(finding)
        return findings

    def _report(self, finding: Finding) -> None:
        about = finding.name.rpartition(".")[2].replace("_", " ")
        self._screen.say(f"{about}: {finding.found}", state=finding.state)
        if finding.state != "ok":
            for text, state in ((finding.meaning, ""), (finding.fix, "fix")):
                if text:
                    self._screen.say(text, state=state)

    def _next_step(self) -> str:
        """Return c to check again or t to enter the tokens again.

        Raises `ConfigInvalid` if the person quits or nobody can be asked.
        """
        failed = ", ".join(finding.name for finding in self.findings if finding.state == "fail")
        end = (
            f"{self._platform.title} is not ready ({failed}). Nothing was changed. Fix this and run it again."
        )
        if not self._screen.interactive:
            raise ConfigInvalid(end)
        for _ in range(TRIES):
            answer = self._screen.ask("[c]heck again, enter [t]okens again, [q]uit", "c").lower()[:1]
            if answer in {"c", "t"}:
                return answer
            if pasted := [field for field in self._platform.fields if field.kind in self._screen.pasted]:
                for field in pasted:
                    del self._secrets[field.name]
                self._take_pasted()
                return "c"
            if answer == "q":
                break
        raise ConfigInvalid(end)
