"""What a changed settings.json changes now, and what at the next start only."""

from __future__ import annotations

import json

from hypothesis import given

from bot.config.changes import changes
from bot.config.extensions import settings_model
from tests.bot.config.test_scopes import documents, load

Settings = settings_model()


@given(documents, documents)
def test_all_that_a_scope_may_have_counts_at_once(old, new):
    found = changes(load(old), load(new))
    assert found.restart == ()
    assert found.settings == load(new)
    assert bool(found.live) == (plain(old) != plain(new))


def plain(document):
    return load(document).model_dump() | {
        "scopes": {name: s.model_dump(exclude_unset=True) for name, s in load(document).scopes.items()}
    }


def test_what_needs_a_restart_stays_as_it_is_and_is_named():
    old = load({"transports": {"slack": {}}, "limits": {"mailbox": 3}})
    new = load(
        {
            "name": "other",
            "limits": {"mailbox": 4, "max_steps": 7},
            "tools": {"private_hosts": ["a.test"], "policy": {"shell": "deny"}},
            "transports": {"slack": {"feedback": False}, "discord": {}},
            "providers": {"mine": {"base_url": "http://127.0.0.1:1/v1"}},
        }
    )
    found = changes(old, new)
    assert set(found.live) == {"limits.max_steps", "tools.policy.shell"}
    assert set(found.restart) == {
        "name",
        "limits.mailbox",
        "tools.private_hosts",
        "transports.slack.feedback",
        "transports.discord",
        "providers.mine",
    }
    assert (found.settings.limits.max_steps, found.settings.limits.mailbox) == (7, 3)
    assert (found.settings.tools.private_hosts, found.settings.tools.policy["shell"]) == ((), "deny")
    assert (found.settings.name, found.settings.transports) == (old.name, old.transports)


def test_access_prices_and_the_whole_budget_count_at_once():
    new = load(
        {
            "access": {"admins": ["U1"]},
            "prices": {"a/one": {"input": 1, "output": 2}},
            "budget": {"mode": "soft", "asker_may_grant": True, "limit_usd": {"month": 3}},
        }
    )
    found = changes(Settings(), new)
    assert found.restart == ()
    assert found.settings.access.admins == ("U1",)
    assert found.settings.prices == new.prices
    assert found.settings.budget == new.budget
    assert set(found.live) == {
        "access.admins",
        "prices.a/one",
        "budget.mode",
        "budget.asker_may_grant",
        "budget.limit_usd.month",
    }


def test_no_value_is_named_in_a_change():
    new = Settings.model_validate_json(
        json.dumps({"system": "canary", "scopes": {"user:U1": {"system": "canary"}}})
    )
    found = changes(Settings(), new)
    assert found.live == ("scopes.user:U1", "system") or set(found.live) == {"scopes.user:U1", "system"}
    assert "canary" not in f"{found.live}{found.restart}"
