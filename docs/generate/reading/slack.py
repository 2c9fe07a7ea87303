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
    Row(
        "usergroup", "@ops", {"usergroup_id": "S1"}, "@a-group (S1)", "the names of groups are not looked up"
    ),
    Row(
        "work_object_mention",
        "an item of an app",
        {"text": "Lead 7", "url": LINK},
        f"[item: Lead 7 ({LINK})]",
    ),
    Row("workflow_mention", "a workflow", {"text": "Onboard"}, "[workflow: Onboard]"),
)
