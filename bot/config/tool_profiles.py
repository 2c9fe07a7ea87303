"""Tool profiles: a word in the settings that stands for a policy.

| `tools.profile` | reads | writes | web   | commands | MCP   |
|-----------------|-------|--------|-------|----------|-------|
| not set         | allow | allow  | allow | ask      | ask   |
| `read-only`     | allow | deny   | ask   | deny     | deny  |
| `ask`           | allow | ask    | ask   | ask      | ask   |
| `trusted`       | allow | allow  | allow | allow    | allow |

A profile answers only where no rule of `tools.policy` matches the call, so an explicit rule always wins. Without a
profile `"shell": "ask"` is one of the rules, so that `"*": "allow"` alone never lets commands through. A profile
opens no wall: the sandbox, the egress guard and `tools.after_outside_text` hold under `trusted` too. The web only
asks under `read-only`, because an address can carry data out.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.config.settings import DEFAULT_POLICY, ToolProfile, Tools
from bot.guards.policy import UNSET, Fallback, Policy, Verdict

PROFILES: Mapping[ToolProfile, Fallback] = {
    "read-only": Fallback(read="allow", write="deny", net="ask", exec="deny", mcp="deny"),
    "ask": Fallback(read="allow", write="ask", net="ask", exec="ask", mcp="ask"),
    "trusted": Fallback(read="allow", write="allow", net="allow", exec="allow", mcp="allow"),
}

WORDS = {"read": "reading", "write": "writing", "net": "the web", "exec": "commands", "mcp": "MCP"}


def policy_of(tools: Tools) -> Policy:
    """Return the policy that these settings mean."""
    return Policy(rules_of(tools), outside=tools.after_outside_text, fallback=fallback_of(tools))


def rules_of(tools: Tools) -> Mapping[str, Verdict]:
    """Return the rules that come before the fallback."""
    if tools.profile is None:
        return {**DEFAULT_POLICY, **tools.policy}
    return tools.policy if "policy" in tools.model_fields_set else {}


def fallback_of(tools: Tools) -> Fallback:
    """Return the verdicts on calls that no explicit rule matches."""
    return PROFILES[tools.profile] if tools.profile else UNSET


def describe(tools: Tools) -> str:
    """Return for people what the settings mean: the verdict for each kind of tool, then the explicit rules."""
    verdicts: dict[str, list[str]] = {}
    for kind, verdict in fallback_of(tools)._asdict().items():
        verdicts.setdefault(verdict, []).append(WORDS[kind])
    kinds = "; ".join(f"{verdict}: {', '.join(words)}" for verdict, words in verdicts.items())
    rules = ", ".join(f"{key} {verdict}" for key, verdict in rules_of(tools).items())
    return f"{kinds}" + (f". Rules before these: {rules}" if rules else "")
