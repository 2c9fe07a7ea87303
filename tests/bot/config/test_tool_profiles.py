"""A profile is a short way to a policy: explicit rules win over it, and it opens no wall."""

import pytest

from bot.config.settings import Tools
from bot.config.tool_profiles import describe, policy_of

CALLS = [
    ("read_file", "read"),
    ("write_file", "write"),
    ("web_fetch", "net"),
    ("shell", "exec"),
    ("github__search", "net"),
]
"""One call of each column of the table."""


@pytest.mark.parametrize(
    ("profile", "verdicts"),
    [
        (None, ["allow", "allow", "allow", "ask", "ask"]),
        ("read-only", ["allow", "deny", "ask", "deny", "deny"]),
        ("ask", ["allow", "ask", "ask", "ask", "ask"]),
        ("trusted", ["allow", "allow", "allow", "allow", "allow"]),
    ],
)
def test_a_profile_means_what_its_row_of_the_table_says(profile, verdicts):
    policy = policy_of(Tools(profile=profile))
    assert [policy.verdict(tool, risk, "x", tainted=False) for tool, risk in CALLS] == verdicts


@pytest.mark.parametrize("rule", ["shell", "shell(make *)", "sh*", "*"])
def test_an_explicit_rule_wins_over_what_the_profile_denies(rule):
    policy = policy_of(Tools(profile="read-only", policy={rule: "allow"}))
    assert policy.verdict("shell", "exec", "make test", tainted=False) == "allow"


def test_a_rule_that_is_written_counts_even_if_it_says_what_the_default_says():
    policy = policy_of(Tools(profile="trusted", policy={"shell": "ask"}))
    assert policy.verdict("shell", "exec", "ls", tainted=False) == "ask"


def test_a_deny_holds_under_trusted():
    policy = policy_of(Tools(profile="trusted", policy={"shell(rm *)": "deny"}))
    assert policy.verdict("shell", "exec", "ls; rm -rf .", tainted=False) == "deny"


@pytest.mark.parametrize("tool_and_risk", CALLS[1:])
def test_after_outside_text_trusted_asks_as_all_others(tool_and_risk):
    assert policy_of(Tools(profile="trusted")).verdict(*tool_and_risk, "x", tainted=True) == "ask"
    strict = Tools(profile="trusted", after_outside_text="deny")
    assert policy_of(strict).verdict(*tool_and_risk, "x", tainted=True) == "deny"


def test_an_unknown_risk_is_denied_under_every_profile():
    assert policy_of(Tools(profile="trusted")).verdict("odd", "teleport", "x", tainted=False) == "deny"


def test_without_a_profile_a_rule_for_everything_does_not_let_commands_through():
    assert policy_of(Tools(policy={"*": "allow"})).verdict("shell", "exec", "ls", tainted=False) == "ask"


def test_people_read_what_the_settings_mean():
    words = describe(Tools(profile="read-only", policy={"shell(make *)": "ask"}))
    assert words == (
        "allow: reading; deny: writing, commands, MCP; ask: the web. Rules before these: shell(make *) ask"
    )
