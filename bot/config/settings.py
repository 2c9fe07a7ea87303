"""The shape of settings.json: every key, its default, its range and what it means.

Only single values are checked here; `bot.config.load` checks what spans several keys, files and the environment.
A missing section has its defaults. `null` means no limit, and is accepted only where the type allows it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from bot.config.params import form_fault
from bot.guards.policy import RULE, Verdict
from bot.guards.redaction import mask
from bot.ports.effort import Effort

T = TypeVar("T")
S = TypeVar("S", bound="Section")

WEEK_S = 7 * 24 * 3600
REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+")
PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
MODEL_NAME = re.compile(r"[A-Za-z0-9_.-]+/[^\s\x00-\x1f\x7f-\x9f]+")
CHANNEL = re.compile(r"[a-z][a-z0-9_-]*:[^\s:]*:[^\s:]+")
TEXT = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*")
SCOPE = re.compile(r"user:[^\s\x00-\x1f]+|(?!user\b)[a-z][a-z0-9_-]{0,30}(:[^\s:]+){0,2}")

WEB_ADDRESS = re.compile(r"(https?|wss?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?(/[!$->A-~]*)?")


def matches(pattern: re.Pattern[str], words: str) -> AfterValidator:
    """Return a check of a whole text; its fault says *words*."""

    def check(value: str | Path) -> str | Path:
        if not pattern.fullmatch(str(value)):
            raise PydanticCustomError("form", words)
        return value

    return AfterValidator(check)


def _no_secret(value: str) -> str:
    if value.startswith("env:") and mask(value) != value:
        raise PydanticCustomError("form", "must name a variable: this looks like the secret itself")
    return value


Secret = Annotated[
    str,
    matches(REFERENCE, 'must be "env:NAME" or "file:PATH": never write the secret itself here'),
    AfterValidator(_no_secret),
    Field(json_schema_extra={"pattern": "^(env|file):"}),
]
ModelName = Annotated[str, matches(MODEL_NAME, 'must be "provider/model"')]
Url = Annotated[
    str, matches(WEB_ADDRESS, "must be a plain http(s) or ws(s) address, with no user, query or fragment")
]
Name = Annotated[str, matches(PLAIN, "must be some text, without control characters"), Field(max_length=200)]
Text = Annotated[
    str,
    matches(TEXT, "must be some text, without control characters but line breaks and tabs"),
    Field(max_length=64_000),
]
Folder = Annotated[Path, matches(PLAIN, "must be a path, without control characters")]
Names = tuple[Name, ...]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=WEEK_S)]
Millis = Annotated[int, Field(ge=1, le=WEEK_S * 1000)]
Usd = Annotated[float, Field(ge=0, le=1_000_000_000)]
Share = Annotated[float, Field(gt=0, le=1)]


def _known_forms(forms: dict[str, str]) -> dict[str, str]:
    if fault := form_fault(forms):
        raise PydanticCustomError("form", "{fault}", {"fault": fault})
    return forms


Forms = Annotated[dict[Name, str], Field(max_length=50), AfterValidator(_known_forms)]
Params = Annotated[dict[Name, JsonValue], Field(max_length=50)]
TransientCode = Literal["rate_limited", "timeout", "unavailable", "connection"]
ToolProfile = Literal["read-only", "ask", "trusted"]
RecoveryChoice = Literal["sign_in", "ask", "model"]
ToolName = Literal[
    "files", "shell", "web_fetch", "browser", "memory", "skills", "schedule", "ask_person", "thread_search", "jobs",
]  # fmt: skip


class Section(BaseModel):
    """One object of settings.json. Strict: "20" is no number and 1 is no boolean."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def default(cls) -> Self:
        """Return the section that is not written. Nothing is checked: to build a validator for each slows a start."""
        return cls.model_construct()


def setting(default: T, description: str) -> T:
    """Return the field of a key: its default, and what people read about it."""
    return Field(default=default, description=description)


