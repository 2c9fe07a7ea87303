"""Discord's kinds: of components, of the parts of a message beside its text, and of messages."""

from __future__ import annotations

import discord

from docs.generate.reading import Row
from transports.discord.events.notices import NOTICES, STARTER

LINK = "https://a.example/x"
SENT_AT = "2023-11-14T22:13:57+00:00"
PICTURE = {"url": "https://cdn.example/a.png"}
TEXT = {"type": 10, "content": "deploy of **api**"}
OPTIONS = [{"label": "Red", "value": "r"}, {"label": "Blue", "value": "b", "description": "like the sky"}]
FORM = "it stands in forms, which are no messages"
LABEL = {"type": 18, "label": "Which?", "description": "one is enough"}

COMPONENTS = (
    Row(
        "action_row",
        "buttons and menus",
        {"components": [{"type": 2, "style": 5, "label": "Log", "url": LINK}]},
        f"[button: [Log]({LINK})]",
    ),
    Row("button", "a button", {"style": 1, "label": "Approve", "custom_id": "a"}, "[button: Approve]"),
    Row(
        "select",
        "a menu",
        {"custom_id": "s", "placeholder": "Pick one", "options": OPTIONS},
        "Pick one\n- Red\n- Blue - like the sky",
    ),
    Row(
        "text_input",
        "a field to fill in",
        {"style": 1, "custom_id": "t", "label": "Name", "placeholder": "Ann"},
        "Name\nAnn",
    ),
    *(
        Row(
            kind,
            "a menu",
            {"custom_id": "s", "placeholder": "Pick one"},
            "Pick one",
            "its entries are loaded when it is opened",
        )
        for kind in ("user_select", "role_select", "mentionable_select", "channel_select")
    ),
    Row(
        "section",
        "texts beside a picture or a button",
        {"components": [TEXT], "accessory": {"type": 11, "media": PICTURE, "description": "a graph"}},
        "deploy of **api**\n[image: a graph]",
    ),
    Row("text_display", "text", {"content": "# Done"}, "# Done"),
    Row(
        "thumbnail",
        "a small picture",
        {"media": PICTURE, "description": "a face"},
        "[image: a face]",
        "the picture itself is not fetched",
    ),
    Row(
        "media_gallery",
        "pictures",
        {"items": [{"media": PICTURE, "description": "one"}, {"media": PICTURE}]},
        "[image: one]\n[image]",
        "the pictures themselves are not fetched",
    ),
    Row(
        "file",
        "a file",
        {"file": {"url": "attachment://notes.txt"}, "name": "notes.txt", "size": 3},
        "[file: notes.txt]",
    ),
    Row("separator", "a line", {}, "", "it has no words"),
    Row(
        "container",
        "a frame around the others",
        {"components": [TEXT, {"type": 14}, {"type": 10, "content": "by Ann"}]},
        "deploy of **api**\nby Ann",
    ),
    Row(
        "label",
        "a question of a form",
        {**LABEL, "component": {"type": 21, "custom_id": "r", "options": OPTIONS}},
        "Which?\none is enough\n- Red\n- Blue - like the sky",
        FORM,
    ),
    Row("file_upload", "a place for files", {"custom_id": "f"}, "", FORM),
    Row(
        "radio_group", "choices", {"custom_id": "r", "options": OPTIONS}, "- Red\n- Blue - like the sky", FORM
    ),
    Row(
        "checkbox_group",
        "boxes to tick",
        {"custom_id": "c", "options": OPTIONS},
        "- Red\n- Blue - like the sky",
        FORM,
    ),
    Row("checkbox", "a box to tick", {"custom_id": "c"}, "", FORM),
)
"""By the library's names of the types."""


def _embed(**fields: object) -> dict[str, object]:
    return {"embeds": [{"type": "rich", **fields}]}


