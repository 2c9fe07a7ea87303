"""Adds a chat platform: its secrets are found or asked for, checked live, and put into the draft.

A secret comes from a file that a flag names, or is found (`Draft.find_secret`), or comes from lines piped in (with
``--yes``) or a paste. All but what the settings refer to is kept in ``credentials/``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio

from bot.admin.platform_checks import platform_checks
from bot.admin.setup import tokens
from bot.admin.setup.dialog import Screen
from bot.admin.setup.draft import Draft
from bot.admin.setup.options import InitOptions
from bot.admin.setup.tokens import read_piped, read_secret
from bot.config.settings import Settings
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding


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
        if self._options.verify:
            self.findings = anyio.run(self._check)
        if failed := ", ".join(finding.name for finding in self.findings if finding.state == "fail"):
            raise ConfigInvalid(
                f"{self._platform.title} is not ready ({failed}). Nothing was changed. Fix this and run it again. "
                f"For other tokens, set {' and '.join(field.variable for field in self._platform.fields)}."
            )
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
                self._take(field, read_secret(file, field.flag), field.flag)
                continue
            reference = str(self._draft.get(*self._at(field.name)) or "")
            secret, found = self._draft.find_secret(reference, self._file(field), field.variable)
            if secret:
                self._take(field, "".join(tokens.words(secret)), found or field.variable, reference=found)

    def _missing(self) -> list[Field]:
        return [field for field in self._platform.fields if field.name not in self._secrets]

    # missing secrets

    def _get(self) -> None:
        if self._screen.interactive:
            self._platform.guide(self._screen, self._settings)
            for field in self._missing():
                self._ask(field)
        elif self._options.yes:
            piped = {tokens.kind(word): word for word in tokens.words(read_piped(len(self._missing())))}
            for field in self._missing():
                if secret := piped.get(field.kind):
                    self._take(field, secret, "standard input")
        if missing := self._missing():
            names = " and ".join(f"{field.title} ({field.variable} or {field.flag})" for field in missing)
            hint = "" if self._options.yes else "; or add --yes and pipe it in, a line each"
            raise ConfigInvalid(f"{self._platform.title} needs the {names}{hint}. Nothing was changed.")

    def _ask(self, field: Field) -> None:
        def secret(pasted: str) -> str:
            word = "".join(tokens.words(pasted))
            self._take(field, word, "")
            return word

        pasted = self._screen.ask(f"Paste the {field.title} (hidden)", secret, hidden=True)
        self._screen.say(f"{field.title.capitalize()}: {len(pasted)} characters", state="ok")

    def _take(self, field: Field, secret: str, origin: str, *, reference: str = "") -> None:
        """Put a secret into its field. Raises `ConfigInvalid` for one that has another form."""
        kind = tokens.kind(secret)
        if field.kind != kind or not tokens.usable(secret):
            seems = f"That is {kind}" if kind else "That does not look like a token"
            raise ConfigInvalid(f"{origin}: {seems}, not the {field.title}.".removeprefix(": "))
        self._secrets[field.name] = secret
        self._draft.put(
            reference or self._draft.store_secret(self._file(field), secret), *self._at(field.name)
        )

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
