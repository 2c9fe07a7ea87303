"""Reads settings.json: every fault at once with its path, an unknown key with the nearest known one.

Whatever the bytes are, `load` returns settings or raises one `ConfigInvalid`, and no message repeats a value that
may be a secret. Secrets stay references until `resolve_secret` is asked for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from bot.config.document import Document, everywhere, object_in, path_of, plain
from bot.config.extensions import (
    Installed,
    extension_faults,
    installed,
    installed_for,
    missing_words,
    model_for,
    named_in,
    settings_model,
)
from bot.config.json_text import JsonInvalid, near, parse, repeated_keys
from bot.config.network import network_faults
from bot.config.params import KINDS, param_faults
from bot.config.settings import (
    MODEL_NAME,
    REFERENCE,
    Provider,
    Section,
    Settings,
    built_in_providers,
    needs_key,
    section_in,
)
from bot.config.transports import served
from bot.ports.config_error import ConfigInvalid

CREDENTIALS = "credentials"
"""Folder beside settings.json with a file, mode 0600, for each secret that is referred to as `file:NAME`."""
MAX_FILE_BYTES = 1_000_000
MAX_SECRET_BYTES = 65_536
MAX_LISTED = 50
"""Faults that are listed; nobody reads more at once."""
OFFLINE = "offline/demo"
NEXT = "Correct this in {path}; `threadfast schema` prints every key and what it may be."
NO_FILE = "Write one with `threadfast init`, or name another with --settings."
NO_READ: Mapping[type[OSError], str] = {
    FileNotFoundError: "does not exist",
    IsADirectoryError: "is a folder, not a file",
}
_LIST = 'must be a list, such as ["one", "two"]'
_OBJECT = 'must be an object, such as {"key": "value"}'
WORDS: Mapping[str, str] = {
    "missing": "is required",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _OBJECT),
    "string_type": 'must be a text, such as "one"',
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
}
"""Faults for which the validator's words name no example."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The file that settings come from. ``data`` is the data folder if the command line named it."""

    path: Path
    data: Path | None = None

    def signature(self) -> tuple[int, ...]:
        """Return numbers that change whenever the file does, none if there is no file. Blocking."""
        try:
            about = self.path.stat()
        except OSError:
            return ()
        return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns

    def load(self, environ: Mapping[str, str]) -> Settings:
        """Return the settings in the file now; raises `ConfigInvalid`. Blocking."""
        settings = load(self.path, environ=environ).settings
        return settings.model_copy(update={"data": self.data}) if self.data else settings

    def faults(self, error: ConfigInvalid) -> list[str]:
        """Return the faults that an error lists, without the path of this machine."""
        lines = str(error).replace(str(self.path), "settings.json").splitlines()
        return [line for line in lines if line != NEXT.format(path="settings.json")]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Valid settings, and the environment of their references. ``file`` is None for all defaults."""

    settings: Settings
    environ: Mapping[str, str] = field(default_factory=dict)
    file: SettingsFile | None = None


def load(path: Path | None, *, environ: Mapping[str, str]) -> Loaded:
    """Read the file at *path*, or use all defaults if it is None.

    The data folder comes back absolute: a relative one is beside the file, or in the working directory
    without a file. Raises `ConfigInvalid` with every fault, one a line, and the next step.
    """
    if path is None:
        return Loaded(
            _with_whole_paths(settings_model()(), Path.cwd(), environ),
            environ=_with_credentials(Path.cwd(), environ),
        )
    return load_bytes(_read(path, MAX_FILE_BYTES, str(path), NO_FILE), path, environ=environ)


def load_bytes(data: bytes, path: Path, *, environ: Mapping[str, str]) -> Loaded:
    """Load these bytes as `load` does, as the content of *path*."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    document = _parse(data, path)
    here = installed(named_in(document))
    model = model_for(document)
    settings, faults, unknown = _validate(data, model)
    faults += [*repeated_faults(data), *_cross_faults(document, here), *extension_faults(document, here)]
    if settings is None or faults:
        unknown_keys = [_unknown_key(location, model, here) for location in unknown[:MAX_LISTED]]
        lines = [*_first(faults, len(faults)), *_first(unknown_keys, len(unknown))]
        raise ConfigInvalid("\n".join([*lines, NEXT.format(path=path)]))
    folder = path.absolute().parent
    return Loaded(
        _with_whole_paths(settings, folder, environ),
        _with_credentials(folder, environ),
        SettingsFile(path.absolute()),
    )