EMBEDS = (
    Row("type", "what kind of card it is", _embed(title="Build 7"), "Build 7", "it says how it looks"),
    Row("provider", "the name of the site", _embed(provider={"name": "CI"}), "CI"),
    Row("author", "who it is of", _embed(author={"name": "Ann", "url": LINK}), f"Ann ({LINK})"),
    Row("title", "a heading", _embed(title="Build 7"), "Build 7"),
    Row("url", "where the heading leads", _embed(title="Build 7", url=LINK), f"Build 7 ({LINK})"),
    Row("description", "text", _embed(description="**failed**"), "**failed**"),
    Row("fields", "names and values", _embed(fields=[{"name": "branch", "value": "main"}]), "branch: main"),
    Row("image", "a picture", _embed(title="x", image=PICTURE), "x\n[image]", "the picture is not fetched"),
    Row("thumbnail", "a small picture", _embed(thumbnail=PICTURE), "[image]", "the picture is not fetched"),
    Row("video", "a film", _embed(video=PICTURE), "[video]", "the film is not fetched"),
    Row("footer", "small print", _embed(footer={"text": "after 3 min"}), "after 3 min"),
    Row("timestamp", "a time", _embed(timestamp=SENT_AT), "2023-11-14 22:13 UTC"),
    Row("color", "a stripe", _embed(title="x", color=255), "x", "it has no words"),
    Row("flags", "nothing", _embed(title="x", flags=32), "x", "it says how the card came about"),
)
"""By the fields of an embed."""

EMBED = {"type": "rich", "title": "Build 7", "description": "failed"}
READ_EMBED = "Build 7\nfailed"
POLL = {
    "question": {"text": "Lunch?"},
    "answers": [
        {"answer_id": 1, "poll_media": {"text": "yes"}},
        {"answer_id": 2, "poll_media": {"text": "no"}},
    ],
    "layout_type": 1,
    "allow_multiselect": False,
}
SNAPSHOT = {"type": 0, "attachments": [], "timestamp": SENT_AT, "edited_timestamp": None}

PARTS = (
    Row("content", "text", {"content": "hi"}, "hi"),
    Row(
        "stickers",
        "a sticker",
        {"sticker_items": [{"id": "1", "name": "Wave", "format_type": 1}]},
        "[sticker: Wave]",
    ),
    Row(
        "poll", "a poll", {"poll": {**POLL, "expiry": "2023-11-15T22:13:57+00:00"}}, "[poll: Lunch? yes / no]"
    ),
    Row("poll", "a poll without an end", {"poll": {**POLL, "expiry": None}}, "[poll: Lunch? yes / no]"),
    Row(
        "poll",
        "a poll with votes",
        {
            "poll": {
                **POLL,
                "expiry": None,
                "results": {
                    "is_finalized": True,
                    "answer_counts": [{"id": 1, "count": 3, "me_voted": False}],
                },
            }
        },
        "[poll: Lunch? yes (3) / no]",
    ),
    Row("embeds", "a card", {"embeds": [EMBED]}, READ_EMBED),
    Row(
        "components",
        "a message of Components V2",
        {"flags": 1 << 15, "components": [{"type": 17, "components": [TEXT]}]},
        "deploy of **api**",
    ),
    Row(
        "components",
        "a component of tomorrow",
        {"flags": 1 << 15, "components": [{"type": 17, "components": [{"type": 99}]}]},
        "[a component of type 99 that I cannot read]",
    ),
    Row(
        "message_snapshots",
        "a forwarded message",
        {
            "message_reference": {"type": 1, "message_id": "1", "channel_id": "2"},
            "message_snapshots": [{"message": {**SNAPSHOT, "content": "see", "embeds": [EMBED]}}],
        },
        "> Forwarded message:\n> see\n> Build 7\n> failed",
    ),
    Row(
        "message_snapshots",
        "a forwarded message of which the app is told nothing",
        {
            "message_reference": {"type": 1, "message_id": "1", "channel_id": "2"},
            "message_snapshots": [{"message": {**SNAPSHOT, "content": "", "embeds": []}}],
        },
        "> Forwarded message:\n> [nothing that I can read]",
    ),
    Row(
        "message_snapshots",
        "a forwarded message of Components V2",
        {
            "message_reference": {"type": 1, "message_id": "1", "channel_id": "2"},
            "message_snapshots": [
                {"message": {**SNAPSHOT, "content": "", "embeds": [], "flags": 1 << 15, "components": [TEXT]}}
            ],
        },
        "> Forwarded message:\n> deploy of **api**",
    ),
    Row(
        "attachments",
        "a picture with a description",
        {
            "content": "hi",
            "attachments": [
                {
                    "id": "1",
                    "filename": "a.png",
                    "description": "a graph",
                    "size": 3,
                    "proxy_url": LINK,
                    **PICTURE,
                }
            ],
        },
        "hi\n[a.png: a graph]",
        "the file itself comes with the message",
    ),
    Row(
        "activity",
        "an invitation to a game or a call",
        {
            "activity": {"type": 1, "party_id": "1"},
            "application": {"id": "1", "name": "Chess", "description": "", "icon": None},
        },
        "[invitation: Chess]",
    ),
    *(
        Row(kind, sees, {"content": "hi", **shape}, "hi", why)
        for kind, sees, shape, why in (
            ("application", "the game of an invitation", {}, "it is read with the invitation"),
            ("application_id", "nothing", {"application_id": "1"}, "it names a program"),
            ("author", "a name", {}, "each message is read with who wrote it"),
            ("call", "how long a call took", {}, "a call is read as a notice"),
            ("flags", "how it looks", {}, "see the table of flags"),
            ("interaction_metadata", "who gave a command", {}, "it has no words of its own"),
            ("mention_everyone", "@everyone", {"mention_everyone": True}, "the text says so"),
            ("mentions", "names", {}, "they are read in the text"),
            ("nonce", "nothing", {"nonce": "1"}, "it is for programs"),
            ("pinned", "a pin", {"pinned": True}, "it has no words"),
            ("position", "nothing", {"position": 3}, "it is for programs"),
            ("purchase_notification", "what somebody bought", {}, "it is read as a notice"),
            ("reactions", "emoji below it", {}, "they are signs, and change later"),
            ("role_mentions", "names of roles", {}, "they are read in the text"),
            ("role_subscription", "a membership", {}, "it is read as a notice"),
            ("tts", "it is read aloud", {"tts": True}, "it says how it sounds"),
            ("type", "a message or a notice", {}, "see the table of types"),
            ("webhook_id", "nothing", {}, "the author's name is read"),
        )
    ),
    Row(
        "reference",
        "the message that it answers",
        {
            "type": 19,
            "content": "why?",
            "message_reference": {"type": 0, "message_id": "1", "channel_id": "2"},
            "referenced_message": None,
        },
        "why?\n\n> In reply to a message:\n> [it is deleted]",
    ),
)
"""By the library's names of the parts of a message."""

