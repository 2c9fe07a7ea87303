"""The shape of settings.json: every key, its default, its range and what it means.

Only single values are checked here; `bot.config.load` checks what spans several keys, files and the environment.
A missing section has its defaults. `null` means no limit, and is accepted only where the type allows it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from bot.config.params import form_fault
from bot.guards.policy import RULE, Verdict
from bot.guards.redaction import mask
from bot.ports.effort import Effort

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
ToolName = Literal["files", "shell", "web_fetch", "browser", "memory", "skills", "schedule", "ask_person"]


class Section(BaseModel):
    """One object of settings.json. Strict: "20" is no number and 1 is no boolean."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def default(cls) -> Self:
        """Return the section that is not written. Nothing is checked: to build a validator for each slows a start."""
        return cls.model_construct()


class Provider(Section):
    """One model provider; `anthropic`, `openai` and `ollama` are known without being written."""

    kind: Literal["anthropic", "openai", "openai-compatible"] | Name = Field(
        default="openai-compatible", description="A name of your own is openai-compatible."
    )
    base_url: Url | None = Field(default=None, description="Null uses the provider's own address.")
    api_key: Secret | None = Field(default=None, description="Reference to the key; null sends none.")
    api_keys: Annotated[tuple[Secret, ...], Field(max_length=20)] = Field(
        default=(),
        description="References to several keys, in place of `api_key`; a call that one refuses takes the next.",
    )
    requests_per_minute: Count | None = Field(default=None, description="For each key; null means no limit.")
    tokens_per_minute: Count | None = Field(default=None, description="For each key; null means no limit.")
    max_parallel: Count = Field(
        default=256, description="Calls at once with one key; starts with few and grows with success."
    )
    model_map: dict[Name, Names] = Field(
        default_factory=dict, description="Which model to try after another; empty tries none."
    )
    free: bool = Field(default=False, description="Its models cost nothing; Ollama's cloud models still do.")
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
    attempts: Count = Field(default=6, description="Calls in all, the first included.")
    base_delay_ms: Millis = Field(default=5000, description="First wait, ms; doubled each time.")
    max_delay_ms: Millis = Field(default=160_000, description="Longest wait, ms.")


class LlmRetry(Section):
    max_retries: Annotated[int, Field(ge=0, le=100)] = Field(
        default=3, description="Retries of one call, the first call not included."
    )
    base_delay_ms: Millis = Field(default=2000, description="First wait, ms.")
    max_delay_ms: Millis = Field(default=30_000, description="Longest wait, ms.")
    retryable: tuple[TransientCode, ...] = Field(
        default=("rate_limited", "timeout", "unavailable", "connection"),
        description="Failures after which a call is retried; empty retries none.",
    )
    backoff: Literal["exponential", "linear", "fixed", "jittered"] = Field(
        default="exponential", description="How waits grow; fixed ones do not."
    )
    jitter: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2, description="Share by which a wait varies."
    )
    max_retry_after_s: Seconds = Field(default=120, description="Longest Retry-After obeyed, seconds.")
    rate_limited: RateLimitedRetry | None = Field(
        default=None,
        description="A schedule of its own after rate limits; null retries them like other failures.",
    )


class StreamTimeouts(Section):
    connect: Seconds = Field(default=5, description="To connect, seconds.")
    first_content: Seconds = Field(default=300, description="To the first content, seconds.")
    idle: Seconds = Field(default=60, description="Longest silence within an answer, seconds.")
    total: Seconds = Field(default=600, description="A whole answer, seconds.")


class Price(Section):
    """USD per million tokens. A cache price that is left out counts as `input`, for an hour as twice that."""

    input: Usd = Field(description="Uncached prompt.")
    output: Usd = Field(description="Answer.")
    cache_read: Usd | None = Field(default=None, description="Prompt read from the cache.")
    cache_write: Usd | None = Field(default=None, description="Prompt written to the cache.")
    cache_write_1h: Usd | None = Field(
        default=None,
        description="Prompt cached for an hour; null uses the higher of `cache_write` and twice `input`.",
    )


class ModelFacts(Section):
    """One model: how it is asked, and what it can do where that is not known or known wrongly."""

    tools: bool | None = Field(default=None, description="It can call tools.")
    vision: bool | None = Field(default=None, description="It can see images.")
    streaming: bool | None = Field(default=None, description="It can stream its answer.")
    context_window: Count | None = Field(default=None, description="Longest conversation, tokens.")
    efforts: tuple[Effort, ...] | None = Field(
        default=None, description="What `reasoning` may be for it; an empty list means that it cannot reason."
    )
    reasoning: Effort | None = Field(
        default=None, description="How much it reasons; null uses the general `reasoning`."
    )
    reasoning_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = Field(
        default=0,
        description="Tokens of reasoning that its provider does not count as part of `max_tokens`; "
        "set aside with each call.",
    )
    params: Params = Field(default_factory=dict, description="More parameters of each request for it.")