def section(form: type[S], description: str) -> S:
    """Return the field of a section that has its defaults where it is not written."""
    return Field(default_factory=form.default, description=description)


class Provider(Section):
    """One model provider; `anthropic`, `openai` and `ollama` are known without being written."""

    kind: Literal["anthropic", "openai", "openai-compatible"] | Name = setting(
        "openai-compatible", "A name of your own is openai-compatible."
    )
    base_url: Url | None = setting(None, "Null uses the provider's own address.")
    api_key: Secret | None = setting(None, "Reference to the key; null sends none.")
    api_keys: Annotated[tuple[Secret, ...], Field(max_length=20)] = setting(
        (), "References to several keys, in place of `api_key`; a call that one refuses takes the next."
    )
    requests_per_minute: Count | None = setting(None, "For each key; null means no limit.")
    tokens_per_minute: Count | None = setting(None, "For each key; null means no limit.")
    max_parallel: Count = setting(256, "Calls at once with one key; starts with few and grows with success.")
    model_map: dict[Name, Names] = Field(
        default_factory=dict, description="Which model to try after another; empty tries none."
    )
    free: bool = setting(False, "Its models cost nothing; Ollama's cloud models still do.")
    params: Params = Field(
        default_factory=dict, description="More parameters of each request; names and values are checked."
    )
    forms: Forms = Field(
        default_factory=dict,
        description="Forms of parts of a request, in place of what is learned, such as "
        '`{"temperature": "none", "tools": "sent"}`; see servers.md.',
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """The references of all keys, in order."""
        return self.api_keys or tuple(filter(None, [self.api_key]))


def section_in(annotation: object) -> type[Section] | None:
    """Return the section that a field holds: bare, or null, or in a list or map."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)


def settings_by_key(settings: "Settings", name: str) -> "list[Settings]":
    """Return the settings once for each key of the provider *name*, with only that key; just them for one or none."""
    provider = settings.providers.get(name)
    if provider is None or len(provider.api_keys) < 2:
        return [settings]
    single = (provider.model_copy(update={"api_key": key, "api_keys": ()}) for key in provider.api_keys)
    return [settings.model_copy(update={"providers": {**settings.providers, name: one}}) for one in single]


def built_in_providers() -> dict[str, Provider]:
    """Return the providers that need no entry; an entry of the same name changes only the keys it holds."""
    return {
        "anthropic": Provider(
            kind="anthropic",
            api_key="env:ANTHROPIC_API_KEY",
            requests_per_minute=50,
            tokens_per_minute=400_000,
        ),
        "openai": Provider(kind="openai", api_key="env:OPENAI_API_KEY"),
        "ollama": Provider(base_url="http://127.0.0.1:11434/v1", free=True),
    }


def needs_key(kind: str) -> bool:
    """Return whether no provider of this kind answers without a key."""
    return any(one.kind == kind and one.keys for one in built_in_providers().values())


def _with_built_in(given: dict[str, Provider]) -> dict[str, Provider]:
    providers = built_in_providers()
    for name, entry in given.items():
        written = {key: getattr(entry, key) for key in entry.model_fields_set}
        known = providers.get(name, Provider())
        if written.get("api_keys"):
            written.setdefault("api_key", None)
        if written.get("base_url", known.base_url) != known.base_url:
            written.setdefault("free", False)  # Something else is there than what was known to be free.
        providers[name] = known.model_copy(update=written)
    return providers


class RateLimitedRetry(Section):
    attempts: Count = setting(6, "Calls in all, the first included.")
    base_delay_ms: Millis = setting(5000, "First wait, ms; doubled each time.")
    max_delay_ms: Millis = setting(160_000, "Longest wait, ms.")


class LlmRetry(Section):
    max_retries: Annotated[int, Field(ge=0, le=100)] = setting(
        3, "Retries of one call, the first call not included."
    )
    base_delay_ms: Millis = setting(2000, "First wait, ms.")
    max_delay_ms: Millis = setting(30_000, "Longest wait, ms.")
    retryable: tuple[TransientCode, ...] = setting(
        ("rate_limited", "timeout", "unavailable", "connection"),
        "Failures after which a call is retried; empty retries none.",
    )
    backoff: Literal["exponential", "linear", "fixed", "jittered"] = setting(
        "exponential", "How waits grow; fixed ones do not."
    )
    jitter: Annotated[float, Field(ge=0, le=1)] = setting(0.2, "Share by which a wait varies.")
    max_retry_after_s: Seconds = setting(120, "Longest Retry-After obeyed, seconds.")
    rate_limited: RateLimitedRetry | None = setting(
        None, "A schedule of its own after rate limits; null retries them like other failures."
    )


class StreamTimeouts(Section):
    connect: Seconds = setting(5, "To connect, seconds.")
    first_content: Seconds = setting(300, "To the first content, seconds.")
    idle: Seconds = setting(60, "Longest silence within an answer, seconds.")
    total: Seconds = setting(600, "A whole answer, seconds.")


class Price(Section):
    """USD per million tokens. A cache price that is left out counts as `input`, for an hour as twice that."""

    input: Usd = Field(description="Uncached prompt.")
    output: Usd = Field(description="Answer.")
    cache_read: Usd | None = setting(None, "Prompt read from the cache.")
    cache_write: Usd | None = setting(None, "Prompt written to the cache.")
    cache_write_1h: Usd | None = setting(
        None, "Prompt cached for an hour; null uses the higher of `cache_write` and twice `input`."
    )


class ModelFacts(Section):
    """One model: how it is asked, and what it can do where that is not known or known wrongly."""

    tools: bool | None = setting(None, "It can call tools.")
    vision: bool | None = setting(None, "It can see images.")
    streaming: bool | None = setting(None, "It can stream its answer.")
    context_window: Count | None = setting(None, "Longest conversation, tokens.")
    efforts: tuple[Effort, ...] | None = setting(
        None, "What `reasoning` may be for it; an empty list means that it cannot reason."
    )
    reasoning: Effort | None = setting(None, "How much it reasons; null uses the general `reasoning`.")
    reasoning_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = setting(
        0,
        "Tokens of reasoning that its provider does not count as part of `max_tokens`; "
        "set aside with each call.",
    )
    params: Params = Field(default_factory=dict, description="More parameters of each request for it.")


class Breaker(Section):
    failure_threshold: Count = setting(
        1, "Failed calls in a row that open the circuit, if two threads see it."
    )
    max_wait_s: Seconds = setting(120, "Longest wait for an open circuit, seconds.")


class Failover(Section):
    acknowledge: Literal["notify", "ask"] = setting("notify", "Say so, or ask.")


class Escalation(Section):
    channel: Annotated[Name, matches(CHANNEL, 'must be "transport:workspace:channel"')] | None = setting(
        None,
        "Channel for failures of all models, and for transports that disconnect and come back: "
        '"slack:T1:C1".',
    )
    content_policy: bool = setting(
        False, "Also report there when a provider declines to answer: with a link, without the text."
    )


class BudgetLimits(Section):
    turn: Usd | None = setting(1.0, "USD per turn; null means no limit.")
    thread: Usd | None = setting(5.0, "USD per thread; null means no limit.")
    user_day: Usd | None = setting(10.0, "USD per user and day; null means no limit.")
    schedule_day: Usd | None = setting(1.0, "USD per day for all scheduled messages; null means no limit.")
    day: Usd | None = setting(50.0, "USD per day; null means no limit.")
    month: Usd | None = setting(None, "USD per month; null means no limit.")


class Budget(Section):
    mode: Literal["soft", "hard"] = setting("hard", "Soft warns, hard stops.")
    warning_threshold: Share = setting(0.8, "Share of a limit that gives one warning.")
    limit_usd: BudgetLimits = section(BudgetLimits, "Limits in USD.")
    asker_may_grant: bool = setting(False, "The person who asked may raise a limit too, not only admins.")
    footer: bool = setting(False, "Show under each answer what it used.")


class Limits(Section):
    mailbox: Count = setting(20, "Messages that may wait in one thread.")
    max_running_turns: Count = setting(256, "Turns running at once.")
    max_running_turns_per_user: Count = setting(4, "Turns of one user running at once.")
    turn_timeout_s: Seconds = setting(900, "Longest turn, seconds.")
    messages_per_minute_per_user: Count | None = setting(
        120, "Messages per minute from one person who is not an admin; null means no limit."
    )
    max_steps: Count = setting(50, "Model calls in one turn.")
    idle_timeout_s: Seconds = setting(600, "Time until a quiet thread leaves memory, seconds.")
    workspace_mb: Count = setting(500, "Largest workspace of a thread, MB.")
    workspace_files: Count = setting(20_000, "Most files in a thread's workspace.")
    attachment_mb: Annotated[int, Field(ge=1, le=1000)] = setting(
        20, "Largest file accepted with a message, MB."
    )


class Recovery(Section):
    resume: bool = setting(True, "Continue interrupted turns after a restart.")
    max_age_s: Seconds = setting(600, "Oldest message still answered, seconds.")
    drain_s: Seconds = setting(20, "How long a stop waits for running turns, seconds.")


class Compaction(Section):
    enabled: bool = setting(True, "Summarise long conversations.")
    threshold: Share = setting(0.8, "Share of the model's window at which it starts.")
    keep_recent_tokens: Count = setting(20_000, "Newest tokens that are kept as they are.")


class Access(Section):
    """Who is served, by platform id. `*` is everyone, an empty list is nobody."""

    users: Names = setting(("*",), "User ids.")
    roles: Names = setting((), "Ids of Discord roles whose members are users too.")
    channels: Names = setting(("*",), "Channel, workspace and guild ids; @me is direct messages on Discord.")
    admins: Names = setting((), "User ids that may do everything.")


def _timeouts(given: Mapping[str, int]) -> dict[str, int]:
    return {"web_fetch": 60_000, "browser": 45_000, **given}


DEFAULT_POLICY: Mapping[str, Verdict] = {"shell": "ask"}


def _policy(given: Mapping[str, Verdict]) -> dict[str, Verdict]:
    for key in given:
        if not RULE.fullmatch(key):
            raise PydanticCustomError("form", f'{key!r} must be "tool" or "tool(pattern)"')
    return dict(given)


class Tools(Section):
    enabled: tuple[ToolName, ...] = setting(
        ("files", "shell", "web_fetch", "memory", "skills", "ask_person"), "Tools the model is given."
    )
    mcp_servers: Names | None = setting(
        None, "MCP servers whose tools the model is given; null gives those of all."
    )
    default_timeout_ms: Millis = setting(120_000, "Longest tool call, ms.")
    per_tool: Annotated[dict[Name, Millis], AfterValidator(_timeouts)] = Field(
        default_factory=lambda: _timeouts({}),
        description="Longest call of one tool, ms; adds to the defaults.",
    )
    profile: ToolProfile | None = setting(
        None, "A short way to a policy: read-only, ask or trusted. Null asks for commands and MCP only."
    )
    policy: Annotated[dict[Name, Verdict], AfterValidator(_policy)] = Field(
        default_factory=lambda: dict(DEFAULT_POLICY),
        description='By tool or "tool(argument pattern)"; wins over the profile.',
    )
    after_outside_text: Verdict = setting(
        "ask", "Minimum verdict for tools that write, run or send, once text from outside was read."
    )
    approval_expires_s: Seconds = setting(
        3600, "Seconds until an open question counts as no, or as not answered."
    )
    recovery: RecoveryChoice = setting(
        "sign_in",
        "After which failures a person is asked how to go on: only where they have to sign in, wherever "
        "they may help (`ask`), or never (`model`).",
    )
    private_hosts: Names = setting(
        (), "Hosts and networks of your own that web tools may reach, as an exception."
    )


class Links(Section):
    allow: Names = setting((), "Hosts whose links stay live.")


class Schedule(Section):
    """Scheduled messages; only with `schedule` in `tools.enabled`."""

    max_per_thread: Count = setting(20, "Schedules of one thread.")
    max_per_user: Count = setting(10, "Schedules of one person.")
    min_interval_minutes: Count = setting(15, "Least time between two occurrences, minutes.")


class Degradation(Section):
    disable_browser_on_error: bool = setting(True, "Continue without the browser.")
    disable_screenshots_on_error: bool = setting(True, "Continue without screenshots.")
    reduce_parallelism_on_rate_limit: bool = setting(True, "Fewer calls at once while rate limited.")


class ScopeTools(Section):
    enabled: tuple[ToolName, ...] = setting((), "Tools the model is given there.")
    mcp_servers: Names | None = setting(
        None, "MCP servers whose tools the model is given there; null gives those of all."
    )
    profile: ToolProfile | None = setting(None, "A short way to a policy there.")
    policy: Annotated[dict[Name, Verdict], AfterValidator(_policy)] = Field(
        default_factory=dict, description="Rules that are added there; one for the same call replaces it."
    )
    after_outside_text: Verdict = setting("ask", "Minimum verdict there once text from outside was read.")


class ScopeBudgetLimits(Section):
    turn: Usd | None = setting(None, "USD per turn there; null means no limit.")
    thread: Usd | None = setting(None, "USD per thread there; null means no limit.")
    user_day: Usd | None = setting(None, "USD per user and day for whoever asks there; null means no limit.")
    day: Usd | None = setting(
        None, "USD per day for all that this scope covers, beside the limits of everyone."
    )


class ScopeBudget(Section):
    limit_usd: ScopeBudgetLimits = section(ScopeBudgetLimits, "Limits in USD there.")
    footer: bool = setting(False, "Show under each answer there what it used.")


class ScopeLimits(Section):
    max_steps: Count = setting(50, "Model calls in one turn there.")


class ScopeAccess(Section):
    """Who is served there. Who is an admin is the same everywhere."""

    users: Names = setting((), "User ids that are served there; `users` and `roles` are replaced together.")
    roles: Names = setting((), "Ids of Discord roles whose members are served there.")
    channels: Names = setting((), "Channel, workspace and guild ids that are served there.")

    @model_validator(mode="after")
    def _replace_both(self) -> Self:
        """Let a list of users replace that of roles too: else whoever has a role could not be kept out."""
        if self.model_fields_set & {"users", "roles"}:
            self.model_fields_set.update(("users", "roles"))
        return self


class Scope(Section):
    """The settings of one channel, workspace, guild or person. Only the keys that are written count.

    Each key is one of `Settings`, at the same path: `bot.config.scopes` lays it over the one for everybody.
    """

    model: ModelName | None = setting(None, "provider/model that answers there.")
    fallback_models: tuple[ModelName, ...] = setting((), "Tried in order there if the model fails.")
    max_tokens: Count = setting(8192, "Longest answer there, tokens.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = setting(None, "Null uses the model's own.")
    reasoning: Effort | None = setting(None, "How much models reason there; null uses the model's own.")
    system: Text = setting("", "Text in place of IDENTITY.md there; empty uses that file.")
    tools: ScopeTools = section(ScopeTools, "What the model may do there.")
    budget: ScopeBudget = section(ScopeBudget, "What may be spent there.")
    limits: ScopeLimits = section(ScopeLimits, "How much one turn may do there.")
    access: ScopeAccess = section(ScopeAccess, "Who is served there.")


ScopeName = Annotated[
    str,
    matches(
        SCOPE,
        'must be a transport, as "slack", a part of it, as "slack:TEAM", "slack:TEAM:CHANNEL", "discord:GUILD" or '
        '"discord:GUILD:CHANNEL", or "user:ID"',
    ),
]


class Transports(Section):
    """The chat platforms that are served, each under its name. `bot.config.transports` has what a name may mean."""


class Store(Section):
    kind: Literal["files", "postgres"] = setting("files", "Files of one machine, or one PostgreSQL for many.")
    dsn: Secret = setting(
        "env:DATABASE_URL", "Reference to the address of the PostgreSQL; not used with files."
    )


class Observe(Section):
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "Lowest level that is logged.")
    log_format: Literal["json", "text"] = setting("json", "One JSON object a line, or text.")
    metrics_port: Port | None = setting(None, "Loopback port of /metrics and health; null opens none.")
    slow_loop_ms: Millis = setting(250, "Log the cause when the event loop is blocked for this long, ms.")


class Extensions(Section):
    """What is installed beside the program and is wanted here, each with its own settings."""


class Settings(Section):
    """Settings of Threadfast."""

    schema_uri: str | None = Field(default=None, alias="$schema", description="For editors; not used.")
    name: Annotated[Name, Field(max_length=80)] = setting("threadfast", "What the bot is called.")
    data: Folder = setting(Path("data"), "Data folder; relative to this file.")
    ca_file: Folder | None = setting(
        None, "File with certificates (PEM) of your own authorities, trusted for model servers too."
    )
    store: Store = section(Store, "Where messages and conversations are stored.")
    model: ModelName = setting("anthropic/claude-sonnet-5-5", "provider/model that answers.")
    fallback_models: tuple[ModelName, ...] = setting((), "Tried in order if the model fails.")
    max_tokens: Count = setting(8192, "Longest answer, tokens.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = setting(None, "Null uses the model's own.")
    reasoning: Effort | None = setting(
        None, "How much models reason before they answer; null uses the model's own."
    )
    system: Text = setting("", "Text about who the bot is, in place of IDENTITY.md; empty uses that file.")
    verify_providers: bool = setting(False, "Test every provider at start.")
    providers: Annotated[dict[Name, Provider], AfterValidator(_with_built_in)] = Field(
        default_factory=built_in_providers, description="Model providers by name."
    )
    llm_retry: LlmRetry = section(LlmRetry, "When a model call fails.")
    stream_timeouts_s: StreamTimeouts = section(StreamTimeouts, "Model streams.")
    models: dict[ModelName, ModelFacts] = Field(
        default_factory=dict, description="How models are asked and what they can do, by provider/model."
    )
    prices: dict[ModelName, Price] = Field(default_factory=dict, description="By provider/model.")
    breaker: Breaker = section(Breaker, "Circuit breaker.")
    failover: Failover = section(Failover, "When another model answers.")
    escalation: Escalation = section(Escalation, "What operators are told.")
    budget: Budget = section(Budget, "What may be spent.")
    limits: Limits = section(Limits, "How much may run at once.")
    busy: Literal["steer", "queue"] = setting("steer", "Messages during a turn: join it, or wait.")
    recovery: Recovery = section(Recovery, "After a restart.")
    compaction: Compaction = section(Compaction, "Long conversations.")
    access: Access = section(Access, "Who is served.")
    scopes: dict[ScopeName, Scope] = Field(
        default_factory=dict,
        description="Settings of a channel, workspace, guild or person, by its id.",
        json_schema_extra={"propertyNames": {"pattern": f"^({SCOPE.pattern})$"}},
    )
    tools: Tools = section(Tools, "What the model may do.")
    links: Links = section(Links, "Links in answers.")
    skills: Names = setting((), "Skills that are offered; empty offers all.")
    schedule: Schedule = section(Schedule, "Scheduled messages.")
    degradation: Degradation = section(Degradation, "Continuing with fewer features.")
    transports: Transports = section(Transports, "Chat platforms.")
    observe: Observe = section(Observe, "Logs and metrics.")
    extensions: Extensions = section(
        Extensions,
        "Extensions of others to load, by the name of their entry point, each with its own settings.",
    )
