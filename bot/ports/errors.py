"""The errors of models, tools and limits, and their report for operators.

The hierarchy starts in `threads.errors`; the sentences for people are in `bot.wording`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict, JsonValue

from bot.ports.model import AnswerRoom, Usage
from bot.wording import (
    ANSWER_UNREADABLE,
    API_NOT_FOUND,
    CALL_AS_TEXT,
    FRIENDLY,
    MODEL_LOADING,
    MODEL_WITHHELD,
    NO_ANSWER_ROOM,
    NOT_ENCRYPTED,
    PRICE_UNKNOWN,
    WayOn,
    recoverable,
    ways_on,
)
from threads.errors import BotError, retry_fields
from threads.wording import code_of, first_cause, friendly, ways_of


@dataclass(frozen=True, slots=True)
class Refusal:
    """The ``part`` of a request that a server does not take, and the form that it asks for ``instead``."""

    part: str
    instead: str = "none"


class BrainError(BotError):
    """Has the sentence of its code, unless it has one of its own."""

    def __init__(self, message: str = "", **fields: str | float | None) -> None:
        super().__init__(message, **fields)
        self.friendly = self.friendly or FRIENDLY.get(self.code, "")


class ProviderError(BrainError):
    """A model call failed. ``retry_after`` is in seconds and comes from the provider.

    ``usage`` is what the provider has counted, or None if it never began to answer. ``alone`` means that it says
    nothing about the provider: our own pool was full, or this request alone passes a limit.
    """

    usage: Usage | None = None
    alone = False

    def __init__(
        self,
        message: str = "",
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(
            message,
            provider=provider or None,
            model=model or None,
            status=status,
            retry_after=retry_after,
            request_id=request_id,
        )
        self.retry_after = retry_after


def model_retry_fields(
    error: BotError, attempt: int, wait_s: float, model: str, seconds: float
) -> dict[str, object]:
    """Return `retry_fields` for a call to *model*, ``provider/model``, that failed after so many *seconds*."""
    provider = model.partition("/")[0]
    return retry_fields(
        error, attempt, wait_s, model=model, provider=provider, duration_ms=round(seconds * 1000)
    )


class RateLimited(ProviderError):
    code = "rate_limited"
    retryable = True


class ModelTimeout(ProviderError):
    code = "timeout"
    retryable = True


class ModelUnavailable(ProviderError):
    code = "unavailable"
    retryable = True


class ModelLoading(ModelUnavailable):
    """A server is loading its model, which may take minutes. It is asked again for as long as the turn may take."""

    friendly = MODEL_LOADING


class UnknownFailure(ModelUnavailable):
    """An unknown failure, which is retried once."""


class ModelConnection(ProviderError):
    code = "connection"
    retryable = True


class EncryptionFailed(ModelConnection):
    """The two ends do not agree about https, which stays so until a person corrects the settings."""

    retryable = False
    friendly = NOT_ENCRYPTED


class CertificateUntrusted(EncryptionFailed):
    """No authority that is known here vouches for the server's certificate."""


class ServerSpeaksHttp(EncryptionFailed):
    """The address says https, and the server speaks http."""


class ServerSpeaksHttps(EncryptionFailed):
    """The address says http, and the server speaks https."""


class Unauthorized(ProviderError):
    code = "auth"


class PaymentRequired(ProviderError):
    code = "payment"


class ModelNotFound(ProviderError):
    code = "model_not_found"


class ApiNotFound(ModelNotFound):
    """There is no such API at the address in the settings, or it is elsewhere: redirects are not followed."""

    friendly = API_NOT_FOUND


class ModelWithheld(ModelNotFound):
    """The provider has the model, and the settings of its account or of the request keep it out."""

    friendly = MODEL_WITHHELD


class UnreadableAnswer(ModelUnavailable):
    """The server answers with status 200 and a body that is not in the form of its API. A page may pass."""

    friendly = ANSWER_UNREADABLE
    retryable = False


class BadRequest(ProviderError):
    code = "bad_request"


class ToolsUnsupported(ProviderError):
    """The model, or its server, does not support tools."""

    code = "missing_tool_calling"


class CallAsText(ToolsUnsupported):
    """The model wrote a tool call as text, although it was asked for the proper form."""

    friendly = CALL_AS_TEXT


class VisionUnsupported(ProviderError):
    """The model does not support images."""

    code = "missing_vision"


class ThinkingRejected(BadRequest):
    """The provider refuses its own reasoning when it is sent back; the request works without it."""


class ReasoningUnsupported(BadRequest):
    """The model does not take what was chosen as `Request.reasoning`; the request works without it."""


class PartRefused(BadRequest):
    """The server does not take a part of the request; it works without that, or in another form."""

    refusal: Refusal | None = None


class NoAnswerRoom(BadRequest):
    """The server has less ``room`` for the answer than `Request.max_tokens`."""

    friendly = NO_ANSWER_ROOM
    room = AnswerRoom()


class ContentPolicy(ProviderError):
    code = "content_policy"


class ContextOverflow(ProviderError):
    """The conversation is larger than the model's ``window``, in tokens, if the provider names it."""

    code = "context_overflow"
    window: int | None = None


class OutputInvalid(ProviderError):
    """The model's answer cannot be used."""

    code = "output_invalid"