class Breaker(Section):
    failure_threshold: Count = Field(
        default=1, description="Failed calls in a row that open the circuit, if two threads see it."
    )
    max_wait_s: Seconds = Field(default=120, description="Longest wait for an open circuit, seconds.")


class Failover(Section):
    acknowledge: Literal["notify", "ask"] = Field(default="notify", description="Say so, or ask.")


class Escalation(Section):
    channel: Annotated[Name, matches(CHANNEL, 'must be "transport:workspace:channel"')] | None = Field(
        default=None,
        description="Channel for failures of all models, and for transports that disconnect and come back: "
        '"slack:T1:C1".',
    )
    content_policy: bool = Field(
        default=False,
        description="Also report there when a provider declines to answer: with a link, without the text.",
    )


class BudgetLimits(Section):
    turn: Usd | None = Field(default=1.0, description="USD per turn; null means no limit.")
    thread: Usd | None = Field(default=5.0, description="USD per thread; null means no limit.")
    user_day: Usd | None = Field(default=10.0, description="USD per user and day; null means no limit.")
    schedule_day: Usd | None = Field(
        default=1.0, description="USD per day for all scheduled messages; null means no limit."
    )
    day: Usd | None = Field(default=50.0, description="USD per day; null means no limit.")
    month: Usd | None = Field(default=None, description="USD per month; null means no limit.")


class Budget(Section):
    mode: Literal["soft", "hard"] = Field(default="hard", description="Soft warns, hard stops.")
    warning_threshold: Share = Field(default=0.8, description="Share of a limit that gives one warning.")
    limit_usd: BudgetLimits = Field(default_factory=BudgetLimits.default, description="Limits in USD.")
    asker_may_grant: bool = Field(
        default=False, description="The person who asked may raise a limit too, not only admins."
    )
    footer: bool = Field(default=False, description="Show under each answer what it used.")


class Limits(Section):
    mailbox: Count = Field(default=20, description="Messages that may wait in one thread.")
    max_running_turns: Count = Field(default=256, description="Turns running at once.")
    max_running_turns_per_user: Count = Field(default=4, description="Turns of one user running at once.")
    turn_timeout_s: Seconds = Field(default=900, description="Longest turn, seconds.")
    messages_per_minute_per_user: Count | None = Field(
        default=120,
        description="Messages per minute from one person who is not an admin; null means no limit.",
    )
    max_steps: Count = Field(default=50, description="Model calls in one turn.")
    idle_timeout_s: Seconds = Field(
        default=600, description="Time until a quiet thread leaves memory, seconds."
    )
    workspace_mb: Count = Field(default=500, description="Largest workspace of a thread, MB.")
    workspace_files: Count = Field(default=20_000, description="Most files in a thread's workspace.")
    attachment_mb: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20, description="Largest file accepted with a message, MB."
    )


class Recovery(Section):
    resume: bool = Field(default=True, description="Continue interrupted turns after a restart.")
    max_age_s: Seconds = Field(default=600, description="Oldest message still answered, seconds.")
    drain_s: Seconds = Field(default=20, description="How long a stop waits for running turns, seconds.")


class Compaction(Section):
    enabled: bool = Field(default=True, description="Summarise long conversations.")
    threshold: Share = Field(default=0.8, description="Share of the model's window at which it starts.")
    keep_recent_tokens: Count = Field(default=20_000, description="Newest tokens that are kept as they are.")


class Access(Section):
    """Who is served, by platform id. `*` is everyone, an empty list is nobody."""

    users: Names = Field(default=("*",), description="User ids.")
    roles: Names = Field(default=(), description="Ids of Discord roles whose members are users too.")
    channels: Names = Field(
        default=("*",), description="Channel, workspace and guild ids; @me is direct messages on Discord."
    )
    admins: Names = Field(default=(), description="User ids that may do everything.")


def _timeouts(given: Mapping[str, int]) -> dict[str, int]:
    return {"web_fetch": 60_000, "browser": 45_000, **given}


DEFAULT_POLICY: Mapping[str, Verdict] = {"shell": "ask"}


def _policy(given: Mapping[str, Verdict]) -> dict[str, Verdict]:
    for key in given:
        if not RULE.fullmatch(key):
            raise PydanticCustomError("form", f'{key!r} must be "tool" or "tool(pattern)"')
    return dict(given)


