"""What may be done without asking, what a person decides, and what never: a pure judgement on one call.

| rule                                   | counts                                                             |
|----------------------------------------|--------------------------------------------------------------------|
| any `deny` that matches                | always; a command is also looked at part by part                   |
| `name(pattern)`                        | before `name`, before a name with `*`; of equals the strictest     |
| none matches                           | `ask` for what runs programs and for MCP, else `allow`             |
| `allow`, with text from outside read   | `ask`, as the settings say, for all that writes, runs or sends     |

A pattern is a glob on the call's subject (a command, a path, an address). An `allow` with a `*` never covers a
command that joins others to it: `git status; rm -rf .` is no `git status*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from bot.ports.tool import Risk

Verdict = Literal["allow", "ask", "deny"]

RULE = re.compile(r"(?P<tool>[A-Za-z0-9_*-]+)(?:\((?P<pattern>.*)\))?", re.DOTALL)
FOREIGN = "__"
"""Stands between an MCP server's name and that of its tool, and in no name of ours."""

_STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_JOINS = re.compile(r"[;&|<>$`()\n\r{}\\]")
_PARTS = re.compile(r"[;&|()\n\r{}`]+|\$\(")


@dataclass(frozen=True, slots=True)
class _Rule:
    tool: str
    pattern: str | None
    verdict: Verdict

    @property
    def weight(self) -> tuple[int, int, int]:
        """Of two rules that match, the heavier counts."""
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
    """The rules of the settings: ``"tool"`` or ``"tool(pattern)"`` to a verdict. ``outside`` is for tainted turns."""

    def __init__(self, rules: Mapping[str, Verdict], *, outside: Verdict = "ask") -> None:
        self._rules = [_rule(key, verdict) for key, verdict in rules.items()]
        self._outside: Verdict = outside

    def verdict(self, tool: str, risk: Risk, subject: str, *, tainted: bool) -> Verdict:
        """Judge one call; a tool of a risk that is not known is denied."""
        if risk not in get_args(Risk):
            return "deny"
        found = [rule for rule in self._rules if rule.covers(tool, risk, subject)]
        if any(rule.verdict == "deny" for rule in found):
            return "deny"
        usual: Verdict = "ask" if risk == "exec" or FOREIGN in tool else "allow"
        said = max(found, key=lambda rule: rule.weight).verdict if found else usual
        if tainted and risk != "read":
            return max(said, self._outside, key=_STRICTNESS.__getitem__)
        return said


def _rule(key: str, verdict: Verdict) -> _Rule:
    """Return a rule of the settings. Raises ValueError for what is none; the settings refuse it before."""
    match = RULE.fullmatch(key)
    if match is None:
        raise ValueError(key)
    return _Rule(match["tool"], match["pattern"], verdict)