def resolve_secret(reference: str, environ: Mapping[str, str]) -> str:
    """Return the secret behind *reference*, without trailing line breaks.

    A relative `file:` lies in CREDENTIALS_DIRECTORY: systemd's, or the folder `credentials` beside the settings.
    Raises `ConfigInvalid`, naming only the reference.
    """
    if not REFERENCE.fullmatch(reference):
        raise ConfigInvalid("a secret must be given as env:NAME or file:PATH")
    kind, _, name = reference.partition(":")
    if kind == "env":
        if name not in environ:
            raise ConfigInvalid(f"{reference}: this environment variable is not set; set it and start again")
        secret = environ[name]
    else:
        place = Path(environ.get("CREDENTIALS_DIRECTORY", "")) / name
        data = _read(place, MAX_SECRET_BYTES, reference, "Put the secret there and start again.")
        try:
            secret = data.decode()
        except UnicodeDecodeError as error:
            raise ConfigInvalid(f"{reference}: is not UTF-8 text") from error
    if not (secret := secret.rstrip("\r\n")):
        raise ConfigInvalid(f"{reference}: is empty; put the secret there and start again")
    return secret


def references(settings: Settings) -> dict[str, str]:
    """Return the reference of every secret that the settings name, used or not, by the path of its setting."""
    found: dict[str, str | None] = {}
    for name, provider in settings.providers.items():
        found[f"providers.{name}.api_key"] = provider.api_key
        found |= {f"providers.{name}.api_keys[{n}]": key for n, key in enumerate(provider.api_keys)}
    here = installed_for(settings)
    for name, given in served(settings).items():
        found |= {
            f"transports.{name}.{key}": getattr(given, key) for key in here.kinds[given.kind].settings.secrets
        }
    if settings.store.kind != "files":
        found["store.dsn"] = settings.store.dsn
    for part in here.parts:
        theirs = part.references(part.of(settings))
        found |= {f"{part.path}.{path}".rstrip("."): value for path, value in theirs.items()}
    return {path: reference for path, reference in found.items() if reference}


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return all secrets that can be read, for masking. The others are reported where they are needed."""
    secrets = []
    for reference in references(settings).values():
        with suppress(ConfigInvalid):
            secrets.append(resolve_secret(reference, environ))
    return secrets


def check_start(settings: Settings, environ: Mapping[str, str], *, transports: bool) -> list[str]:
    """Return the faults that keep a process with these settings, and this `model`, from starting."""
    faults = [*check_used(settings, environ, transports=transports), *unknown_skills(settings)]
    return [*faults, *network_faults(environ, settings.ca_file)]


def unknown_skills(settings: Settings) -> list[str]:
    """Return a fault for each name in `skills` that no folder has. Blocking.

    A broken skill is not a fault: it is read anew each time, and can be fixed while the bot runs.
    """
    folder = settings.data / "skills"
    known: list[str] = []
    try:
        known = sorted(path.name for path in folder.iterdir() if path.is_dir())
    except PermissionError:
        return []  # this user cannot know; the bot may
    except OSError:
        pass  # no such folder: nothing in it
    faults = []
    for place, name in enumerate(settings.skills):
        if name not in known:
            hint = near(name, [*map(plain, known)]) or f"there are {len(known) or 'none yet'}"
            faults.append(f'skills[{place}]: no skill is called "{plain(name)}" in {folder}; {hint}')
    return faults


def check_used(settings: Settings, environ: Mapping[str, str], *, transports: bool) -> list[str]:
    """Return the faults of the secrets that a start needs: of models that are named, and of *transports*."""
    # A model that is not set is chosen at the start, among those whose key is there.
    models = [settings.model] if "model" in settings.model_fields_set else []
    theirs = [name for part in installed_for(settings).parts for name in part.models(part.of(settings))]
    models += [*settings.fallback_models, *theirs]
    for scope in settings.scopes.values():
        models += [*filter(None, [scope.model]), *scope.fallback_models]
    keys = [f"providers.{model.partition('/')[0]}.api_key" for model in models]
    known, faults = references(settings), []
    used = [path for key in keys for path in known if path == key or path.startswith(f"{key}s[")]
    used += [path for path in known if path.startswith(("store.", "transports.") if transports else "store.")]
    for path in dict.fromkeys(used):
        try:
            resolve_secret(known[path], environ)
        except ConfigInvalid as error:
            faults.append(f"{path}: {error}{_setup_hint(path, settings)}")
    providers = {name: settings.providers.get(name) for name in (model.partition("/")[0] for model in theirs)}
    return [*faults, *filter(None, (key_fault(name, one) for name, one in providers.items() if one))]


def _setup_hint(path: str, settings: Settings) -> str:
    """Return which setup stores a missing secret, or a blank."""
    section, name, *_ = path.split(".")
    if section == "transports":
        kind = served(settings)[name].kind
        platform = f" {kind}" if kind == name else f" {kind} --as {name}"
    elif section == "providers":
        platform = ""
    else:
        return ""
    return f", or let `threadfast init{platform}` ask for it and store it"


def key_fault(name: str, provider: Provider) -> str:
    """Return what a provider without a key needs, or a blank."""
    if provider.keys or not needs_key(provider.kind):
        return ""
    return f'providers.{name}.api_key: {name} needs a key, such as "env:{name.upper()}_API_KEY"'


def json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of settings.json; the same for the same version of the program."""
    schema = settings_model().model_json_schema()
    transports = schema["$defs"]["Transports"]
    forms = [given["anyOf"][0] for given in transports["properties"].values()]
    transports["additionalProperties"] = {"anyOf": forms, "required": ["kind"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _read(path: Path, limit: int, subject: str, missing: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        fault = NO_READ.get(type(error), f"cannot be read ({error.strerror})")
        raise ConfigInvalid(f"{subject}: {fault}. {missing}") from error
    except ValueError as error:
        raise ConfigInvalid(f"{subject!r}: is not a path. {missing}") from error
    if len(data) > limit:
        raise ConfigInvalid(f"{subject}: is larger than {limit:,} bytes. {missing}")
    return data


def _parse(data: bytes, path: Path) -> dict[str, JsonValue]:
    """Decode one JSON object. The parser itself refuses NaN and more than about 200 levels."""
    try:
        document = parse(data)
    except JsonInvalid as error:
        fault = str(error) if data.strip() else "is empty; {} is the shortest valid file"
    else:
        if isinstance(document, dict):
            return document
        fault = 'must hold one JSON object, {"key": value, ...}'
    raise ConfigInvalid(f"{path}: {fault}\n{NEXT.format(path=path)}")


def repeated_faults(data: bytes) -> list[str]:
    """Return a fault for each key that stands twice: only the last one would count, whatever the others forbid."""
    return [
        f"{path_of(place)}: stands twice, in line {first} and line {again}, and only the last one counts; keep one"
        for place, first, again in islice(repeated_keys(data.decode()), MAX_LISTED)
    ]


def _validate(
    data: bytes, model: type[Settings]
) -> tuple[Settings | None, list[str], list[tuple[str | int, ...]]]:
    """Return the settings if they are valid, else None; the faults; and the places of unknown keys."""
    try:
        return model.model_validate_json(data), [], []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    return None, [_fault(detail) for detail in details if detail["type"] != "extra_forbidden"], unknown


def faults_of(error: ValidationError, root: type[Section]) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the place and the words of each fault in a document that should have been a *root*."""
    return [
        (
            detail["loc"],
            _unknown_key(detail["loc"], root) if detail["type"] == "extra_forbidden" else _fault(detail),
        )
        for detail in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _fault(detail: ErrorDetails) -> str:
    words = WORDS.get(detail["type"]) or re.sub(r"^\w+ should ", "must ", detail["msg"])
    return f"{path_of(detail['loc'])}: {words}"


def _unknown_key(location: tuple[str | int, ...], root: type[Section], here: Installed | None = None) -> str:
    path = path_of(location)
    if here and (owner := here.owner_of(path)):
        return missing_words(path, owner)
    section = root
    for step in location[:-1]:
        field = next((f for name, f in section.model_fields.items() if str(step) in (name, f.alias)), None)
        section = (section_in(field.annotation) if field else None) or section
    hint = near(str(location[-1]), [field.alias or name for name, field in section.model_fields.items()])
    if location[:-1] == ("transports",):
        hint += ', and a name of your own says what it is, as in "kind": "slack"'
    return f"{path}: unknown key{hint and f'; {hint}'}"


def _first(lines: list[str], total: int) -> list[str]:
    shown = lines[:MAX_LISTED]
    return [*shown, f"... and {total - len(shown)} more"] if total > len(shown) else shown


def _with_whole_paths(settings: Settings, folder: Path, environ: Mapping[str, str]) -> Settings:
    data = settings.data
    if data.parts[:1] == ("~",):
        if not (home := environ.get("HOME")):
            raise ConfigInvalid("data: ~ stands for HOME, which is not set; write the whole path")
        data = Path(home, *data.parts[1:])
    ca_file = folder / settings.ca_file if settings.ca_file else None
    return settings.model_copy(update={"data": folder / data, "ca_file": ca_file})


def _with_credentials(folder: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return *environ* with the folder of secrets that `threadfast init` keeps, unless systemd gave one."""
    return {"CREDENTIALS_DIRECTORY": str(folder / CREDENTIALS), **environ}


def _cross_faults(document: Document, here: Installed) -> list[str]:
    """Check what spans several keys, on the plain JSON: it is reported even if single values are wrong too."""
    providers, missing = object_in(document.get("providers")), here.missing("models")
    others = [kind for kind in here.models if kind not in KINDS]
    return [
        *_model_faults(document, providers, missing),
        *_provider_faults(providers, others),
        *_param_faults(document, providers, others),
    ]


def _model_faults(document: Document, providers: Document, missing: Mapping[str, str]) -> Iterator[str]:
    known = {*built_in_providers(), *providers, OFFLINE.partition("/")[0]}
    named: list[tuple[str, JsonValue]]
    named = [(path_of(("models", name)), name) for name in object_in(document.get("models"))]
    for place, given in everywhere(document):
        named.append((path_of((*place, "model")), given.get("model")))
        fallbacks = given.get("fallback_models")
        for i, name in enumerate(fallbacks if isinstance(fallbacks, list) else []):
            named.append((path_of((*place, "fallback_models", i)), name))
    for path, model in named:
        if not isinstance(model, str) or not MODEL_NAME.fullmatch(model):
            continue
        provider = model.partition("/")[0]
        kind = str(object_in(providers.get(provider)).get("kind", _built_in_kind(provider)))
        if provider not in known:
            yield f'{path}: no provider is called "{provider[:60]}"; there are {", ".join(sorted(known))[:400]}'
        elif OFFLINE.startswith(f"{provider}/"):
            if model != OFFLINE:
                yield f"{path}: the only offline model is {OFFLINE}"
        elif kind in missing:
            yield f"{path}: {missing_words(kind, missing[kind])}"


def _provider_faults(providers: Document, others: Collection[str]) -> Iterator[str]:
    built_in = built_in_providers()
    for name, entry in providers.items():
        path = path_of(("providers", name))
        if OFFLINE.startswith(f"{name}/"):
            yield f"{path}: is built in and has no settings"
            continue
        if "/" in name or not MODEL_NAME.fullmatch(f"{name}/x"):
            yield f"{path}: a provider's name is made of letters, digits, dots, - and _"
        if not isinstance(entry, dict):
            continue
        if entry.get("api_key") is not None and entry.get("api_keys"):
            yield f"{path}.api_keys: takes the place of api_key; put all keys in it, and remove api_key"
        keys = entry.get("api_keys")
        if isinstance(keys, list) and len({str(key) for key in keys}) < len(keys):
            yield f"{path}.api_keys: names a key twice"
        kind, given = _built_in_kind(name), entry.get("kind")
        if given in others and name not in built_in:
            continue
        if isinstance(given, str) and given != kind:
            hint = (
                f"or one of an extension: {', '.join(others)}"
                if others
                else "another kind has a name of its own"
            )
            yield f"{path}.kind: must be {kind} under this name; {hint}"
        base_url = built_in[name].base_url if name in built_in else None
        if kind == "openai-compatible" and entry.get("base_url", base_url) is None:
            yield f"{path}.base_url: is required, for example http://127.0.0.1:8000/v1"


def _built_in_kind(provider: str) -> str:
    built_in = built_in_providers()
    return built_in[provider].kind if provider in built_in else "openai-compatible"


def _param_faults(document: Document, providers: Document, others: Collection[str]) -> Iterator[str]:
    places = [(("providers", name), name, entry, False) for name, entry in providers.items()]
    prices = object_in(document.get("prices"))
    for name, entry in object_in(document.get("models")).items():
        places.append((("models", name), name.partition("/")[0], entry, name in prices))
    for path, provider, entry, priced in places:
        if object_in(providers.get(provider)).get("kind") in others:
            continue  # its extension knows them
        params = object_in(object_in(entry).get("params"))
        yield from param_faults(f"{path_of(path)}.params", _built_in_kind(provider), params, priced=priced)
