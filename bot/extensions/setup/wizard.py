"""Runs one setup: model, platform, people, then the files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from bot.config.load import OFFLINE
from bot.extensions.setup.dialog import SetupScreen
from bot.extensions.setup.draft import SettingsDraft, owned_by_another
from bot.extensions.setup.models import ModelChoice, ModelSelection
from bot.extensions.setup.options import InitOptions
from bot.extensions.setup.people import AccessSetup
from bot.extensions.setup.platforms import PlatformDraft
from bot.host.extension import transport_kinds
from bot.host.model_settings import model_faults, unpriced
from bot.host.status_client import find_running_bot
from bot.ports.config_error import ConfigInvalid
from bot.ports.status import ABSENT
from transports.shared.checks import Finding


@dataclass(frozen=True, slots=True)
class Done:
    """What was set up. ``written`` are the files that changed, ``then`` is the next command to run."""

    chosen: ModelChoice
    findings: Sequence[Finding]
    written: Sequence[Path]
    settings: Path
    then: str
    hello: str = ""
    startable: bool = True
    """False while a bot runs, and for root in another user's folder: its files would belong to root."""

    def document(self) -> dict[str, JsonValue]:
        """Return it as JSON."""
        verified = self.chosen.verified
        return {
            "settings": str(self.settings),
            "model": self.chosen.model,
            "model_answers": verified.ok if verified else None,
            "model_took_s": round(verified.took_s, 3) if verified else None,
            "checks": [finding.document() for finding in self.findings],
            "written": [str(path) for path in self.written],
            "next": self.then,
        }


def set_up(options: InitOptions, environ: Mapping[str, str], screen: SetupScreen) -> Done:
    """Ask, test, write. Raises `ConfigInvalid` and OSError; then nothing has changed."""
    draft = SettingsDraft.open(options.settings, environ)
    if write_obstacle := draft.write_obstacle():
        raise ConfigInvalid(write_obstacle)
    _general(draft, options)
    screen.title("Threadfast", f"{draft.path}{'' if draft.before else ' (new)'}")
    kind = transport_kinds().get(options.platform)
    platform = kind.setup() if kind and kind.setup else None
    chosen = ModelSelection(draft, options, screen).run()
    final = chosen.draft
    findings: Sequence[Finding] = ()
    running = find_running_bot(final.loaded().settings.data)
    runs = running != ABSENT
    if kind and platform:
        platform_setup = PlatformDraft(kind, platform, final, options, screen, running=running)
        final, findings = platform_setup.run(), platform_setup.findings
        final = AccessSetup(platform, final, options, screen).run()
    if faults := model_faults(final.loaded().settings):
        raise ConfigInvalid("\n".join([*faults, "Nothing was changed."]))
    written = final.write()
    _report(screen, final, written, chosen)
    if runs:
        screen.say(f"A bot runs here (process {running.pid}). Restart it to use the changes.", state="warn")
    startable = not (
        runs or owned_by_another(final.path.parent) or owned_by_another(final.loaded().settings.data)
    )
    hello = platform.hello(final.loaded().settings) if platform else ""
    return Done(chosen, findings, written, final.path, _next(final, options), hello, startable)


def _general(draft: SettingsDraft, options: InitOptions) -> None:
    """Set the name and the data folder, if they are not the defaults."""
    if options.name and options.name != draft.loaded().settings.name:
        draft.put(options.name, "name", option="--name")
    if options.data and options.data.absolute() != draft.loaded().settings.data:
        draft.put(str(options.data.absolute()), "data", option="--data")
    draft.loaded()


def _report(screen: SetupScreen, draft: SettingsDraft, written: Sequence[Path], chosen: ModelChoice) -> None:
    if chosen.model == OFFLINE:
        how = (
            "`threadfast init` changes that"
            if draft.get("model")
            else "set a key, and the next start uses it"
        )
        screen.say(f"offline/demo answers: built-in rules, no language model; {how}.", state="warn")
    else:
        for warning in unpriced(draft.loaded().settings):
            screen.say(warning, state="warn")
    if not written:
        screen.say(f"{draft.path.name} is up to date; nothing was changed", state="ok")
        return
    names = ", ".join(path.name for path in written if path.parent == draft.path.parent)
    secrets = sum(path.parent == draft.credentials for path in written)
    stored = f"; {secrets} secret{'s' * (secrets > 1)} in {draft.credentials.name}/" if secrets else ""
    screen.say(f"Written: {names or draft.credentials.name}{stored}", state="ok")


def _next(draft: SettingsDraft, options: InitOptions) -> str:
    """Return the next command, as it has to be typed here."""
    where = "" if draft.path == Path("settings.json").absolute() else f" --settings {draft.path}"
    if owned_by_another(draft.path.parent) or owned_by_another(draft.loaded().settings.data):
        credentials = Path(sys.prefix, "share/threadfast/deploy/install.sh")
        return (
            f"{f'{credentials} credentials && ' if credentials.exists() else ''}systemctl restart threadfast"
        )
    return f"threadfast {'run' if options.platform else 'chat'}{where}"
