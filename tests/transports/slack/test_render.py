"""What a model's text becomes in Slack. The golden files hold nasty texts and, beside them, all that we make of them.

``UPDATE_GOLDEN=1`` writes them anew; read every change as the person in Slack would. In a ``.md`` file ``\\u{200b}``
stands for a character, ``\\repeat{x}{9}`` for a long text, and ``¦`` for the border of two pieces of a stream.
"""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from slack_sdk.models.blocks import Block as SdkBlock

from tests.transports.golden import golden
from threads.model import Choice, Outgoing, ThreadId
from transports.slack.events.decode import decode
from transports.slack.markdown.blocks import (
    choice_block,
    feedback_block,
    markdown_block,
    note_block,
    without_actions,
)
from transports.slack.markdown.escape import SafeStream, safe
from transports.slack.markdown.links import Links, host_of, hosts_in
from transports.slack.markdown.split import plain, split_markdown
from transports.slack.markdown.tables import tables_in
from transports.slack.post.message_pages import pages

GOLDEN = Path(__file__).parent / "golden"
DEAD = Links(frozenset({"good.com"}), live=False)
LIVE = Links(frozenset({"good.com"}), live=True)

MAX_HELD = 4_000
"""The most characters that a stream may hold back."""


def read(path):
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\\repeat\{([^}]+)\}\{(\d+)\}", lambda found: found[1] * int(found[2]), text)
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), text)


def visible(text):
    text = re.sub(
        "[\u00a0\u00ad\u200b-\u200f\u2060\ufeff\u0300-\u036f]", lambda found: f"⟨{ord(found[0]):x}⟩", text
    )
    text = text if len(text) <= 3_000 else f"{text[:300]} ⟨… {len(text):,} in all …⟩ {text[-200:]}"
    return re.sub(r"(?m)[ \t]+$", lambda found: "·" * len(found[0]), text)


def render_sections(text, *, streamed):
    """All that Slack may get of *text*, for a person to read."""
    pieces = text.split("¦") if streamed else [text]
    text = "".join(pieces)
    sections = {"safe": safe(text, DEAD)}
    if safe(text, LIVE) != sections["safe"]:
        sections["safe, previews off"] = safe(text, LIVE)
    if streamed:
        stream = SafeStream(DEAD)
        sections["pieces"] = "¦".join([*(stream.feed(piece) for piece in pieces), stream.end()])
    for number, part in enumerate(split_markdown(text, DEAD), 1):
        if part != sections["safe"].strip():
            sections[f"part {number}"] = json.dumps(
                [markdown_block(visible(part))], ensure_ascii=False, indent=1
            )
        sections[f"plain {number}"] = plain(part)
    return "".join(f"=== {name}\n{visible(section)}\n" for name, section in sections.items())


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.md")))
def test_golden(name):
    got = render_sections(read(GOLDEN / f"{name}.md"), streamed=name.startswith("stream-"))
    assert got == golden(GOLDEN / f"{name}.txt", got)


TOKENS = (
    "` ``` ~~~ ````\n \n > - 1. < ! @ here channel everyone [ ] ( ) https:// evil.com good.com / ?q=1 ** * 2 日 。 | \\ a "
    "<l|https://evil.com/> x.y www. : mailto: &lt; # . _ ```py\n ```sh @he <! <@U1> <https:// |label> file.py ![ ]( ]: \t \u200b \u202e \ud83d \x00"
)
NASTY = [*TOKENS.split(" "), " ", "  ", "b" * 70, "word " * 60, "\n\n", "    "]
NASTY_TEXTS = st.lists(st.sampled_from(NASTY), max_size=30).map("".join) | st.text(max_size=60)
BOTH = st.sampled_from([DEAD, LIVE])