class SchemaMismatch(OutputInvalid):
    """The ``answer`` does not follow the schema that was asked for; the model is told, and asked once more."""

    code = "schema_mismatch"
    answer = ""


class EmptyAnswer(OutputInvalid):
    """The answer is complete but empty; the model is asked once more."""


class CapabilityMissing(BrainError):
    """A model cannot do what the thread needs; ``str(error)`` says what is missing, in words for people."""

    def __init__(self, code: str, message: str, **fields: str | float | None) -> None:
        self.code = code
        super().__init__(message, **fields)


class AllProvidersFailed(ProviderError):
    """No candidate could answer. It has the code of the last failure; ``chain`` has the error of each model."""

    def __init__(self, last: ProviderError, chain: Sequence[tuple[str, ProviderError]]) -> None:
        super().__init__(
            "; ".join(f"{model}: {error.code}: {error}" for model, error in chain),
            retry_after=last.retry_after,
        )
        self.code, self.friendly = last.code, last.friendly
        self.chain = tuple(chain)
        self.fields["chain"] = "; ".join(f"{model}: {error.code}" for model, error in chain)


class ModelDeclined(AllProvidersFailed):
    """A person declined the next candidate."""


class BudgetExceeded(BrainError):
    """A call could cost more than is left. Amounts are in USD; ``scopes`` are the limits that it would pass."""

    code = "budget_exceeded"

    def __init__(self, message: str, *, scopes: Sequence[str] = (), needed_usd: float = 0.0) -> None:
        super().__init__(message, needed_usd=needed_usd, scopes=", ".join(scopes) or None)
        self.scopes = tuple(scopes)
        self.needed_usd = needed_usd


class PriceUnknown(BudgetExceeded):
    """The price of a call is unknown, and a hard budget does not allow a guess."""

    friendly = PRICE_UNKNOWN


class ToolError(BrainError):
    """A tool call failed. The model reads the message, and the ``suggestion`` of what to do next.

    ``partial`` is the output until then. ``origin`` names the source of text from outside (see
    `bot.ports.tool.ToolOutput`).
    """

    code = "tool_failed"

    def __init__(
        self, message: str = "", *, suggestion: str = "", partial: JsonValue = None, origin: str = ""
    ) -> None:
        super().__init__(message)
        self.suggestion, self.partial, self.origin = suggestion, partial, origin


class ToolCrashed(ToolError):
    """A bug in a tool."""

    code = "internal"


class CommandFailed(ToolError):
    """A command ended with an exit code other than 0, or by a signal. ``partial`` has its output."""

    code = "tool_exit_code"


class ToolTimeout(ToolError):
    code = "tool_timeout"
    retryable = True


class ToolDenied(ToolError):
    code = "tool_denied"


class ToolInvalidInput(ToolError):
    code = "tool_invalid_input"


class ToolNotFound(ToolError):
    code = "tool_not_found"


class ToolBusy(ToolError):
    """Too many of these calls are running here; this one was not made."""

    code = "tool_busy"
    retryable = True


class ToolRateLimited(ToolError):
    """The service behind the tool limits the rate of calls."""

    code = "tool_rate_limited"
    retryable = True


class ToolMalformedOutput(ToolError):
    """The answer of a tool's server does not have the required form."""

    code = "tool_malformed_output"


class SandboxFailed(ToolError):
    """The sandbox stopped a command at a limit, or could not be set up. The same command would fail again.

    A command that ran out of time is a `ToolTimeout`: the one stop after which the same command can succeed.
    """

    code = "sandbox_error"


class McpUnavailable(ToolError):
    """An MCP server does not answer."""

    code = "mcp_unavailable"
    retryable = True


class SignInNeeded(ToolError):
    """Somebody has to sign in at the MCP server ``server`` first. The call was not made, so it can be made again."""

    code = "sign_in_needed"
    retryable = True

    def __init__(self, message: str, *, server: str, suggestion: str = "") -> None:
        super().__init__(message, suggestion=suggestion)
        self.server = server


class StepLimit(BrainError):
    code = "step_limit"


class LoopDetected(BrainError):
    code = "loop_detected"


class ErrorReport(BaseModel):
    """One error, for the log, the audit, ``why``, the events and the buttons.

    ``type`` is the code. ``recoverable`` is `bot.wording.recoverable`. ``suggestion`` is the next step in a
    sentence, and ``ways`` the same as values; a button of a failure does one of them. ``message`` is for operators,
    never for a thread.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    type: str
    message: str
    recoverable: bool
    context: dict[str, str | float]
    suggestion: str
    ways: tuple[WayOn, ...] = ()
    timestamp: str
    correlation_id: str


def report(error: BaseException, correlation_id: str, now: datetime) -> ErrorReport:
    """Describe *error*; ``context`` are its own fields.

    `bot.observe.logs` does so for every log line about a failure, and all others read it from there.
    """
    cause = first_cause(error)
    return ErrorReport(
        type=code_of(error),
        message=f"{type(cause).__name__}: {cause}",
        recoverable=recoverable(code_of(error), ways_of(error)),
        context=cause.fields if isinstance(cause, BotError) else {},
        suggestion=cause.suggestion if isinstance(cause, ToolError) else friendly(error),
        ways=ways_on(code_of(error), ways_of(error)),
        timestamp=now.isoformat(timespec="milliseconds"),
        correlation_id=correlation_id,
    )
