"""What can go wrong in the brain: the leaves of models, tools and limits, and the report that operators get.

The hierarchy starts in `threads.errors`; the sentences that a person may read are in `bot.ports.wording`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict, JsonValue

from bot.ports.model import Usage
from bot.ports.wording import FRIENDLY, PRICE_UNKNOWN
from threads.errors import BotError
from threads.wording import code_of, first_cause, friendly

EX_CONFIG = 78
"""The exit code that tells systemd not to restart: a person has to act (sysexits.h)."""


class ConfigInvalid(BotError):
    """The settings cannot be used; ``str(error)`` lists every fault with its path."""

    code = "config_invalid"


class BrainError(BotError):
    """Has the sentence of its code, unless it has one of its own."""

    def __init__(self, message: str = "", **fields: str | float | None) -> None:
        super().__init__(message, **fields)
        self.friendly = self.friendly or FRIENDLY.get(self.code, "")


class ProviderError(BrainError):
    """A model call failed. ``retry_after`` is the provider's own word, in seconds.

    ``usage`` is what the provider had counted by then: None when it never began to answer.
    """

    usage: Usage | None = None

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


class RateLimited(ProviderError):
    code = "rate_limited"
    retryable = True


class ModelTimeout(ProviderError):
    code = "timeout"
    retryable = True


class ModelUnavailable(ProviderError):
    code = "unavailable"
    retryable = True


class UnknownFailure(ModelUnavailable):
    """Nothing we have a name for: worth one more try."""


class ModelConnection(ProviderError):
    """``local`` is true when our own pool was full: never held against the provider."""

    code = "connection"
    retryable = True
    local = False


class Unauthorized(ProviderError):
    code = "auth"


class PaymentRequired(ProviderError):
    code = "payment"


class ModelNotFound(ProviderError):
    code = "model_not_found"


class BadRequest(ProviderError):
    code = "bad_request"


class ToolsUnsupported(ProviderError):
    """The model, or the server it runs on, takes no tools."""

    code = "missing_tool_calling"


class VisionUnsupported(ProviderError):
    """The model takes no pictures."""

    code = "missing_vision"


class ThinkingRejected(BadRequest):
    """The provider refuses reasoning of its own that is sent back: without it the same request will do."""


class ContentPolicy(ProviderError):
    code = "content_policy"


class ContextOverflow(ProviderError):
    """The conversation is larger than the model's window."""

    code = "context_overflow"


class OutputInvalid(ProviderError):
    """The model answered, but with nothing that can be shown."""

    code = "output_invalid"


class EmptyAnswer(OutputInvalid):
    """The answer is whole, and there is nothing in it: worth asking once more."""


class CapabilityMissing(BrainError):
    """A model cannot do what the thread needs; ``str(error)`` names what is missing, for people too."""

    def __init__(self, code: str, message: str, **fields: str | float | None) -> None:
        self.code = code
        super().__init__(message, **fields)


class AllProvidersFailed(ProviderError):
    """No candidate could answer. Its code is that of the last failure; ``chain`` tells what each one said."""

    def __init__(self, last: ProviderError, chain: Sequence[tuple[str, ProviderError]]) -> None:
        super().__init__(
            "; ".join(f"{model}: {error.code}: {error}" for model, error in chain),
            retry_after=last.retry_after,
        )
        self.code, self.friendly = last.code, last.friendly
        self.chain = tuple(chain)
        self.fields["chain"] = "; ".join(f"{model}: {error.code}" for model, error in chain)


class ModelDeclined(AllProvidersFailed):
    """Whoever was asked said no to the next candidate."""


class BudgetExceeded(BrainError):
    """A call could cost more than is left. Amounts in USD; ``scopes`` are the limits that stand in its way."""

    code = "budget_exceeded"

    def __init__(self, message: str, *, scopes: Sequence[str] = (), needed_usd: float = 0.0) -> None:
        super().__init__(message, needed_usd=needed_usd, scopes=", ".join(scopes) or None)
        self.scopes = tuple(scopes)
        self.needed_usd = needed_usd


class PriceUnknown(BudgetExceeded):
    """What a call would cost is not known, and a hard budget allows no guess."""

    friendly = PRICE_UNKNOWN


class ToolError(BrainError):
    """A tool call failed in a way the model should read about; ``suggestion`` tells it what to do next.

    ``partial`` is what there was until then; ``origin`` names where text in it or in the message came from, if that
    was outside (see `bot.ports.tool.Returned`).
    """

    code = "tool_failed"

    def __init__(
        self,
        message: str = "",
        *,
        tool: str = "",
        suggestion: str = "",
        partial: JsonValue = None,
        origin: str = "",
    ) -> None:
        super().__init__(message, tool=tool or None)
        self.suggestion, self.partial, self.origin = suggestion, partial, origin


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
    """All places for such calls are taken here; nothing was asked outside."""

    code = "tool_busy"
    retryable = True


class ToolRateLimited(ToolError):
    """Whoever the tool asks wants to be asked less."""

    code = "tool_rate_limited"
    retryable = True


class ToolMalformedOutput(ToolError):
    """What a tool's server gave back is not in the form that it must have."""

    code = "tool_malformed_output"


class SandboxFailed(ToolError):
    """The walls around a command could not be put up, so it was not run."""

    code = "sandbox_error"


class McpUnavailable(ToolError):
    """An MCP server does not answer; others do."""

    code = "mcp_unavailable"
    retryable = True


class StepLimit(BrainError):
    code = "step_limit"


class LoopDetected(BrainError):
    code = "loop_detected"


class ErrorReport(BaseModel):
    """One error for logs, audit and ``why``. ``message`` is for the operator, never for a thread."""

    model_config = ConfigDict(frozen=True)

    type: str
    message: str
    recoverable: bool
    context: dict[str, str | float]
    suggestion: str
    timestamp: str
    correlation_id: str


def report(error: BaseException, correlation_id: str, now: datetime, **context: str) -> ErrorReport:
    """Describe *error* with its own structured fields and the *context* of where it was caught."""
    cause = first_cause(error)
    fields = cause.fields if isinstance(cause, BotError) else {}
    return ErrorReport(
        type=code_of(error),
        message=f"{type(cause).__name__}: {cause}",
        recoverable=isinstance(cause, BotError) and cause.retryable,
        context={**fields, **context},
        suggestion=friendly(error),
        timestamp=now.isoformat(timespec="milliseconds"),
        correlation_id=correlation_id,
    )