@given(NASTY_TEXTS, st.lists(st.integers(1, 9), min_size=1), BOTH)
@settings(max_examples=1_500, deadline=None)
@example("[a](https://evil.com)", [1], DEAD)
@example("<https://evil.com|docs>", [2], LIVE)
@example("> ```\n> a\nb <!here>", [1], DEAD)
@example("`" * 1_005 + "a", [7], DEAD)
@example("https://[]", [1], DEAD)
@example("https://[::1]/x y", [1], LIVE)
def test_a_stream_gives_the_same_however_it_is_cut(text, sizes, links):
    stream, given, at, turn = SafeStream(links), [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        given.append(stream.feed(text[at : at + size]))
        at, turn = at + size, turn + 1
    assert "".join(given) + stream.end() == safe(text, links)


MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
PING = re.compile(r"<[!@#]|@(?:here|channel|everyone)", re.IGNORECASE)
ADDRESS = re.compile(r"(?i)https?://([a-z0-9.-]*)[^\s<>|\"`]*|(?<![\w.+-])(www\.[\w-]+\.[\w.-]*)")
"""An address, with all that belongs to it: one within its path or fragment leads nowhere."""


def leaves(tokens):
    for token in tokens:
        yield token
        yield from leaves(token.children or [])


def spoken(markdown):
    """Read it as another reader of Markdown does: the words outside code, and where the links lead."""
    words, targets, inside = [], [], False
    for token in leaves(MARKDOWN.parse(markdown)):
        assert token.type not in ("image", "html_inline", "html_block")
        if token.type == "link_open":
            targets.append(token.attrs["href"])
        inside = (inside or token.type == "link_open") and token.type != "link_close"
        if token.type == "text" and not inside:
            words.append(token.content)
        elif token.type != "text":
            words.append("\n")
    return "".join(words), targets


@given(NASTY_TEXTS)
@settings(max_examples=1_500, deadline=None)
@example("> ```\n> x\n[a](https://evil.com)")
@example("- ```\n  x\n[a](https://evil.com)")
@example("text\n    ```\n    x ``` [a](https://evil.com)")
@example("` https://evil.com `` `")
@example("[a]\n\n[a]: https://evil.com")
@example("\\https://evil.com")
@example("www.x.yhttps://")
@example("https://<https://x.y|secret.evil.com>")
@example("www.@here https://good.com/@here [x](https://good.com/@here)")
@example("\\[`a`](https://evil.com)")
@example("https://good.com#https://1.")
def test_another_reader_finds_no_ping_and_no_link_that_is_not_allowed(text):
    made = safe(text, DEAD)
    assert not PING.search(made)
    words, targets = spoken(made)
    assert all(host_of(target) == "good.com" for target in targets)
    for found in ADDRESS.finditer(words):
        host = (found[1] or found[2] or "").strip("._-")
        assert host in ("", "good.com") or host.endswith(".good.com")


@given(NASTY_TEXTS)
@settings(max_examples=500, deadline=None)
def test_parts_fit_their_payloads_and_their_plain_side_is_dead(text):
    for part in split_markdown(text * 40, LIVE):
        fallback = plain(part)
        assert 0 < len(part) <= 11_000
        assert 0 < len(fallback) <= 3_500
        assert "<" not in fallback
        assert ">" not in fallback
        assert not re.search(r"&(?!amp;|lt;|gt;)", fallback)
        assert not re.search(r"(?i)[a-z]://", fallback)
        assert not re.search(r"(?i)@(here|channel|everyone)", fallback)


@pytest.mark.parametrize(
    "opened",
    [
        "[",
        "[a](",
        "<https://",
        "`",
        "```",
        "~~~",
        "https://",
        "www.",
        "x",
        "@",
        "!",
        "*",
        "\\",
        "\n> > > ```\n> > > ",
    ],
)
@pytest.mark.parametrize("filler", ["a", "a ", "(", "[", "`", "<", "*", "_ ", "a.b/", "@"])
def test_no_more_than_a_bound_is_ever_held_back(opened, filler):
    stream = SafeStream(DEAD)
    stream.feed(opened)
    for _ in range(3):
        stream.feed(filler * (2_000 // len(filler)))
        assert len(stream._held) <= MAX_HELD


@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "<",
        "`",
        "``` ",
        "[a](",
        "<https://",
        "**",
        "@",
        "a.b/",
        "https://",
        "> ",
        "\n```\n> ",
        "word ",
        "[]",
        "\\",
        "~",
        "((",
    ],
)
def test_a_hundred_thousand_characters_take_seconds_at_most(unit):
    began = time.process_time()
    safe(unit * (100_000 // len(unit)), DEAD)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("unit", ["**a ", "[a](b.c) ", "| ", "`a` ", "_a", "<", "- x\n"])
def test_the_parts_of_a_long_text_take_seconds_at_most(unit):
    began = time.process_time()
    assert split_markdown(unit * (60_000 // len(unit)), DEAD)
    assert time.process_time() - began < 5


def test_code_that_is_copied_is_what_was_written():
    code = "#include <stdio.h>\nstd::vector<std::string> v;\nif (a < b && c > d) {\n\tx <<= 2;\n    y();\n\n  } // <b> & [x](y) **z**\n"
    assert code in safe(f"```cpp\n{code}```", DEAD)
    assert safe("`a < b`, `Vec<T>` and `x && y`", DEAD) == "`a < b`, `Vec<T>` and `x && y`"


@pytest.mark.parametrize("before", ["", "> ", "- ", "  ", "> - ", "1. > ", "\t"])
def test_code_keeps_its_indentation_wherever_it_is(before):
    later = re.sub(r"[^\s>]", " ", before)
    made = safe(f"{before}```py\n{later}def f():\n{later}    return 1\n{later}```\nafter", DEAD)
    assert made == f"{before}```py\n{later}def f():\n{later}    return 1\n{later}```\nafter"


def test_ordinary_markdown_is_left_alone():
    text = "# Plan\n\n- **one** *two* _three_\n- [ ] task\n\n> a quote\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert safe(text, DEAD) == text


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Docs.Python.org/3/", "docs.python.org"),
        ("HTTP://good.com:8080", "good.com"),
        ("https://good.com.?x", "good.com"),
        ("https://good.com@evil.com/", None),
        ("https://good.com\\@evil.com/", None),
        ("https://good.com\\evil", None),
        ("https://gооd.com/", None),
        ("https://evil%2ecom", None),
        ("https://[::1]/", None),
        ("https:evil.com", None),
        ("ftp://good.com", None),
        ("//good.com", None),
        ("https:///good.com", None),
        ("https://good.com/" + "a" * 2_000, None),
    ],
)
def test_a_host_is_told_only_where_every_reader_agrees(url, host):
    assert host_of(url) == host


def test_a_host_allows_its_subdomains_and_nothing_else():
    links = Links(frozenset({"Good.com"}))
    assert links.clickable("https://good.com/") and links.clickable("http://a.b.good.com/x")
    assert not links.clickable("https://notgood.com/") and not links.clickable("https://good.com.evil.com/")
    assert not links.clickable("javascript://good.com/")


def test_the_hosts_of_a_persons_own_links_are_found():
    said = (
        "see docs (https://Docs.Good.com/x), http://a.example:80/y. and mailto:x@evil.com https://u@evil.com/"
    )
    assert hosts_in(said) == {"docs.good.com", "a.example"}
    assert hosts_in("nothing here") == frozenset()


def test_a_table_is_seen_outside_of_code_only():
    assert tables_in("x\n\n| a | b |\n|---|:-:|\n| 1 | 2 |")
    assert tables_in("a | b\n--- | ---\n")
    assert not tables_in("```\n| a | b |\n|---|---|\n```")
    assert not tables_in("a | b\n\n---\n")


NAMES = {"U1": "Ann <!here>\n", "U2": "Bob"}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("<@U2> hi <@U9>", "@Bob hi @someone (U9)"),
        ("<@U1>", "@Ann <!here>"),
        ("<@U9|carl>", "@carl"),
        ("<#C1|general> <#C2> <#C3|>", "#general #a-channel (C2) #a-channel (C3)"),
        ("<https://x.y/?a=1&amp;b=2|the &lt;label&gt;>", "the <label> (https://x.y/?a=1&b=2)"),
        ("<https://x.y/> <https://x.y|https://x.y>", "https://x.y/ https://x.y"),
        ("<http://x.y|x.y>", "x.y (http://x.y)"),
        ("<mailto:a@b.c|a@b.c> <tel:+1|+1>", "a@b.c +1"),
        ("<!here> <!channel|channel> <!everyone>", "@here @channel @everyone"),
        ("<!subteam^S1|@team> <!subteam^S2> <!date^1^{date}|May 1>", "@team @a-group (S2) May 1"),
        ("&amp;lt; &lt;!here&gt; &amp;amp; &quot;", "&lt; <!here> &amp; &quot;"),
        ("<> <@> <|x> <foo> a < b <@U2", "<> <@> <|x> <foo> a < b <@U2"),
        ("", ""),
    ],
)
def test_what_slack_sends_is_read_as_it_was_written(text, meant):
    assert decode(text, NAMES) == meant


@given(st.text(alphabet="<>@!#|&;ltgamp U1https://x.y\n", max_size=60))
def test_reading_never_fails(text):
    decode(text, NAMES)


def valid(block):
    parsed = SdkBlock.parse(block)
    parsed.validate_json()
    assert parsed.to_dict().keys() == block.keys()
    return block


def test_choices_are_buttons():
    choices = [
        Choice("Retry", "/retry m1"),
        Choice("Approve", "/approve 2"),
        Choice("No " * 50, "/deny 2"),
        Choice(" ", "x"),
    ]
    elements = valid(choice_block(choices))["elements"]
    assert [element["action_id"] for element in elements] == ["choice:0", "choice:1", "choice:2", "choice:3"]
    assert [element["value"] for element in elements] == ["/retry m1", "/approve 2", "/deny 2", "x"]
    assert [element.get("style") for element in elements] == ["primary", None, "danger", None]
    assert len(elements[2]["text"]["text"]) <= 75
    assert elements[3]["text"]["text"] == "x"
    assert len(choice_block(choices * 10)["elements"]) == 25


def test_feedback_is_up_or_down():
    (buttons,) = valid(feedback_block())["elements"]
    assert (buttons["type"], buttons["action_id"]) == ("feedback_buttons", "feedback")
    assert (buttons["positive_button"]["value"], buttons["negative_button"]["value"]) == ("up", "down")


def test_a_note_is_plain_words():
    (words,) = valid(note_block("<!channel> " + "x" * 5_000))["elements"]
    assert words["type"] == "plain_text"
    assert len(words["text"]) <= 2_000
    assert valid(note_block(" "))["elements"][0]["text"] == "…"


def test_buttons_that_were_pressed_give_way_to_a_note():
    text, buttons = markdown_block("What now?"), choice_block([Choice("Go", "/go")])
    expected = [text, note_block("Ann chose Go"), feedback_block()]
    assert without_actions([text, buttons, feedback_block()], "Ann chose Go") == expected
    assert without_actions([text], "done") == [text, note_block("done")]
    assert without_actions([], "done") == [note_block("done")]
    assert len(without_actions([text] * 50, "done")) == 50


def test_the_plain_side_has_no_marks_and_says_when_it_is_cut():
    said = plain(
        "# Title\n\n- **bold** and _it_ [docs](https://good.com/a) `x < y`\n```py\na & b\n```\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    assert said == "Title\n\n• bold and it docs (https:\u200b//good.com/a) x &lt; y\na &amp; b\na | b\n1 | 2"
    assert plain("<" * 5_000).endswith(" …")
    assert plain("```\n```") == "…"


OURS = "https://acme.slack.com/archives/C1/p1?thread_ts=1&cid=C1"


@pytest.mark.parametrize("inert", [True, False])
def test_a_link_that_the_bot_wrote_is_whole_in_every_form_and_no_other_is(inert):
    text = f"It was in {OURS} (ref 7f3a), see {OURS}.evil.example and https://evil.example/{OURS}"
    outgoing = Outgoing(ThreadId("slack", "T1", "C1", "1.0"), "k", text, "notice", links=(OURS,))
    [page] = pages(outgoing, Links(), inert=inert)
    whole = OURS.replace("&", "&amp;")
    for form in (page.plain, page.words):
        assert f"It was in {whole} (ref" in form
        assert form.count("://") == 1
    assert f"It was in {OURS} (ref" in page.markdown


OWN = "https://mcp.example/authorize?state=_a_&x=*b*&y=__c__&z=(d)"


@pytest.mark.parametrize(
    "text", [f"Sign in: [here]({OWN})", f"Open {OWN}.", f"<{OWN}>", f"[Sign in]({OWN}), then **come back**."]
)
def test_an_address_of_our_own_stays_whole_and_live_as_plain_text_too(text):
    post = Outgoing(ThreadId("slack", "T1", "C1", "1.1"), "k", text, links=(OWN,))
    shown = pages(post, Links(), inert=True)[0].words.replace("&amp;", "&")
    assert OWN in shown or OWN.replace("(", "%28").replace(")", "%29") in shown


def test_code_and_addresses_keep_their_marks_in_plain_text():
    shown = plain("**Bold** and `a*b*c` at [x_y_z](https://a.example/_p_) or https://a.example/*q*")
    assert (
        shown.replace("\u200b", "")
        == "Bold and a*b*c at x_y_z (https://a.example/_p_) or https://a.example/*q*"
    )
