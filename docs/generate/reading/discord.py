"""Discord's kinds: of components, of the parts of a message beside its text, and of messages."""

from __future__ import annotations

from docs.generate.reading import Row

LINK = "https://a.example/x"
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

EMBED = {
    "type": "rich",
    "provider": {"name": "CI"},
    "author": {"name": "Ann", "url": "https://a.example/ann"},
    "title": "Build 7",
    "url": "https://a.example/7",
    "description": "failed",
    "fields": [{"name": "branch", "value": "main"}],
    "footer": {"text": "after 3 min"},
}
READ_EMBED = (
    "CI\nAnn (https://a.example/ann)\nBuild 7 (https://a.example/7)\nfailed\nbranch: main\nafter 3 min"
)
POLL = {
    "question": {"text": "Lunch?"},
    "answers": [
        {"answer_id": 1, "poll_media": {"text": "yes"}},
        {"answer_id": 2, "poll_media": {"text": "no"}},
    ],
    "layout_type": 1,
    "allow_multiselect": False,
}
SNAPSHOT = {"type": 0, "attachments": [], "timestamp": "2023-11-14T22:13:57+00:00", "edited_timestamp": None}

PARTS = (
    Row("content", "text", {"content": "hi"}, "hi"),
    Row(
        "sticker_items",
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
        "> Forwarded message:\n> see\n" + "\n".join(f"> {line}" for line in READ_EMBED.split("\n")),
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
)
