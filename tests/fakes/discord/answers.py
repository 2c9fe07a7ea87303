"""Answers to interactions: the callback, the original answer, followups, and the list of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.discord import rules
from tests.fakes.discord.ids import APP, EPHEMERAL, LOADING, Json
from tests.fakes.discord.interactions import AUTOCOMPLETE, COMPONENT, TOKEN_LASTS, Interaction
from tests.fakes.discord.posting import change, compose
from tests.fakes.discord.records import Call, Message
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import message_view
from tests.fakes.discord.web import route

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord


@route("POST", "/interactions/{interaction}/{token}/callback", by_token=True)
def callback(discord: FakeDiscord, call: Call) -> Json | None:
    """The acknowledgement, which must come within three seconds and only once."""
    asked = discord.interactions.get(call.path["token"])
    after = discord.clock() - asked.sent_at if asked else 0.0
    if asked is None or asked.id != call.path["interaction"]:
        raise Refusal(404, 10062, "Unknown interaction")
    if asked.acked:
        raise Refusal(400, 40060, "Interaction has already been acknowledged.")
    if asked.expired or after > asked.deadline:
        raise Refusal(404, 10062, "Unknown interaction")
    kind, data = call.body.get("type"), call.body.get("data") or {}
    _check_kind(asked, kind)
    message = _carry_out(discord, asked, int(kind or 0), data, call)
    asked.kind = int(kind or 0)
    asked.heard.set()
    if call.query.get("with_response") not in ("1", "true"):
        return None
    return _resource(discord, asked, message)


def _check_kind(asked: Interaction, kind: object) -> None:
    by_component = (6,) if asked.type == COMPONENT else ()
    good = (8,) if asked.type == AUTOCOMPLETE else (4, 5, *by_component)
    if kind not in good:
        raise rules.invalid("type", "BASE_TYPE_CHOICES", f"Value must be one of {good}.")


def _carry_out(discord: FakeDiscord, asked: Interaction, kind: int, data: Json, call: Call) -> Message | None:
    match kind:
        case 4:
            asked.original = _say(discord, asked, data, call)
        case 5:
            asked.ephemeral = bool(int(data.get("flags") or 0) & EPHEMERAL)
            asked.original = _thinking(discord, asked)
        case 6:
            asked.original = asked.message
            return None
        case 8:
            asked.choices = list(data.get("choices") or ())
            if len(asked.choices) > 25:
                raise rules.too_long("data.choices", 25)
            return None
        case _:
            return None
    return asked.original


def _say(discord: FakeDiscord, asked: Interaction, body: Json, call: Call) -> Message:
    channel = discord.channels[asked.channel]
    if channel.locked:
        raise rules.archived(locked=True)
    message = compose(discord, body, channel, call.files, webhook=APP)
    message.interaction = _about(discord, asked)
    asked.answers.append(message)
    return discord.put(message)


def _thinking(discord: FakeDiscord, asked: Interaction) -> Message:
    message = Message(discord.snowflake(), asked.channel, discord.me, "", 20, webhook=APP)
    message.flags = LOADING | (EPHEMERAL if asked.ephemeral else 0)
    message.interaction = _about(discord, asked)
    return discord.put(message)


def _about(discord: FakeDiscord, asked: Interaction) -> Json:
    about = {"id": asked.id, "type": asked.type, "user": discord.users[asked.user].view()}
    return about | {"authorizing_integration_owners": {}}


def _resource(discord: FakeDiscord, asked: Interaction, message: Message | None) -> Json:
    about: Json = {"id": asked.id, "type": asked.type}
    resource: Json = {"type": asked.kind}
    if message:
        about["response_message_id"] = message.id
        about["response_message_loading"] = bool(message.flags & LOADING)
        about["response_message_ephemeral"] = message.ephemeral
        resource["message"] = message_view(discord, message)
    return {"interaction": about, "resource": resource}


# afterwards, by the token


def _asked(discord: FakeDiscord, call: Call) -> Interaction:
    asked = discord.interactions.get(call.path["token"])
    if asked is None or call.path["app"] != APP or not asked.acked:
        raise Refusal(404, 10015, "Unknown Webhook")
    if asked.expired or discord.clock() - asked.sent_at > TOKEN_LASTS:
        raise Refusal(401, 50027, "Invalid Webhook Token")
    return asked


def _answer(asked: Interaction, call: Call) -> Message:
    wanted = call.path["message"]
    known = [one for one in (asked.original, *asked.answers) if one]
    found = asked.original if wanted == "@original" else next((m for m in known if m.id == wanted), None)
    if found is None or found.deleted:
        raise rules.unknown_message()
    return found


@route("POST", "/webhooks/{app}/{token}", by_token=True)
def followup(discord: FakeDiscord, call: Call) -> Json | None:
    """A further answer; the first one after "thinks" takes the place of that."""
    asked = _asked(discord, call)
    thinks = asked.original
    if thinks and thinks.flags & LOADING:
        _fill(discord, asked, thinks, call)
        message = thinks
    else:
        message = _say(discord, asked, call.body, call)
    return message_view(discord, message) if call.query.get("wait", "true") in ("1", "true", "True") else None


def _fill(discord: FakeDiscord, asked: Interaction, thinks: Message, call: Call) -> None:
    change(discord, thinks, call.body, call.files)
    thinks.flags &= ~LOADING
    if thinks not in asked.answers:
        asked.answers.append(thinks)


@route("PATCH", "/webhooks/{app}/{token}/messages/{message}", by_token=True)
def rewrite(discord: FakeDiscord, call: Call) -> Json:
    asked = _asked(discord, call)
    message = _answer(asked, call)
    if message.flags & LOADING:
        _fill(discord, asked, message, call)
    else:
        change(discord, message, call.body, call.files)
    return message_view(discord, message)


@route("DELETE", "/webhooks/{app}/{token}/messages/{message}", by_token=True)
def remove(discord: FakeDiscord, call: Call) -> None:
    discord.erase(_answer(_asked(discord, call), call))


# commands


@route("PUT", "/applications/{app}/commands")
def overwrite(discord: FakeDiscord, call: Call) -> list[Json]:
    """All global commands at once."""
    if call.path["app"] != APP:
        raise Refusal(403, 20012, "You are not authorized to perform this action on this application")
    told = call.body.get("items") or []
    known = {one["name"]: one["id"] for one in discord.commands}
    discord.commands = [_registered(discord, one, known.get(one["name"])) for one in told]
    return discord.commands


@route("GET", "/applications/{app}/commands")
def registered(discord: FakeDiscord, call: Call) -> list[Json]:
    return discord.commands


def _registered(discord: FakeDiscord, told: Json, id: str | None) -> Json:
    kept = {
        "type": 1,
        "description": "",
        "default_member_permissions": None,
        "dm_permission": True,
        "nsfw": False,
    }
    named = {"id": id or discord.snowflake(), "application_id": APP, "version": discord.snowflake()}
    return kept | {key: value for key, value in told.items() if value is not None} | named
