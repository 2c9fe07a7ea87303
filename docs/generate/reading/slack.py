"""Slack's kinds: of blocks, elements and texts, of rich text, of attachments, of files, and of messages."""

from __future__ import annotations

from docs.generate.reading import Row, Shape


def text(words: str) -> Shape:
    return {"type": "plain_text", "text": words}


def rich(*elements: Shape) -> Shape:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [*elements]}]}


def cell(words: str) -> Shape:
    return {"type": "raw_text", "text": words}


LINK = "https://a.example/x"
OPTIONS = [{"text": text("Red"), "value": "r"}, {"text": text("Blue"), "description": text("like the sky")}]
TABLE = [
    [cell("Item"), {"type": "raw_text", "text": "Price"}],
    [rich({"type": "text", "text": "Tea"}), {"type": "raw_number", "value": 9.5, "text": "9.50"}],
]
READ_TABLE = "| Item | Price |\n| --- | --- |\n| Tea | 9.50 |"
FOR_THE_BOT = "they are controls of the app, without words of their own"
FORM = "an empty field of a form; what people fill in goes to its app"

BLOCKS = (
    Row(
        "actions",
        "buttons and menus",
        {"elements": [{"type": "button", "text": text("Open"), "url": LINK}]},
        f"[button: Open ({LINK})]",
    ),
    Row(
        "alert",
        "a coloured notice",
        {"text": {"type": "mrkdwn", "text": "*Disk* full"}, "level": "error"},
        "*Disk* full",
    ),
    Row(
        "auth_provider",
        "an account that can be connected",
        {"name": "Drive", "description": "Your files"},
        "Drive\nYour files",
    ),
    Row(
        "call",
        "a card of a call",
        {"call_id": "R1", "call": {"v1": {"name": "Standup"}}},
        "[call]",
        "its details are Slack's own",
    ),
    Row(
        "card",
        "a card",
        {
            "title": text("Invoice 7"),
            "subtitle": text("due"),
            "body": {"type": "mrkdwn", "text": "90 EUR"},
            "hero_image": {"type": "image", "alt_text": "a bill"},
            "actions": [{"type": "button", "text": text("Pay")}],
        },
        "Invoice 7\ndue\n90 EUR\n[image: a bill]\n[button: Pay]",
    ),
    Row(
        "carousel",
        "cards side by side",
        {"elements": [{"type": "card", "title": text("One")}, {"type": "card", "title": text("Two")}]},
        "One\nTwo",
    ),
    Row(
        "container",
        "a frame around blocks",
        {"title": text("Report"), "child_blocks": [{"type": "header", "text": text("Week 48")}]},
        "Report\nWeek 48",
    ),
    Row(
        "context",
        "small print",
        {
            "elements": [
                {"type": "mrkdwn", "text": "by Ann"},
                {"type": "image", "alt_text": "a face", "image_url": LINK},
            ]
        },
        "by Ann\n[image: a face]",
    ),
    Row(
        "context_actions",
        "thumbs and small icons below an answer",
        {"elements": [{"type": "feedback_buttons"}]},
        "",
        FOR_THE_BOT,
    ),
    Row(
        "data_table",
        "a table to sort and filter",
        {"caption": "Prices", "rows": TABLE},
        f"Prices\n{READ_TABLE}",
    ),
    Row(
        "data_visualization",
        "a chart",
        {
            "title": "Load",
            "chart": {
                "type": "line",
                "series": [
                    {"name": "cpu", "data": [{"label": "Mon", "value": 3}, {"label": "Tue", "value": 5}]}
                ],
            },
        },
        "[chart: Load]\ncpu: Mon 3, Tue 5",
    ),
    Row("divider", "a line", {}, "", "it has no words"),
    Row("file", "a file of another service", {"external_id": "ABC", "source": "remote"}, "[file: ABC]"),
    Row("header", "a heading", {"text": text("Deploy & pray")}, "Deploy & pray"),
    Row(
        "image",
        "a picture",
        {"alt_text": "a graph that falls", "image_url": LINK, "title": text("Sales")},
        "[image: a graph that falls]",
        "the picture itself is not fetched from other hosts",
    ),
    Row(
        "input",
        "a field to fill in",
        {
            "label": text("Name"),
            "hint": text("in full"),
            "element": {"type": "plain_text_input", "placeholder": text("Ann")},
        },
        "Name\nin full\nAnn",
    ),
    Row("markdown", "formatted text", {"text": "**Bold** and `code`"}, "**Bold** and `code`"),
    Row(
        "plan",
        "a list of tasks",
        {"title": "Trip", "tasks": [{"type": "task_card", "title": "Book", "status": "complete"}]},
        "Trip\nBook (complete)",
    ),
    Row(
        "rich_text",
        "what a person types",
        {"elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "1 < 2"}]}]},
        "1 < 2",
    ),
    Row(
        "section",
        "text, fields and one element",
        {
            "text": {"type": "mrkdwn", "text": "build"},
            "fields": [{"type": "mrkdwn", "text": "*By* Ann"}],
            "accessory": {"type": "button", "text": text("Log"), "url": LINK},
        },
        f"build\n*By* Ann\n[button: Log ({LINK})]",
    ),
    Row("table", "a table", {"rows": TABLE}, READ_TABLE),
    Row(
        "task_card",
        "a task of an agent",
        {
            "title": "Search",
            "status": "in_progress",
            "details": rich({"type": "text", "text": "two pages"}),
            "sources": [{"type": "url", "url": LINK, "text": "docs"}],
        },
        f"Search (in_progress)\ntwo pages\ndocs ({LINK})",
    ),
    Row(
        "video",
        "a film",
        {"title": text("Tour"), "title_url": LINK, "description": text("of the house"), "author_name": "Bob"},
        f"Tour ({LINK})\nof the house\nBob",
    ),
)

TEXTS = (
    Row(
        "mrkdwn",
        "formatted text",
        {"text": "see <https://a.example/x|here> &amp; there"},
        f"see here ({LINK}) & there",
    ),
    Row("plain_text", "plain text", {"text": "<b> & c"}, "<b> & c"),
    Row("raw_number", "a number in a table", {"value": 980, "text": "980"}, "980"),
    Row("raw_text", "a cell of a table", {"text": "Price"}, "Price"),
)

MENUS = tuple(
    Row(
        kind,
        "a menu",
        {"placeholder": text("Pick one"), "options": OPTIONS},
        "Pick one\n- Red\n- Blue - like the sky",
    )
    for kind in ("static_select", "multi_static_select")
) + tuple(
    Row(
        kind,
        "a menu",
        {"placeholder": text("Pick one")},
        "Pick one",
        "its entries are loaded when it is opened",
    )
    for kind in (
        "channels_select",
        "conversations_select",
        "external_select",
        "users_select",
        "multi_channels_select",
        "multi_conversations_select",
        "multi_external_select",
        "multi_users_select",
    )
)

FIELDS = tuple(
    Row(kind, "a field to fill in", {"placeholder": text("Here")}, "Here", FORM)
    for kind in (
        "datepicker",
        "datetimepicker",
        "email_text_input",
        "file_input",
        "number_input",
        "plain_text_input",
        "rich_text_input",
        "timepicker",
        "url_text_input",
    )
)

ELEMENTS = (
    Row("button", "a button", {"text": text("Approve"), "url": LINK}, f"[button: Approve ({LINK})]"),
    Row("checkboxes", "boxes to tick", {"options": OPTIONS}, "- Red\n- Blue - like the sky"),
    Row("feedback_buttons", "two thumbs", {"positive_button": {"text": text("Good")}}, "", FOR_THE_BOT),
    Row("icon_button", "a small icon", {"icon": "trash", "text": text("Delete")}, "[button: Delete]"),
    Row("overflow", "a menu behind three dots", {"options": OPTIONS}, "- Red\n- Blue - like the sky"),
    Row("radio_buttons", "choices", {"options": OPTIONS}, "- Red\n- Blue - like the sky"),
    Row(
        "select",
        "a menu of an old app",
        {"text": "Pick one", "options": [{"text": "Red", "value": "r"}]},
        "Pick one\n- Red",
    ),
    Row("url", "a source of a task", {"url": LINK, "text": "docs"}, f"docs ({LINK})"),
    Row("workflow_button", "a button that starts a workflow", {"text": text("Start")}, "[button: Start]"),
    *MENUS,
    *FIELDS,
)

RICH_TEXT = (
    Row(
        "attachment_mention",
        "a link to an app's item",
        {"text": "Ticket 9", "url": LINK},
        f"[attachment: Ticket 9 ({LINK})]",
    ),
    Row("broadcast", "@here", {"range": "here"}, "@here"),
    Row(
        "canvas",
        "a link to a canvas",
        {"file_id": "F1", "label": "Plan"},
        "[canvas: Plan]",
        "what a canvas says is read as its file",
    ),
    Row(
        "canvas_message_unfurl",
        "a message in a canvas",
        {"text": "hi", "url": LINK},
        f"[message: hi ({LINK})]",
    ),
    Row("canvas_user_mention", "@Ann", {"user_id": "U2"}, "@Ann"),
    Row("channel", "#general", {"channel_id": "C2"}, "#general"),
    Row("citation", "a source", {"text": "docs", "url": LINK}, f"docs ({LINK})"),
    Row("color", "a colour", {"value": "#ff0000"}, "#ff0000"),
    Row(
        "date",
        "a date in the reader's time",
        {"timestamp": 1720710212, "format": "{date}", "fallback": "July 11"},
        "July 11",
    ),
    Row("emoji", "an emoji", {"name": "wave"}, ":wave:"),
    Row("file", "a link to a file", {"file_id": "F1", "label": "notes"}, "[file: notes]"),
    Row("link", "a link", {"url": LINK, "text": "docs"}, f"docs ({LINK})"),
    Row(
        "list_record",
        "a record of a list",
        {"file_id": "F1", "text": "Buy tea", "url": LINK},
        f"[list record: Buy tea ({LINK})]",
    ),
    Row(
        "message_mention",
        "a link to a message",
        {"channel_id": "C2", "message_ts": "1.2", "text": "the plan", "url": LINK},
        f"[message: the plan ({LINK})]",
    ),
    Row("rich_text_divider", "a line", {}, "", "it has no words"),
    Row("rich_text_header", "a heading", {"text": text("Goals")}, "Goals"),
    Row(
        "rich_text_list",
        "a list",
        {
            "style": "ordered",
            "elements": [
                {"type": "rich_text_section", "elements": [{"type": "text", "text": word}]}
                for word in ("tea", "milk")
            ],
        },
        "1. tea\n2. milk",
    ),
    Row(
        "rich_text_preformatted", "code", {"elements": [{"type": "text", "text": "ls -l"}]}, "```\nls -l\n```"
    ),
    Row("rich_text_quote", "a quote", {"elements": [{"type": "text", "text": "yes\nno"}]}, "> yes\n> no"),
    Row(
        "rich_text_section",
        "a line of text",
        {
            "elements": [
                {"type": "text", "text": "a "},
                {"type": "text", "text": "b", "style": {"bold": True}},
            ]
        },
        "a b",
    ),
    Row("salesforce_data_field", "a field of a record", {"label": "Stage"}, "[Salesforce field: Stage]"),
    Row("tag", "a tag", {"text": "urgent"}, "urgent"),
    Row("team", "a workspace", {"team_id": "T2"}, "@T2"),
    Row("text", "words", {"text": "hello"}, "hello"),
    Row("user", "@Ann", {"user_id": "U2"}, "@Ann"),
    Row("usergroup", "@ops", {"usergroup_id": "S1"}, "@ops"),
    Row(
        "work_object_mention",
        "an item of an app",
        {"text": "Lead 7", "url": LINK},
        f"[item: Lead 7 ({LINK})]",
    ),
    Row("workflow_mention", "a workflow", {"text": "Onboard"}, "[workflow: Onboard]"),
)

PREVIEW = f"> Preview of {LINK}:\n> "
NO_WORDS = "it has no words"
NOT_SHOWN = "people do not see it"

ATTACHMENTS = (
    Row("pretext", "a line above", {"pretext": "disk of db1"}, "disk of db1"),
    Row("author_name", "an author", {"author_name": "Grafana"}, "Grafana"),
    Row(
        "author_link", "the author's link", {"author_name": "Sentry", "author_link": LINK}, f"Sentry ({LINK})"
    ),
    Row("author_subname", "more of the author", {"author_name": "Eve", "author_subname": "eve2"}, "Eve eve2"),
    Row("title", "a heading", {"title": "Alarm 7"}, "Alarm 7"),
    Row("title_link", "the heading's link", {"title": "Alarm 8", "title_link": LINK}, f"Alarm 8 ({LINK})"),
    Row("text", "text", {"text": "/var is *full* &amp; hot"}, "/var is *full* & hot"),
    Row(
        "fields",
        "a small table",
        {"fields": [{"title": "Host", "value": "db1", "short": True}, {"value": "urgent"}]},
        "Host: db1\nurgent",
    ),
    Row(
        "blocks",
        "blocks, as a pasted table",
        {"blocks": [{"type": "table", "rows": TABLE[1:]}]},
        "| Tea | 9.50 |\n| --- | --- |",
    ),
    Row(
        "actions",
        "buttons and menus of an old app",
        {"actions": [{"type": "button", "text": "Restart", "url": LINK}], "fallback": "no buttons here"},
        f"[button: Restart ({LINK})]",
    ),
    Row(
        "image_url",
        "a picture",
        {"title": "CPU", "image_url": LINK},
        "CPU\n[image]",
        "it is not fetched from other hosts",
    ),
    Row("footer", "small print", {"text": "saved", "footer": "by cron"}, "saved\nby cron"),
    Row(
        "ts",
        "a time",
        {"text": "failed", "footer": "CI", "ts": 1700000000},
        "failed\nCI | 2023-11-14 22:13 UTC",
    ),
    Row(
        "fallback",
        "nothing where it can be shown",
        {"fallback": "load is high"},
        "load is high",
        "only where nothing else of it can be read",
    ),
    Row(
        "is_share",
        "a forwarded message",
        {
            "is_share": True,
            "author_name": "Ann",
            "text": "see <@U2>",
            "ts": "1700000000.000100",
            "footer": "Posted in #general",
            "from_url": f"{LINK}/p1",
        },
        f"> Forwarded message from Ann:\n> see @Ann\n> Posted in #general | 2023-11-14 22:13 UTC | {LINK}/p1",
    ),
    Row(
        "message_blocks",
        "a forwarded message of blocks",
        {
            "is_share": True,
            "fallback": "[no preview available]",
            "message_blocks": [{"message": {"blocks": [{"type": "header", "text": text("Plan B")}]}}],
        },
        "> Forwarded message:\n> Plan B",
    ),
    Row(
        "is_reply_unfurl",
        "a linked reply",
        {"is_reply_unfurl": True, "author_name": "Cem", "text": "or not"},
        "> Forwarded message from Cem:\n> or not",
    ),
    Row(
        "is_msg_unfurl",
        "a linked message",
        {"is_msg_unfurl": True, "from_url": LINK, "author_subname": "Ben", "text": "it works"},
        "> Forwarded message from Ben:\n> it works",
    ),
    Row(
        "files",
        "files of a forwarded message",
        {"is_share": True, "files": [{"id": "F1", "name": "a.txt"}]},
        "",
        "they come as files",
    ),
    Row("from_url", "a preview of a page", {"from_url": LINK, "title": "Buy"}, f"{PREVIEW}Buy"),
    Row("original_url", "a preview of a page", {"original_url": LINK, "text": "Pay"}, f"{PREVIEW}Pay"),
    Row(
        "is_app_unfurl",
        "a preview by an app",
        {"is_app_unfurl": True, "from_url": LINK, "text": "T-1"},
        f"{PREVIEW}T-1",
    ),
    Row("service_name", "whose preview it is", {"from_url": LINK, "service_name": "Maps"}, f"{PREVIEW}Maps"),
    *(
        Row(kind, "a small picture", {kind: LINK, "fallback": "[no preview available]"}, "", NO_WORDS)
        for kind in ("author_icon", "footer_icon", "service_icon", "thumb_url")
    ),
    Row("color", "a coloured bar", {"color": "#ff0000"}, "", NO_WORDS),
    *(
        Row(kind, "nothing", {kind: "x1"}, "", NOT_SHOWN)
        for kind in (
            "attachment_type",
            "author_id",
            "callback_id",
            "channel_id",
            "id",
            "msg_subtype",
            "mrkdwn_in",
            "short",
        )
    ),
)

FILES = (
    Row("hosted", "a file", {}, "hello"),
    Row("snippet", "a snippet of text or code", {"filetype": "python"}, "hello"),
    Row("post", "a post", {"filetype": "post"}, "hello"),
    Row("space", "a post of an older kind", {"filetype": "space"}, "hello"),
    Row("email", "a mail that was sent to Slack", {"filetype": "email", "mimetype": "text/html"}, "hello"),
    *(
        Row(
            mode,
            "a canvas",
            {"title": "Plan", "mimetype": "application/vnd.slack-docs", "size": 9_999},
            "hello",
            "it comes as a web page",
        )
        for mode in ("canvas", "docs", "quip")
    ),
    Row("file_access", "a file of another company", {}, "hello"),
    Row(
        "external",
        "a file of another service",
        {"url_private": "https://docs.example/d/1", "url_private_download": None, "size": 0},
        "it is kept outside of Slack, and I only read files that Slack keeps.",
        "the bot has no account there",
    ),
    Row(
        "list",
        "a list of Slack's",
        {"filetype": "list"},
        "it is a Slack List, which I cannot read. I can read a CSV file that is exported from it.",
        "Slack gives lists to apps with a permission of their own",
    ),
    Row(
        "hidden_by_limit",
        "a notice",
        {"url_private": None, "url_private_download": None},
        "Slack hides it, because this workspace has reached the limit of its plan.",
        "people do not see it either",
    ),
    Row(
        "huddle_transcript",
        "the transcript of a huddle",
        {},
        "it is the transcript of a huddle, which Slack does not give to apps.",
        "Slack does not hand it out",
    ),
    Row("tombstone", "a notice", {}, "", "the file was deleted"),
)

SAID = (
    Row("", "a message", {"text": "hi &amp; bye"}, "hi & bye"),
    Row(
        "bot_message",
        "a message of an app",
        {"text": "disk full", "bot_id": "B2"},
        "disk full",
        "it is for the bot only if the app is listed",
    ),
    Row("file_share", "a message with files", {"text": "look"}, "look"),
    Row("me_message", "an action: /me", {"text": "waves"}, "waves"),
    Row("reply_broadcast", "a reply that the channel sees too", {"text": "done"}, "done"),
    Row("thread_broadcast", "a reply that the channel sees too", {"text": "done"}, "done"),
)
"""Messages that are for the bot in a direct message, or if they name it."""

_DOES = {
    "app_conversation_join": "an app joins",
    "app_conversation_leave": "an app leaves",
    "assistant_app_thread": "a conversation with an app begins",
    "bot_add": "an app is added",
    "bot_disable": "an app is disabled",
    "bot_enable": "an app is enabled",
    "bot_remove": "an app is removed",
    "channel_archive": "a channel is archived",
    "channel_canvas_updated": "a channel's canvas changes",
    "channel_convert_to_private": "a channel becomes private",
    "channel_join": "somebody joins",
    "channel_leave": "somebody leaves",
    "channel_name": "a channel is renamed",
    "channel_posting_permissions": "the right to post changes",
    "channel_purpose": "a channel's purpose changes",
    "channel_topic": "a channel's topic changes",
    "channel_unarchive": "a channel is taken out of the archive",
    "document_mention": "a canvas names somebody",
    "ekm_access_denied": "a message is locked by its company's keys",
    "emoji_changed": "an emoji changes",
    "file_changed": "a file changes",
    "file_comment": "a comment on a file",
    "file_created": "a file is made",
    "file_deleted": "a file is deleted",
    "file_mention": "a file is named",
    "file_public": "a file becomes public",
    "file_shared": "a file is shared",
    "file_unshared": "a file is not shared any more",
    "group_archive": "a private channel is archived",
    "group_join": "somebody joins a private channel",
    "group_leave": "somebody leaves a private channel",
    "group_name": "a private channel is renamed",
    "group_purpose": "a private channel's purpose changes",
    "group_topic": "a private channel's topic changes",
    "group_unarchive": "a private channel is taken out of the archive",
    "joiner_notification": "somebody is new in the workspace",
    "joiner_notification_for_inviter": "an invited person has joined the workspace",
    "pinned_item": "something is pinned",
    "reminder_add": "a reminder is set",
    "share_shortcut": "a shortcut is shared",
    "slackbot_response": "an automatic answer of Slack's",
    "tabbed_canvas_updated": "a canvas changes",
    "tombstone": "a deleted message that has replies",
    "unpinned_item": "something is unpinned",
}

NOTED = (
    *(Row(kind, sees, {"text": f"{sees}: <@U2>"}, f"{sees}: @Ann") for kind, sees in _DOES.items()),
    *(
        Row(
            kind,
            "a card of a huddle",
            {"text": "", "room": {"id": "R1"}},
            "[a huddle]",
            "what was spoken is nowhere written",
        )
        for kind in ("huddle_thread", "sh_room_created", "sh_room_shared")
    ),
)
"""What Slack notes. It is an earlier line, and never for the bot."""

UNSEEN = tuple(
    Row(kind, sees, {"text": "x"}, "", why)
    for kind, sees, why in (
        (
            "message_changed",
            "an edit",
            "the new text takes the place of the old one, until the bot begins to answer",
        ),
        ("message_deleted", "a message is gone", "the message is taken back, until it is answered"),
        ("message_replied", "nothing", "it only counts the replies of a thread"),
    )
)