class Tools(Section):
    enabled: tuple[ToolName, ...] = Field(
        default=("files", "shell", "web_fetch", "memory", "skills", "ask_person"),
        description="Tools the model is given.",
    )
    mcp_servers: Names | None = Field(
        default=None, description="MCP servers whose tools the model is given; null gives those of all."
    )
    default_timeout_ms: Millis = Field(default=120_000, description="Longest tool call, ms.")
    per_tool: Annotated[dict[Name, Millis], AfterValidator(_timeouts)] = Field(
        default_factory=lambda: _timeouts({}),
        description="Longest call of one tool, ms; adds to the defaults.",
    )
    profile: ToolProfile | None = Field(
        default=None,
        description="A short way to a policy: read-only, ask or trusted. Null asks for commands and MCP only.",
    )
    policy: Annotated[dict[Name, Verdict], AfterValidator(_policy)] = Field(
        default_factory=lambda: dict(DEFAULT_POLICY),
        description='By tool or "tool(argument pattern)"; wins over the profile.',
    )
    after_outside_text: Verdict = Field(
        default="ask",
        description="Minimum verdict for tools that write, run or send, once text from outside was read.",
    )
    approval_expires_s: Seconds = Field(
        default=3600, description="Seconds until an open question counts as no, or as not answered."
    )
    recovery: RecoveryChoice = Field(
        default="sign_in",
        description="After which failures a person is asked how to go on: only where they have to sign in, wherever "
        "they may help (`ask`), or never (`model`).",
    )
    private_hosts: Names = Field(
        default=(), description="Hosts and networks of your own that web tools may reach, as an exception."
    )


class Links(Section):
    allow: Names = Field(default=(), description="Hosts whose links stay live.")


class Schedule(Section):
    """Scheduled messages; only with `schedule` in `tools.enabled`."""

    max_per_thread: Count = Field(default=20, description="Schedules of one thread.")
    max_per_user: Count = Field(default=10, description="Schedules of one person.")
    min_interval_minutes: Count = Field(
        default=15, description="Least time between two occurrences, minutes."
    )


class Degradation(Section):
    disable_browser_on_error: bool = Field(default=True, description="Continue without the browser.")
    disable_screenshots_on_error: bool = Field(default=True, description="Continue without screenshots.")
    reduce_parallelism_on_rate_limit: bool = Field(
        default=True, description="Fewer calls at once while rate limited."
    )


class ScopeTools(Section):
    enabled: tuple[ToolName, ...] = Field(default=(), description="Tools the model is given there.")
    mcp_servers: Names | None = Field(
        default=None, description="MCP servers whose tools the model is given there; null gives those of all."
    )
    profile: ToolProfile | None = Field(default=None, description="A short way to a policy there.")
    policy: Annotated[dict[Name, Verdict], AfterValidator(_policy)] = Field(
        default_factory=dict, description="Rules that are added there; one for the same call replaces it."
    )
    after_outside_text: Verdict = Field(
        default="ask", description="Minimum verdict there once text from outside was read."
    )


class ScopeBudgetLimits(Section):
    turn: Usd | None = Field(default=None, description="USD per turn there; null means no limit.")
    thread: Usd | None = Field(default=None, description="USD per thread there; null means no limit.")
    user_day: Usd | None = Field(
        default=None, description="USD per user and day for whoever asks there; null means no limit."
    )
    day: Usd | None = Field(
        default=None, description="USD per day for all that this scope covers, beside the limits of everyone."
    )


class ScopeBudget(Section):
    limit_usd: ScopeBudgetLimits = Field(
        default_factory=ScopeBudgetLimits.default, description="Limits in USD there."
    )
    footer: bool = Field(default=False, description="Show under each answer there what it used.")


class ScopeLimits(Section):
    max_steps: Count = Field(default=50, description="Model calls in one turn there.")


class ScopeAccess(Section):
    """Who is served there. Who is an admin is the same everywhere."""

    users: Names = Field(
        default=(), description="User ids that are served there; `users` and `roles` are replaced together."
    )
    roles: Names = Field(default=(), description="Ids of Discord roles whose members are served there.")
    channels: Names = Field(default=(), description="Channel, workspace and guild ids that are served there.")

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

    model: ModelName | None = Field(default=None, description="provider/model that answers there.")
    fallback_models: tuple[ModelName, ...] = Field(
        default=(), description="Tried in order there if the model fails."
    )
    max_tokens: Count = Field(default=8192, description="Longest answer there, tokens.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="Null uses the model's own."
    )
    reasoning: Effort | None = Field(
        default=None, description="How much models reason there; null uses the model's own."
    )
    system: Text = Field(default="", description="Text in place of IDENTITY.md there; empty uses that file.")
    tools: ScopeTools = Field(default_factory=ScopeTools.default, description="What the model may do there.")
    budget: ScopeBudget = Field(default_factory=ScopeBudget.default, description="What may be spent there.")
    limits: ScopeLimits = Field(
        default_factory=ScopeLimits.default, description="How much one turn may do there."
    )
    access: ScopeAccess = Field(default_factory=ScopeAccess.default, description="Who is served there.")


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
    kind: Literal["files", "postgres"] = Field(
        default="files", description="Files of one machine, or one PostgreSQL for many."
    )
    dsn: Secret = Field(
        default="env:DATABASE_URL",
        description="Reference to the address of the PostgreSQL; not used with files.",
    )