STICKERS = tuple(
    Row(
        kind.name,
        "a sticker",
        {"sticker_items": [{"id": "1", "name": "Wave", "format_type": kind.value}]},
        "[sticker: Wave]",
        "the picture itself is not fetched",
    )
    for kind in discord.StickerFormatType
)
"""By the library's names of the formats."""

NO_WORDS = "it says how the message is shown or sent"

FLAGS = tuple(
    Row(kind, sees, {"flags": discord.MessageFlags.VALID_FLAGS[kind], "content": "hi"}, "hi", why)
    for kind, sees, why in (
        ("crossposted", "it was published to other servers", NO_WORDS),
        ("is_crossposted", "it comes from a channel that is followed", NO_WORDS),
        ("suppress_embeds", "no previews", NO_WORDS),
        ("source_message_deleted", "it was deleted where it was published", NO_WORDS),
        ("urgent", "it is Discord's own warning", NO_WORDS),
        ("has_thread", "a thread below it", "the thread has its own conversation"),
        ("ephemeral", "for one person alone", "the bot gets only its own, and leaves them out"),
        ("loading", "an app thinks", "its words come with an edit"),
        ("failed_to_mention_some_roles_in_thread", "not all were told", NO_WORDS),
        ("suppress_notifications", "nobody is told of it", NO_WORDS),
        ("silent", "nobody is told of it", NO_WORDS),
        ("voice", "a voice message", "it is heard as a recording"),
        ("forwarded", "a forward", "see `message_snapshots`"),
        ("components_v2", "a message of components alone", "see the table of components"),
    )
)
"""By the library's names of the flags."""

MESSAGES = (
    Row("default", "a message", {"content": "hi"}, "hi"),
    Row("reply", "a reply", {"content": "hi"}, "hi"),
    Row("chat_input_command", "an app's answer to a command", {"content": "done"}, "done"),
    Row("context_menu_command", "an app's answer to a menu", {"content": "done"}, "done"),
    Row(
        STARTER.name,
        "the message that the thread was opened from",
        {},
        f"[{NOTICES[STARTER]}]",
        "it is asked for in the channel",
    ),
    *(
        Row(
            kind.name,
            "a notice of Discord's",
            {"content": "Monday"},
            f"[{words.format(who='Ann', whom='Bob', what='Monday')}]",
        )
        for kind, words in NOTICES.items()
        if kind != STARTER
    ),
)
"""By the library's names of the types. A notice is read as a line of its thread; it is never a message to the bot."""
