"""Markdown becomes a tree that holds text, and never markup."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import WITHIN_S
from transports.web import formulas
from transports.web.markdown import LONGEST, MOST_FORMULAS, TAGS, tree


def nodes(found):
    for node in found:
        yield node
        if isinstance(node, list):
            yield from nodes(node[2:])


def test_a_paragraph_with_marks_is_a_tree():
    expected = [["p", {}, ["strong", {}, "a"], " ", ["code", {}, "b"]], ["blockquote", {}, ["p", {}, "c"]]]
    assert tree("**a** `b`\n\n> c") == expected


def test_html_stays_text():
    assert tree("<img src=x onerror=alert(1)>") == [["p", {}, "<img src=x onerror=alert(1)>"]]
    assert tree("a <b>c</b>") == [["p", {}, "a <b>c</b>"]]


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//x.example",
    ],
)
def test_a_link_that_does_not_lead_to_a_web_page_is_text(address):
    assert "href" not in json.dumps(tree(f"[here]({address})"))


def test_an_image_is_a_link_that_nobody_fetches():
    assert tree("![a cat](https://x.example/c.png)") == [
        ["p", {}, ["a", {"href": "https://x.example/c.png"}, "a cat"]]
    ]


def test_code_keeps_its_language_and_its_text():
    assert tree("```py\nx < 1\n```") == [["pre", {"lang": "py"}, "x < 1\n"]]


def test_a_table_is_a_table():
    assert [node[0] for node in nodes(tree("|a|b|\n|-|-|\n|1|2|")) if isinstance(node, list)] == [
        *["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    ]


def test_a_tight_list_has_no_paragraphs():
    assert tree("- a\n- b") == [["ul", {}, ["li", {}, "a"], ["li", {}, "b"]]]


def test_a_list_begins_where_it_says():
    assert tree("3. a")[0][:2] == ["ol", {"start": "3"}]


def test_a_very_long_text_is_not_laid_out():
    assert tree("*" * (LONGEST + 1)) == [["pre", {}, "*" * (LONGEST + 1)]]


@given(
    st.lists(
        st.sampled_from(
            [*"ab *_`~#>|-[]()!<>&\n1.$^{}\\", "http://x", "javascript:", "$$", r"\href{javascript:a}"]
        ),
        max_size=60,
    ).map("".join)
)
def test_whatever_the_text_only_known_tags_and_attributes_come_out(text):
    for node in nodes(tree(text)):
        if isinstance(node, str):
            continue
        tag, attributes = node[:2]
        assert tag in TAGS | {"span"} | formulas.TAGS
        assert set(attributes) <= {"href", "start", "lang", "size", "task", "align"} | formulas.ATTRIBUTES
        assert attributes.get("href", "https://").lower().startswith(("https://", "http://", "mailto:"))


def test_headings_have_their_size_and_leave_no_level_out():
    found = tree("### a\n\n# b\n\n#### c\n\n## d\n\n> # e")
    assert [(node[0], node[1]["size"]) for node in nodes(found) if node[0][0] == "h"] == [
        *[("h3", "3"), ("h3", "1"), ("h4", "4"), ("h4", "2"), ("h3", "1")]
    ]


def test_a_list_of_tasks_shows_what_is_done():
    assert tree("- [ ] a\n- [x] **b**\n- [y] c") == [
        [
            "ul",
            {},
            ["li", {"task": ""}, "☐ a"],
            ["li", {"task": ""}, "☑ ", ["strong", {}, "b"]],
            ["li", {}, "[y] c"],
        ]
    ]


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("$x$", "inline"),
        (r"so \(x\)", "inline"),
        ("$$x$$", "block"),
        ("$$\nx\n= y\n- z\n$$", "block"),
        ("\\[\nx\n\\]", "block"),
        ("- a\n  $$\n  x\n  $$", "block"),
    ],
)
def test_a_formula_is_mathml(text, display):
    [(tag, attributes, *_)] = [node for node in nodes(tree(text)) if node[0] == "math"]
    assert (tag, attributes) == ("math", {"display": display})


@pytest.mark.parametrize(
    "text",
    [
        "costs $5 and $10",
        "$5-$10",
        "between $5 and 10$",
        "$HOME and $PATH",
        r"\$x\$",
        "`$x$`",
        "US$100 or A$50",
        "$$\na\n\nb\n$$",
    ],
)
def test_money_names_and_code_are_no_formulas(text):
    assert "math" not in [node[0] for node in nodes(tree(text))]


@pytest.mark.parametrize(
    "text", [r"\frac", "{" * 300, "x^" * 300 + "x", "a" * 2_000, r"\left(" * 100, "_" * 900]
)
def test_a_formula_that_is_none_is_shown_as_it_was_written(text):
    assert tree(f"$${text}$$")[0][:2] in (["code", {}], ["p", {}])
    assert text[:20] in json.dumps(tree(f"$${text}$$")).replace("\\\\", "\\")


def test_formulas_of_one_text_have_a_bound():
    found = [node[0] for node in nodes(tree(f"$${'x+' * 400}$$\n\n" * 20))]
    assert found.count("math") == MOST_FORMULAS // 800
    assert found.count("code") == 20 - MOST_FORMULAS // 800


def test_a_column_of_numbers_is_aligned_and_no_other_style_gets_through():
    [[_, _, head, _]] = tree("| a | n |\n|---|--:|\n| b | 1 |")
    [[_, _, *cells]] = head[2:]
    assert [cell[1] for cell in cells] == [{}, {"align": "right"}]


@pytest.mark.parametrize(
    "part",
    [
        r"\(",
        "\\[\n",
        "$$\n\n",
        "- \\[\n",
        "<a|https://b.example> ",
        "__a",
        "|<x|`|y\n",
        "`<a|b",
        "https://b.example/_a_ ",
    ],
)
def test_a_long_text_of_forms_that_models_have_takes_no_longer_for_each(part):
    began = time.monotonic()
    tree("|a|b|\n|-|-|\n" + part * (LONGEST // len(part) - 10))
    assert time.monotonic() - began < WITHIN_S
