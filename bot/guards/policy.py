"""Decides on one tool call: allow it, ask a person, or deny it.

| rule                                   | effect                                                             |
|----------------------------------------|--------------------------------------------------------------------|
| any `deny` that matches                | always wins; it also applies to each part of a command             |
| `name(pattern)`                        | wins over `name`, over a name with `*`; of equals the strictest    |
| none matches                           | the fallback: of the profile, else `ask` for commands and for MCP  |
| `allow`, after text from outside       | `ask`, as the settings say, for all that writes, runs or sends     |

A pattern is a glob on the call's subject (a command, a path, an address). An `allow` with a `*` never covers a
command that joins others to it: `git status; rm -rf .` does not match `git status*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, get_args

from bot.ports.risk import Risk

Verdict = Literal["allow", "ask", "deny"]

RULE = re.compile(r"(?P<tool>[A-Za-z0-9_*-]+)(?:\((?P<pattern>.*)\))?", re.DOTALL)
FOREIGN = "__"
"""Separates an MCP server's name from its tool's; no name of ours has it."""


class Fallback(NamedTuple):
    """The verdicts on calls that no rule matches: by the tool's risk, and ``mcp`` for tools of MCP servers."""

    read: Verdict
    write: Verdict
    net: Verdict
    exec: Verdict
    mcp: Verdict


UNSET = Fallback(read="allow", write="allow", net="allow", exec="ask", mcp="ask")

_STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_JOINS = re.compile(r"[;&|<>$`()\n\r{}\\]")
_PARTS = re.compile(r"[;&|()\n\r{}`]+|\$\(")


@dataclass(frozen=True, slots=True)
class _Rule:
    tool: str
    pattern: str | None
    verdict: Verdict

    @property
    def rank(self) -> tuple[int, int, int]:
        """Return the rank of the rule: of two that match, the higher one wins."""
        return (self.pattern is not None, "*" not in self.tool, _STRICTNESS[self.verdict])

    def covers(self, tool: str, risk: Risk, subject: str) -> bool:
        if not fnmatchcase(tool, self.tool):
            return False
        if self.pattern is None:
            return True
        if risk != "exec":
            return fnmatchcase(subject, self.pattern)
        if self.verdict == "allow" and "*" in self.pattern and _JOINS.search(subject):
            return False
        parts = [subject, *_PARTS.split(subject)] if self.verdict == "deny" else [subject]
        return any(fnmatchcase(part.strip(), self.pattern) for part in parts)


class Policy:
    """The rules of the settings: ``"tool"`` or ``"tool(pattern)"`` to a verdict; *outside* is for tainted turns."""

    def __init__(
        self, rules: Mapping[str, Verdict], *, outside: Verdict = "ask", fallback: Fallback = UNSET
    ) -> None:
        self._rules = [_parse_rule(key, verdict) for key, verdict in rules.items()]
        self._outside: Verdict = outside
        self._fallback = fallback

    def verdict(self, tool: str, risk: Risk, subject: str, *, tainted: bool) -> Verdict:
        """Return the verdict on one call; an unknown risk is denied."""
        if risk not in get_args(Risk):
            return "deny"
        rules = [rule for rule in self._rules if rule.covers(tool, risk, subject)]
        if any(rule.verdict == "deny" for rule in rules):
            return "deny"
        verdict: Verdict = self._fallback.mcp if FOREIGN in tool else getattr(self._fallback, risk)
        if rules:
            verdict = max(rules, key=lambda rule: rule.rank).verdict
        if tainted and risk != "read":
            return max(verdict, self._outside, key=_STRICTNESS.__getitem__)
        return verdict


def _parse_rule(key: str, verdict: Verdict) -> _Rule:
    """Return a rule of the settings. Raises ValueError, but the settings have refused a bad key before."""
    if (match := RULE.fullmatch(key)) is None:
        raise ValueError(key)
    return _Rule(match["tool"], match["pattern"], verdict)
