"""Calls that need no question: rules, patterns, taint. `tests/hostile/test_rules.py` has ways around the rules."""

import pytest

from bot.guards.policy import Policy

SHELL = {"shell": "ask"}


@pytest.mark.parametrize(
    ("rules", "tool", "risk", "subject", "verdict"),
    [
        ({}, "read_file", "read", "a.txt", "allow"),
        ({}, "write_file", "write", "a.txt", "allow"),
        ({}, "web_fetch", "net", "https://example.com/", "allow"),
        ({}, "shell", "exec", "ls", "ask"),
        ({}, "github__search", "net", "{}", "ask"),
        ({}, "github__search", "read", "{}", "ask"),
        ({}, "strange", "unheard of", "", "deny"),
        (SHELL, "shell", "exec", "ls", "ask"),
        ({"shell": "deny"}, "shell", "exec", "ls", "deny"),
        ({"shell": "allow"}, "shell", "exec", "ls; rm -rf .", "allow"),
        ({**SHELL, "shell(ls)": "allow"}, "shell", "exec", "ls", "allow"),
        ({**SHELL, "shell(ls)": "allow"}, "shell", "exec", "ls -l", "ask"),
        ({**SHELL, "shell(git status*)": "allow"}, "shell", "exec", "git status -s", "allow"),
        ({**SHELL, "shell(git status*)": "allow"}, "shell", "exec", "git status; rm -rf .", "ask"),
        ({"shell": "allow", "shell(rm *)": "deny"}, "shell", "exec", "rm x", "deny"),
        ({"shell": "allow", "shell(rm *)": "deny"}, "shell", "exec", "ls; rm x", "deny"),
        ({"shell": "allow", "shell(rm *)": "deny"}, "shell", "exec", "ls", "allow"),
        ({"shell(ls)": "deny", "shell(l*)": "allow"}, "shell", "exec", "ls", "deny"),
        ({"web_fetch": "ask", "web_fetch(https://a.example/*)": "allow"}, "web_fetch", "net", "https://a.example/x?y=1", "allow"),
        ({"web_fetch": "ask", "web_fetch(https://a.example/*)": "allow"}, "web_fetch", "net", "https://a.example.evil/x", "ask"),
        ({"github__*": "allow"}, "github__search", "net", "{}", "allow"),
        ({"github__*": "allow", "github__delete": "ask"}, "github__delete", "net", "{}", "ask"),
        ({"github__*": "deny", "github__search": "allow"}, "github__search", "net", "{}", "deny"),
        ({"*": "deny"}, "read_file", "read", "a", "deny"),
        ({"read_file(secret*)": "deny"}, "read_file", "read", "secret.txt", "deny"),
    ],
)  # fmt: skip
def test_the_rules_decide(rules, tool, risk, subject, verdict):
    assert Policy(rules).verdict(tool, risk, subject, tainted=False) == verdict


@pytest.mark.parametrize(
    ("tool", "risk", "verdict"),
    [
        ("read_file", "read", "allow"),
        ("write_file", "write", "ask"),
        ("web_fetch", "net", "ask"),
        ("shell", "exec", "ask"),
        ("remember", "write", "ask"),
    ],
)
def test_after_outside_text_whatever_changes_or_sends_is_asked_about(tool, risk, verdict):
    allowing = Policy({tool: "allow"})
    assert allowing.verdict(tool, risk, "x", tainted=True) == verdict
    assert allowing.verdict(tool, risk, "x", tainted=False) == "allow"


def test_the_settings_may_have_it_denied_or_let_through_after_outside_text():
    assert Policy({}, outside="deny").verdict("write_file", "write", "x", tainted=True) == "deny"
    assert Policy({}, outside="allow").verdict("write_file", "write", "x", tainted=True) == "allow"
    assert Policy({"shell": "ask"}, outside="allow").verdict("shell", "exec", "x", tainted=True) == "ask"