class Observe(Section):
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["json", "text"] = Field(
        default="json", description="One JSON object a line, or text."
    )
    metrics_port: Port | None = Field(
        default=None, description="Loopback port of /metrics and health; null opens none."
    )
    slow_loop_ms: Millis = Field(
        default=250, description="Log the cause when the event loop is blocked for this long, ms."
    )


class Extensions(Section):
    """What is installed beside the program and is wanted here, each with its own settings."""


class Settings(Section):
    """Settings of Threadfast."""

    schema_uri: str | None = Field(default=None, alias="$schema", description="For editors; not used.")
    name: Annotated[Name, Field(max_length=80)] = Field(
        default="threadfast", description="What the bot is called."
    )
    data: Folder = Field(default=Path("data"), description="Data folder; relative to this file.")
    ca_file: Folder | None = Field(
        default=None,
        description="File with certificates (PEM) of your own authorities, trusted for model servers too.",
    )
    store: Store = Field(
        default_factory=Store.default, description="Where messages and conversations are stored."
    )
    model: ModelName = Field(
        default="anthropic/claude-sonnet-5-5", description="provider/model that answers."
    )
    fallback_models: tuple[ModelName, ...] = Field(
        default=(), description="Tried in order if the model fails."
    )
    max_tokens: Count = Field(default=8192, description="Longest answer, tokens.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="Null uses the model's own."
    )
    reasoning: Effort | None = Field(
        default=None, description="How much models reason before they answer; null uses the model's own."
    )
    system: Text = Field(
        default="", description="Text about who the bot is, in place of IDENTITY.md; empty uses that file."
    )
    verify_providers: bool = Field(default=False, description="Test every provider at start.")
    providers: Annotated[dict[Name, Provider], AfterValidator(_with_built_in)] = Field(
        default_factory=built_in_providers, description="Model providers by name."
    )
    llm_retry: LlmRetry = Field(default_factory=LlmRetry.default, description="When a model call fails.")
    stream_timeouts_s: StreamTimeouts = Field(
        default_factory=StreamTimeouts.default, description="Model streams."
    )
    models: dict[ModelName, ModelFacts] = Field(
        default_factory=dict, description="How models are asked and what they can do, by provider/model."
    )
    prices: dict[ModelName, Price] = Field(default_factory=dict, description="By provider/model.")
    breaker: Breaker = Field(default_factory=Breaker.default, description="Circuit breaker.")
    failover: Failover = Field(default_factory=Failover.default, description="When another model answers.")
    escalation: Escalation = Field(default_factory=Escalation.default, description="What operators are told.")
    budget: Budget = Field(default_factory=Budget.default, description="What may be spent.")
    limits: Limits = Field(default_factory=Limits.default, description="How much may run at once.")
    busy: Literal["steer", "queue"] = Field(
        default="steer", description="Messages during a turn: join it, or wait."
    )
    recovery: Recovery = Field(default_factory=Recovery.default, description="After a restart.")
    compaction: Compaction = Field(default_factory=Compaction.default, description="Long conversations.")
    access: Access = Field(default_factory=Access.default, description="Who is served.")
    scopes: dict[ScopeName, Scope] = Field(
        default_factory=dict,
        description="Settings of a channel, workspace, guild or person, by its id.",
        json_schema_extra={"propertyNames": {"pattern": f"^({SCOPE.pattern})$"}},
    )
    tools: Tools = Field(default_factory=Tools.default, description="What the model may do.")
    links: Links = Field(default_factory=Links.default, description="Links in answers.")
    skills: Names = Field(default=(), description="Skills that are offered; empty offers all.")
    schedule: Schedule = Field(default_factory=Schedule.default, description="Scheduled messages.")
    degradation: Degradation = Field(
        default_factory=Degradation.default, description="Continuing with fewer features."
    )
    transports: Transports = Field(default_factory=Transports.default, description="Chat platforms.")
    observe: Observe = Field(default_factory=Observe.default, description="Logs and metrics.")
    extensions: Extensions = Field(
        default_factory=Extensions.default,
        description="Extensions of others to load, by the name of their entry point, each with its own settings.",
    )
