"""The sentences that people read about models, tools and commands.

`threads.wording` has those of the domain. Its rules about secrets and paths apply here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from threads import wording
from threads.model import Choice, Way

UNREACHABLE = "I'm having trouble reaching my AI provider. Try again in a moment."

FRIENDLY: Mapping[str, str] = {
    "rate_limited": "My AI provider is limiting how fast I may ask. Try again in a few minutes.",
    "timeout": UNREACHABLE,
    "unavailable": UNREACHABLE,
    "connection": UNREACHABLE,
    "auth": "My AI provider does not accept my key. Whoever runs this bot needs to check it.",
    "payment": "My AI provider says the account is out of credit. Whoever runs this bot needs to top it up.",
    "model_not_found": "My AI provider does not know the model I am set to use. "
    "Whoever runs this bot needs to choose another one.",
    "bad_request": "My AI provider refused this request, for its form and not for your words. "
    "Start over with /new, or ask whoever runs this bot to look at it.",
    "content_policy": "My AI provider declined to answer this. Try putting it another way.",
    "missing_tool_calling": "The model I am set to use cannot call tools, and I need some. "
    "Choose another with /model.",
    "missing_vision": "The model I am set to use cannot see pictures. Choose another with /model.",
    "missing_streaming": "The model I am set to use cannot stream its answers. Choose another with /model.",
    "context_window_too_small": "This conversation is too long for the model I am set to use. "
    "Choose another with /model, or start over with /new.",
    "context_overflow": "This conversation has grown too long for the model, and I could not make it shorter. "
    "Start over with /new, or choose a model with more room with /model.",
    "budget_exceeded": "I have reached the spending limit that was set for me, so I stopped here. "
    "Whoever runs this bot can raise it.",
    "output_invalid": "The model returned nothing I can show. Try again, or ask in another way.",
    "schema_mismatch": "The model's answer did not follow the schema, even after it was told what was wrong.",
    "tool_timeout": "A command I was running timed out. Let me know if you'd like me to try again.",
    "step_limit": "I used up the steps I may take for one message without finishing. "
    "Tell me to go on, or narrow the task.",
    "loop_detected": "I kept trying the same thing without getting anywhere, so I stopped. "
    "Tell me what to do differently.",
}
"""By the code of an error."""


def ways_on(code: str, ways: Sequence[Way]) -> tuple[WayOn, ...]:
    """Return the ways to go on from a failure with this code: its own, or those of the code."""
    if ways:
        return tuple(ways)
    return ("retry",) if code in WORTH_RETRYING else CODE_WAYS.get(code, ())


def recoverable(code: str, ways: Sequence[Way] = ()) -> bool:
    """Return whether a failure with this code leaves a way on: the same again, other input, or one of `ways_on`."""
    return code in MENDABLE or bool(ways_on(code, ways))


MENDABLE: frozenset[str] = frozenset(
    {
        *("tool_failed", "tool_exit_code", "tool_not_found", "tool_invalid_input", "tool_malformed_output"),
        *("tool_busy", "tool_rate_limited", "mcp_unavailable", "sign_in_needed"),
        *("store_unavailable", "transport_rate_limited"),
    }
)
"""Codes of failures after which the same may succeed later, or a tool with other input, without a button."""


def choices(code: str, message_id: str, ways: Sequence[Way]) -> tuple[Choice, ...]:
    """Return the buttons of a message that failed with this code: one for each of `ways_on` that has one."""
    if ways:
        return tuple(Choice(WAYS[way], f"/retry {message_id} {way}") for way in ways)
    buttons = {"retry": Choice("Try again", f"/retry {message_id}"), **BUTTONS}
    return tuple(buttons[way] for way in ways_on(code, ()) if way in buttons)


WayOn = Way | Literal["retry", "grant"]
"""A way to go on, as a value: the suggestion of an error report, and what its button does."""

CODE_WAYS: Mapping[str, tuple[WayOn, ...]] = {
    "bad_request": ("new",),
    "context_window_too_small": ("compact", "new"),
    "budget_exceeded": ("grant",),
}
"""The ways to go on from a code that is not `WORTH_RETRYING`. A limit is raised in its own question."""

BUTTONS: Mapping[str, Choice] = {
    "compact": Choice("Compact", "/compact"),
    "new": Choice("Start over", "/new"),
}


WAYS: Mapping[Way, str] = {
    "compact": "Compact",
    "new": "Start over",
    "without-files": "Leave the attachment out",
}
"""Labels of the buttons under a message that was too long."""


def too_long(size: int, window: int | None, *, together: bool, ways: bool) -> str:
    """Say that a message of *size* tokens, *together* with what was said before or alone, cannot be read."""
    what = "Your message and our conversation are together" if together else "Your message alone is"
    figures = f" (about {size:,} tokens, and it reads {window:,})" if window else ""
    told = f"{what} longer than the model can read at once{figures}."
    if ways:
        return f"{told} How shall I go on?"
    return f"{told} Send it in parts or as a file, or choose a model with more room with /model."


def setup_too_long(size: int, window: int | None) -> str:
    """Say that instructions and tools of *size* tokens leave too little room for a conversation."""
    reads = f"{window:,} at once" if window else "not much more at once"
    return (
        f"My instructions and tools have about {size:,} tokens, and the model reads {reads}. "
        "Whoever runs this bot needs to give it a larger window or fewer tools, or choose another model."
    )


def too_long_for(model: str, size: int, window: int, current: str) -> str:
    """Say why a thread does not get the model that was asked for."""
    return (
        f"I stay with {current}: {model} reads {window:,} tokens at once, and our conversation has about {size:,}. "
        f"Say /compact to have it summarised, or /new to start over, and then /model {model} again."
    )


API_NOT_FOUND = (
    "My AI provider is not at the address I am set to use. Whoever runs this bot needs to correct it."
)
MODEL_WITHHELD = (
    "My AI provider has the model I am set to use, but its settings keep me from it. "
    "Whoever runs this bot needs to change them, or to choose another model."
)
MODEL_LOADING = "My AI provider is still loading the model. Try again in a few minutes."
NOT_ENCRYPTED = (
    "I cannot connect to my AI provider securely. "
    "Whoever runs this bot needs to check its address and certificate."
)
ANSWER_UNREADABLE = (
    "The server of my model answers in a form that I cannot read. Whoever runs this bot needs to check its address, "
    "and any proxy or gateway before it."
)
CALL_AS_TEXT = (
    "The model writes its tool calls as text, so I cannot make them. Whoever runs this bot needs to switch on tool "
    "calls at its server: `--enable-auto-tool-choice --tool-call-parser NAME` for vLLM, `--tool-call-parser NAME` "
    "for SGLang, `--jinja` for llama.cpp, a newer template of the model for others."
)
NO_ANSWER_ROOM = (
    "The server of my model leaves too little room for an answer. Whoever runs this bot needs to give it more, or a "
    "smaller `max_tokens` to the model."
)
PRICE_UNKNOWN = (
    "I do not know what the model I am set to use costs, and my budget allows no guess. "
    "Whoever runs this bot needs to set its price."
)
INTERRUPTED = "Interrupted; it may or may not have run."
"""What a model reads of a call whose turn was stopped, or whose process died."""

WORTH_RETRYING: frozenset[str] = frozenset(
    {
        *("rate_limited", "timeout", "unavailable", "connection", "auth", "payment", "model_not_found"),
        *("output_invalid", "schema_mismatch", "tool_timeout", "transport_unavailable"),
    }
)
"""Codes of failures that may be over when a person presses *Try again*."""

PASSING: frozenset[str] = frozenset({"rate_limited", "timeout", "unavailable", "connection"})
"""Codes of failures that pass by themselves."""

REASONS: Mapping[str, str] = {
    "rate_limited": "is rate limited",
    "timeout": "does not answer in time",
    "unavailable": "has trouble",
    "connection": "cannot be reached",
    "auth": "does not accept my key",
    "payment": "is out of credit",
    "model_not_found": "is not offered by its provider",
    "missing_tool_calling": "cannot call tools",
    "missing_vision": "cannot see pictures",
}
"""Why a model cannot answer, as a clause after its name."""

EFFORTS: Mapping[str, str] = {
    "off": "without reasoning",
    "low": "with low reasoning",
    "medium": "with medium reasoning",
    "high": "with high reasoning",
}
"""How a model answers, by what was chosen as `reasoning`."""

NOT_ALLOWED = "I only answer the people on my list. Ask whoever runs this bot to add you."
STALE = (
    "I was not running when this came in and it is too old for me to start on now. "
    "Please send it again if you still need it."
)
CUT_OFF = (
    "I was stopped while I worked on this, and do not go on now. Please send it again if you still need it."
)
DAMAGED = (
    "Part of what I had stored was damaged, and a message of yours with it. "
    "Please send it again if you still need an answer."
)
NOT_YET_ASKED = "I was interrupted and am not back at my question yet. Please say that again in a moment."
ONCE_OR_ALWAYS = "Say /approve for this once, or /approve always for all like it in this thread."
EXACTLY_THIS, NOTHING_MORE = "exactly this", "just this once"
WHOLE_IN_FILE = "This is its beginning: the file above has all of it."
OUTSIDE_READ = (
    "I ask because I have read text from outside (a file, a page, another person's message, another program), "
    "and it may have talked me into this."
)
CUT_SHORT = (
    "(This is longer than I may write for one message, so it stops before its end. Say “go on” for the rest.)"
)
COMPACTED = "Done."
SUMMARISING = "summarising the earlier part of our conversation"
NOTHING_TO_COMPACT = "There is nothing here that I could make shorter."
NOTHING_TO_RETRY = (
    "There is nothing here to try again. If you still need an answer, please send your message again."
)
ALREADY_RETRIED = "I have already taken that message up again."
NOTHING_TO_STOP = "There is nothing to stop here."
IN_ITS_THREAD = (
    "Say this in the thread that it is about. Here I can tell you /status, /usage and /model, and /stop all that I "
    "do in this channel."
)
HOW_TO_ASK = "To ask me something, write to me directly or mention me."


def not_seen(model: str) -> str:
    """Say that a model answered without the pictures of the message."""
    return f"({model} cannot see pictures, so I went by the words alone.)"


def picture_refused(model: str) -> str:
    """Say that a model answered, but would not take the pictures."""
    return f"({model} did not take the pictures in this thread, so I went by the words alone.)"


MOST_NAMED = 5
"""Tools that a note names."""


def setup_changed(model: tuple[str, str] | None, gone: Sequence[str], new: Sequence[str]) -> str:
    """Say what is new since the last answer: the *model* from and to, and the tools; blank if nothing is."""
    parts = [f"{model[1]} is my model now, in place of {model[0]}"] if model else []
    parts += [f"I can no longer use {_tools(gone)}"] if gone else []
    parts += [f"I can now use {_tools(new)}"] if new else []
    return f"(Since my last answer here: {'; '.join(parts)}.)" if parts else ""


def _tools(names: Sequence[str]) -> str:
    named = [f"`{name}`" for name in names[:MOST_NAMED]]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    *first, last = [*named, *more]
    return f"{', '.join(first)} and {last}" if first else last


def tools_gone(names: Sequence[str]) -> str:
    """Tell the model which tools that it used are gone."""
    return f"(You used {_tools(names)} above. You do not have that any more, so do not call it.)"


def may_i(tool: str, arguments: str, why: str, always: str) -> str:
    """Ask whether a tool may be used with exactly these arguments, and say what *always here* would allow."""
    more = f"*Always here* would allow {always} in this thread, until `/deny always`."
    return "\n\n".join(filter(None, [f"May I use `{tool}`?", arguments, why, more]))


def tool_news(server: str, kind: Literal["new", "changed"], description: str) -> str:
    """Say that a server has a new tool, or has changed one, since it was trusted. *description* is a quote."""
    what = "is new at" if kind == "new" else "has been changed by"
    return f"⚠️ This tool {what} the MCP server {server} since it was set up or last allowed:\n{description}"


def assistant_asks(question: str, *, choices: bool, free_text: bool, outside: bool) -> str:
    """Ask what the model wants to know. *question* is a quote; *outside*: text from outside was read."""
    warning = QUESTION_AFTER_OUTSIDE if outside else ""
    how = how_to_answer(choices=choices, free_text=free_text)
    return "\n\n".join(filter(None, ["💬 **The assistant asks:**", question, how, warning]))


def how_to_answer(*, choices: bool, free_text: bool) -> str:
    if not choices:
        return "Write it here: the next message from whoever I am working for is the answer."
    if free_text:
        return "Choose one, or write here: the next message from whoever I am working for is the answer."
    return "Choose one, or write here which one."


def choose_one(labels: Sequence[str]) -> str:
    return f"Please choose one of these: {', '.join(labels)}"


QUESTION_AFTER_OUTSIDE = (
    "I have read text from outside (a file, a page, another person's message, another program), "
    "and it may be behind this question. "
    "Do not put a secret into your answer."
)
SKIP = "Skip"
WRITE_ANSWER = "Write your answer here, or say /answer and your words."
WRITE_INPUT = "Write here what I should do instead, or say /answer and your words."
NOBODY_TO_ANSWER = "(I had a question, but nobody can be asked here.)"
NOT_ANSWERED = "(Nobody answered my question in time, so I went on without an answer.)"

RECOVERABLE: Mapping[str, str] = {
    "mcp_unavailable": "the program behind it does not answer",
    "tool_timeout": "it took too long, more than once",
    "tool_rate_limited": "the service behind it limits how often it may be used",
    "tool_not_found": "it did not find what it looked for, more than once",
    "sign_in_needed": "the program behind it wants you to sign in",
}
"""Why a tool failed, as a clause, where a person may know what to do."""

RECOVERY_LABELS = {
    "retry": "Retry",
    "sign in": "I have signed in",
    "other input": "Other input",
    "go on without": "Go on without",
}


def tool_failed(tool: str, code: str, subject: str, *, risky: bool, other: bool, repair: str = "") -> str:
    """Ask how to go on after a failed call.

    *subject* is a quote, and *repair* says what the person can do; *risky*: the call may have had effects.
    """
    what = f"🔧 **`{tool}` did not work:** {RECOVERABLE[code]}."
    warning = "It may have done a part of its work. *Retry* does all of it again." if risky else ""
    how = "How shall I go on? " + how_to_answer(choices=True, free_text=other)
    return "\n\n".join(filter(None, [what, subject, repair, warning, how]))


def sign_in_link(server: str, link: str, *, local: bool) -> str:
    """Say how to sign in at an MCP server. *local*: the person sits at the machine of the bot."""
    then = (
        "I notice when you are done."
        if local
        else "Your browser then shows an error at an address with `127.0.0.1`: that is as it should be. Copy the "
        f"whole address, and send it to me here within 10 minutes: `/mcp connect {server} ADDRESS`."
    )
    return f"Open this link, check where it leads, and sign in:\n```\n{link}\n```\n{then} Give it to nobody."


def sign_in_in_private(server: str) -> str:
    return (
        f"Say `/mcp connect {server}` to me, in a direct message or as a slash command: the answer has a link "
        "for you alone."
    )


def no_sign_in_link(server: str, why: str) -> str:
    return f"I have no link for you: {why}. `/mcp connect {server}` tries again."


def not_signed_in(server: str) -> str:
    return f"You are not signed in at {server} yet. `/mcp connect {server}` gives you a new link."


def any_of(tool: str) -> str:
    return f"any `{tool}`"


def revoked(count: int) -> str:
    """Say how many standing permissions of a thread were taken back."""
    if not count:
        return "Nothing is always allowed here."
    return f"Taken back: {count} thing{'s' if count > 1 else ''} that I was always allowed here. I ask again."


def nobody_to_ask(tool: str) -> str:
    return f"(I did not use {tool}: it needs somebody's permission, and nobody can be asked here.)"


def not_decided(tool: str) -> str:
    return f"(I did not use {tool}: nobody allowed it in time.)"


def refused(count: int) -> str:
    """Say that *count* messages were not taken because the mailbox is full."""
    if count == 1:
        return wording.FRIENDLY["mailbox_full"]
    return (
        f"I still have earlier messages to answer here, so I did not take your last {count} messages. "
        "Please send them again later."
    )


def too_fast(count: int) -> str:
    """Say that *count* messages were not taken because one person sent more than a minute may hold."""
    which = "this message" if count == 1 else f"your last {count} messages"
    return f"That was faster than I may answer one person, so I did not take {which}. Please try again in a minute."


def stale(count: int) -> str:
    """Say that *count* messages waited too long while the bot was down."""
    if count == 1:
        return STALE
    return (
        f"I was not running when {count} messages came in here and they are too old for me to start on now. "
        "Please send again what you still need."
    )


def cut_off(count: int) -> str:
    """Say that the turns of *count* messages were cut off and are not taken up again."""
    if count == 1:
        return CUT_OFF
    return (
        f"I was stopped while I worked on {count} messages here, and do not go on with them now. "
        "Please send again what you still need."
    )


def stopped(running: int, waiting: int) -> str:
    """Say what a stop ended: turns that were *running* and messages that were *waiting*."""
    if not running and not waiting:
        return NOTHING_TO_STOP
    if not waiting:
        return "Stopped."
    dropped = "1 waiting message" if waiting == 1 else f"{waiting} waiting messages"
    return f"Stopped, and dropped {dropped}." if running else f"Dropped {dropped}."


def nobody_to_agree(because: str, other: str) -> str:
    """Say that *other* was not asked in place of a model, and what to set so that it is."""
    return (
        f"{because}. {other} could answer, but somebody has to agree, and nobody can be asked here. "
        'With `failover.acknowledge` set to "notify" it answers at once, and says so.'
    )


def because(model: str, code: str) -> str:
    """Return why a model cannot answer, for example "openai/gpt-6 is rate limited"."""
    return f"{model} {REASONS.get(code, 'has trouble')}"


def switched(model: str, why: str) -> str:
    """Say which model answered in place of the one that was chosen; *why* is a clause as of `because`."""
    return f"({model} answered, because {why}.)"


def not_usable(model: str) -> str:
    return f"({model}, which this thread chose, cannot be used any more; say /model to choose another one.)"


def escalated(reasons: Sequence[str]) -> str:
    """Say to whoever runs the bot that nobody gets answers now; *reasons* are clauses as of `because`."""
    return f"I could not answer a message: {'; '.join(reasons)}. People are told to try again."


DECLINED_BY_PROVIDER = "An AI provider declined to answer a message, because of its content policy."


def where(thread: str, correlation_id: str) -> str:
    """Say to whoever runs the bot which thread it was in (a link, or the thread's id), and what finds the rest."""
    return f"It was in {thread} (ref {correlation_id})"


SETTINGS_REJECTED = "settings.json has a fault, so the settings before it go on"
FAULTS_NAMED = 5


def settings_rejected(faults: Sequence[str]) -> str:
    """Say to whoever runs the bot that a changed settings.json does not count; *faults* name no secret or path."""
    more = len(faults) - FAULTS_NAMED
    lines = [
        *(f"- {fault}" for fault in faults[:FAULTS_NAMED]),
        *([f"- and {more} more"] if more > 0 else []),
    ]
    return "\n".join(
        ["settings.json was changed and has a fault, so I go on with the settings before it:", *lines]
    )


def transport_down(name: str, since: datetime) -> str:
    """Say to whoever runs the bot that a platform cannot be reached; *since* is UTC."""
    return (
        f"I have been cut off from {name.capitalize()} since {since:%H:%M} UTC. "
        "I keep trying, and will say here when I am back."
    )


def transport_back(name: str, since: datetime, until: datetime, times: int, *, told: bool) -> str:
    """Say that a platform can be reached again: the first of its outages began *since*, the last ended *until*."""
    often = f"{times} times " if times > 1 else ""
    form = "%H:%M" if since.date() == until.date() else "%d %b %H:%M"
    late = "" if told else ", and have not said so until now"
    when = f"between {since.strftime(form)} and {until.strftime(form)} UTC"
    return f"I am connected to {name.capitalize()} again. I was cut off {often}{when}{late}."


def transport_stopped(name: str, fault: str) -> str:
    """Say that only a person can have a transport work again; *fault* names no secret and no path."""
    return f"I have stopped serving {name.capitalize()}, until somebody puts this right: {fault}"


def answered_by(model: str) -> str:
    return f"({model} answered.)"


def cut_by_the_model(read: int, sent: int) -> str:
    """Say that a model took in only *read* of about *sent* tokens."""
    return (
        f"(The model seems to have read only a part of our conversation: {read:,} of about {sent:,} tokens. "
        "Say /compact, or /new to start over.)"
    )


def effort_not_taken(model: str, effort: str, takes: Sequence[str]) -> str:
    """Return a clause on a choice of `reasoning` that a model does not take."""
    if not takes:
        return f"{model} cannot reason, so there is nothing to choose"
    if effort == "off":
        return f"{model} always reasons, so it cannot be off; it takes {', '.join(takes)}"
    return f"{model} does not take {effort} reasoning, only {', '.join(takes)}"


def without_tools(model: str) -> str:
    return f"({model} takes no tools where it runs, so it answers without them. /model lists others.)"


def effort_refused(model: str, effort: str) -> str:
    return f"({model} refuses to answer {EFFORTS[effort]}, so it reasoned as it usually does.)"
