"""Adds a chat platform: its secrets are found or asked for, checked live, and put into the draft.

A secret comes from a file that a flag names, or is found where the draft looks, or comes from lines piped in (with
``--yes``) or a paste. All but what the settings refer to is kept in ``credentials/``.
"""

from __future__ import annotations

from contextlib import aclosing

import anyio
from pydantic import JsonValue

from bot.config.settings import Settings
from bot.config.transports import served
from bot.extensions.setup import tokens
from bot.extensions.setup.dialog import SetupScreen
from bot.extensions.setup.draft import SettingsDraft
from bot.extensions.setup.options import InitOptions
from bot.extensions.setup.tokens import read_piped, read_secret
from bot.host.checks import Context
from bot.host.extension import TransportKind
from bot.host.setup import PlatformSetup, Token
from bot.ports.config_error import ConfigInvalid
from bot.ports.status import NoStatus, Status
from transports.shared.checks import Finding


class PlatformDraft:
    """Takes a transport of a platform into the draft."""

    def __init__(
        self,
        kind: TransportKind,
        setup: PlatformSetup,
        draft: SettingsDraft,
        options: InitOptions,
        screen: SetupScreen,
        *,
        running: Status | NoStatus,
    ) -> None:
        self._kind, self._setup, self._name = kind, setup, options.transport
        self._options, self._screen, self._running = options, screen, running
        self._draft = draft.copy()
        self._secrets: dict[str, str] = {}
        self.findings: list[Finding] = []

    def run(self) -> SettingsDraft:
        """Return the draft with the platform in it. Raises `ConfigInvalid` when something is missing or wrong."""
        self._place()
        self._draft.files.update(self._setup.files(self._settings, self._name))
        self._find()
        if self._missing():
            self._get()
        if self._options.verify:
            self.findings = anyio.run(self._check)
        if failed := ", ".join(finding.name for finding in self.findings if finding.state == "fail"):
            raise ConfigInvalid(
                f"{self._setup.title} is not ready ({failed}). Nothing was changed. Fix this and run it again. "
                f"For other tokens, set {' and '.join(map(self._variable, self._setup.tokens))}."
            )
        return self._draft

    @property
    def _settings(self) -> Settings:
        return self._draft.loaded().settings

    def _at(self, key: str) -> tuple[str, str, str]:
        return "transports", self._name, key

    def _place(self) -> None:
        draft, here = self._draft, ("transports", self._name)
        if not isinstance(draft.get(*here), dict):
            draft.put(self._blank(), *here)
        for key, url in self._options.addresses.items():
            draft.put(url, *here, key, option=f"--{key.replace('_', '-')}")

    def _blank(self) -> dict[str, JsonValue]:
        """Return the settings of a new transport. The tokens of a further one are not those of the first."""
        if self._name == self._options.platform:
            return {}
        own = {token.name: f"file:{self._file(token)}" for token in self._setup.tokens}
        return {"kind": self._options.platform, **own}

    # secrets that exist

    def _find(self) -> None:
        for token in self._setup.tokens:
            if file := self._options.files.get(token.name):
                self._take(token, read_secret(file, token.option), token.option)
                continue
            reference = str(self._draft.get(*self._at(token.name)) or "")
            secret, found = self._draft.find_secret(reference, self._file(token), self._variable(token))
            if secret:
                self._take(
                    token, "".join(tokens.words(secret)), found or self._variable(token), reference=found
                )

    def _missing(self) -> list[Token]:
        return [token for token in self._setup.tokens if token.name not in self._secrets]

    # missing secrets

    def _get(self) -> None:
        if self._screen.interactive:
            self._setup.guide(self._screen, self._settings, self._name)
            for key in self._setup.asks:
                self._ask_address(key)
            for token in self._missing():
                if not self._log_in(token):
                    self._ask(token)
        elif self._options.yes:
            piped = {tokens.kind(word): word for word in tokens.words(read_piped(len(self._missing())))}
            for token in self._missing():
                if secret := piped.get(token.kind):
                    self._take(token, secret, "standard input")
        if missing := self._missing():
            names = " and ".join(
                f"{token.title} ({self._variable(token)} or {token.option})" for token in missing
            )
            hint = "" if self._options.yes else "; or add --yes and pipe it in, a line each"
            raise ConfigInvalid(f"{self._setup.title} needs the {names}{hint}. Nothing was changed.")

    def _ask_address(self, key: str) -> None:
        def read(address: str) -> None:
            self._draft.put(address, *self._at(key), option=self._setup.addresses[key])

        if key not in self._options.addresses:
            default = str(getattr(served(self._settings)[self._name], key))
            about = self._setup.addresses[key].removeprefix(f"{self._setup.title}: ").rstrip(".")
            self._screen.ask(about.capitalize(), read, default)

    def _log_in(self, token: Token) -> bool:
        """Log in for a token with a name and a password. Returns False if the person has a token."""
        if (log_in := self._setup.log_in) is None:
            return False
        name = self._screen.ask("Name of its account, empty to paste a token", str)

        def enter(password: str) -> None:
            self._take(token, anyio.run(log_in, served(self._settings)[self._name], name, password), "")

        if name:
            self._screen.ask("Its password (hidden, not kept)", enter, hidden=True)
        return bool(name)

    def _ask(self, token: Token) -> None:
        def secret(pasted: str) -> str:
            word = "".join(tokens.words(pasted))
            self._take(token, word, "")
            return word

        pasted = self._screen.ask(f"Paste the {token.title} (hidden)", secret, hidden=True)
        self._screen.say(f"{token.title.capitalize()}: {len(pasted)} characters", state="ok")

    def _take(self, token: Token, secret: str, origin: str, *, reference: str = "") -> None:
        """Keep the secret of a token. Raises `ConfigInvalid` for one that has another form."""
        kind = tokens.kind(secret)
        if token.kind != kind or not tokens.usable(secret):
            seems = f"That is {kind}" if kind else "That does not look like a token"
            raise ConfigInvalid(f"{origin}: {seems}, not the {token.title}.".removeprefix(": "))
        self._secrets[token.name] = secret
        self._draft.put(
            reference or self._draft.store_secret(self._file(token), secret), *self._at(token.name)
        )

    def _file(self, token: Token) -> str:
        return f"{self._name}_{token.name}"

    def _variable(self, token: Token) -> str:
        own = "" if self._name == self._options.platform else f"{self._name}_".replace("-", "_").upper()
        return f"{own}{token.variable}"

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
        with self._screen.working(f"Checking {self._setup.title} …"):
            context = Context(trial.loaded().settings, environ, running_bot=self._running)
            checks = self._kind.checks(context, self._name)
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
