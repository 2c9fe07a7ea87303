"""Slack's failed answers as our errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from threads.errors import PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from transports.shared.retry import retry_seconds

Kind = Literal["token", "scope", "place", "shape", "gone", "unsupported", "other"]
"""The cause of a refusal, see `FRIENDLY` and `ADVICE`."""

CODES: dict[Kind, str] = {
    "token": """
        token_revoked token_expired invalid_auth not_authed account_inactive user_removed_from_team
        team_access_not_granted app_uninstalled two_factor_setup_required
    """,
    "scope": "missing_scope no_permission",
    "place": """
        is_archived channel_not_found not_in_channel is_inactive access_denied ekm_access_denied team_not_found
        restricted_action restricted_action_read_only_channel restricted_action_thread_locked
        restricted_action_thread_only_channel restricted_action_non_threadable_channel
        cannot_reply_to_message thread_locked cannot_dm_bot messages_tab_disabled user_not_found user_not_in_channel
    """,
    "shape": """
        msg_too_long msg_blocks_too_long msg_blocks_too_many too_many_attachments no_text
        invalid_blocks invalid_blocks_format invalid_attachments invalid_chunks markdown_text_conflict
        invalid_metadata_format invalid_metadata_schema metadata_must_be_sent_from_app metadata_too_large
        invalid_arguments invalid_arg_name invalid_array_arg invalid_json json_not_object http_413 http_414
    """,
    "gone": """
        message_not_found thread_not_found cant_update_message cant_delete_message edit_window_closed
        message_not_in_streaming_state stopped_by_user bad_timestamp invalid_ts invalid_thread_ts
        file_not_found file_deleted session_not_found message_not_owned_by_app
    """,
    "unsupported": """
        unknown_method method_deprecated deprecated_endpoint method_not_supported_for_channel_type
        not_allowed_token_type not_authorized feature_not_enabled not_supported team_tier_cannot_use_feature
        enterprise_is_restricted missing_recipient_user_id missing_recipient_team_id http_404 http_405
    """,
}
"""Slack's codes, and the HTTP statuses of other servers; any other code is "other"."""

KINDS = {code: kind for kind, codes in CODES.items() for code in codes.split()}

_PASSING = """
    internal_error fatal_error service_unavailable request_timeout http_408 team_added_to_org org_login_required
    external_channel_migrating temporarily_unavailable failed_to_process update_failed server_error
"""
PASSING = frozenset(_PASSING.split())
"""Codes that will pass; a part of the call may have been done."""

RATE_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})

FRIENDLY: dict[Kind, str] = {
    "token": "Slack does not accept my credentials any more. An admin has to install me again.",
    "scope": "I do not have the permission for that in this workspace. An admin has to grant it.",
    "place": "Slack does not let me write here.",
    "shape": "Slack did not take the message in that form.",
    "gone": "The message is not there any more.",
    "unsupported": "This workspace does not offer that.",
    "other": "Slack refused that.",
}
"""For people in a thread."""

ADVICE: dict[Kind, str] = {
    "token": "install the app again and set the new token",
    "scope": "add the scope to the app (`threadfast manifest slack`) and install it again",
    "place": "unarchive the channel, invite the bot, or allow it to post there",
    "shape": "",
    "gone": "",
    "unsupported": "check the app's features (`threadfast manifest slack`) and `api_base_url`",
    "other": "",
}
"""For operators, after the code."""

NO_CODE = "no_code"


CLOSED: Mapping[str, str] = {
    "is_archived": "the channel is archived",
    "not_in_channel": "I am not in that channel",
    "channel_not_found": "I am not in that channel",
    "thread_locked": "the thread is locked",
    "restricted_action_thread_locked": "the thread is locked",
    **dict.fromkeys(
        (
            "access_denied",
            "no_permission",
            "restricted_action",
            "restricted_action_read_only_channel",
            "restricted_action_thread_only_channel",
            "restricted_action_non_threadable_channel",
        ),
        "I may not write there",
    ),
}
"""Why a place takes no post, by Slack's code, for people."""

THREAD_LOCKED = ("thread_locked", "restricted_action_thread_locked")


class SlackRefused(TransportRejected):
    """Slack refused the call; nothing was done.

    ``error`` is Slack's code, ``needed`` the scope of a `missing_scope`, ``kind`` what to do about it.
    """

    def __init__(self, method: str, error: str, needed: str = "") -> None:
        self.method, self.error, self.needed = method, error, needed
        self.kind = kind_of(error)
        self.friendly, self.closed = FRIENDLY[self.kind], CLOSED.get(error, "")
        self.only_thread, self.gone = error in THREAD_LOCKED, self.kind == "gone"
        scope = f" (needs {needed})" if needed else ""
        advice = ADVICE[self.kind]
        super().__init__(f"{method}: {error}{scope}{advice and ': '}{advice}")


def kind_of(code: str) -> Kind:
    return KINDS.get(code, "other")


def refused_for_good(error: PostFailed) -> bool:
    """Return whether every form of the same call would be refused: for the token, a right, or the place."""
    return isinstance(error, SlackRefused) and error.kind in ("token", "scope", "place")


def needs_a_person(refused: SlackRefused) -> bool:
    """Return whether the call is refused until a person changes the token or its rights."""
    return refused.kind in ("token", "scope") or refused.error == "not_allowed_token_type"


def may_create_post(method: str) -> bool:
    """Return whether a repeated call may show twice, so it is looked up first."""
    return method.startswith(("chat.", "files.complete")) and method != "chat.delete"


def explain(method: str, status: int, headers: Mapping[str, str], body: JsonValue) -> PostFailed:
    """Return the error of an answer that is not a plain ok."""
    code, needed = _code(body)
    if status == 429 or code in RATE_LIMITED:
        return TransportRateLimited(
            f"{method}: rate limited", retry_after=retry_seconds(headers.get("Retry-After", ""))
        )
    if code and code not in PASSING:
        return SlackRefused(method, code, needed)
    if not code and f"http_{status}" in KINDS:
        return SlackRefused(method, f"http_{status}")
    reason = code or f"status {status} and no answer of Slack's"
    return TransportUnavailable(f"{method}: {reason}", maybe_posted=may_create_post(method))


def _code(body: JsonValue) -> tuple[str, str]:
    """Return Slack's code and the scope it names; both blank if this is not a refusal of Slack's."""
    match body:
        case {"ok": False, "error": str(code), "needed": str(needed)} if code:
            return code[:100], needed[:200]
        case {"ok": False, "error": str(code)} if code:
            return code[:100], ""
        case {"ok": False}:
            return NO_CODE, ""
        case _:
            return "", ""
