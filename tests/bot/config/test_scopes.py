"""Which settings hold where: pure, so it is played with settings of every kind."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config.extensions import settings_model
from bot.config.scopes import OWN_DAY, CurrentSettings, Effective, Place, covering, resolve, scope_keys
from bot.config.settings import Scope
from bot.config.tool_profiles import policy_of, rules_of
from threads.model import Author, Feedback, ThreadId

Settings = settings_model()

HERE = Place("slack", "T1", "C1", "U1")
NAMES = ("slack:T1", "slack:T1:C1", "user:U1")
ELSEWHERE = ("slack:T2", "slack:T1:C2", "slack:T2:C1", "discord:T1", "user:U2", "user:C1")

models = st.sampled_from(("a/one", "b/two", "c/three"))
amounts = st.one_of(st.none(), st.floats(0, 100))
verdicts = st.sampled_from(("allow", "ask", "deny"))
ids = st.lists(st.sampled_from(("U1", "U2", "*")), max_size=2)
sections = {
    "model": models,
    "fallback_models": st.lists(models, max_size=2),
    "max_tokens": st.integers(1, 9),
    "temperature": st.one_of(st.none(), st.floats(0, 2)),
    "system": st.sampled_from(("", "You are kind.", "Be brief.\n")),
    "tools": st.fixed_dictionaries(
        {},
        optional={
            "enabled": st.lists(st.sampled_from(("files", "shell")), max_size=2),
            "policy": st.dictionaries(st.sampled_from(("shell", "shell(ls*)", "files")), verdicts),
            "after_outside_text": verdicts,
            "profile": st.sampled_from((None, "read-only", "trusted")),
        },
    ),
    "budget": st.fixed_dictionaries(
        {},
        optional={
            "footer": st.booleans(),
            "limit_usd": st.fixed_dictionaries(
                {}, optional=dict.fromkeys(("turn", "thread", "user_day", "day"), amounts)
            ),
        },
    ),
    "limits": st.fixed_dictionaries({}, optional={"max_steps": st.integers(1, 9)}),
    "access": st.fixed_dictionaries({}, optional=dict.fromkeys(("users", "roles", "channels"), ids)),
}
scopes = st.fixed_dictionaries({}, optional=sections)
documents = st.tuples(scopes, st.dictionaries(st.sampled_from((*NAMES, *ELSEWHERE)), scopes)).map(
    lambda found: {**found[0], "scopes": found[1]}
)


def load(document):
    return Settings.model_validate_json(json.dumps(document))


def value_at(value, path):
    for name in path.split("."):
        value = value.get(name, {}) if isinstance(value, dict) else getattr(value, name)
    return value


def written(document, path):
    """Return whether a document has a key. Users and roles are one."""
    if path in {"access.users", "access.roles"} and "access" in document:
        return not {"users", "roles"}.isdisjoint(document["access"])
    for name in path.split("."):
        if not isinstance(document, dict) or name not in document:
            return False
        document = document[name]
    return True


def rows(settings):
    return {path: value_at(settings, path) for path in scope_keys()}


@given(documents)
def test_each_key_is_of_the_most_specific_scope_that_has_it(document):
    effective = resolve(load(document), HERE)
    for path in scope_keys():
        if path in {OWN_DAY, "tools.policy"}:
            continue
        deciding = [name for name in NAMES if written(document["scopes"].get(name, {}), path)]
        source = document["scopes"][deciding[-1]] if deciding else document
        assert effective.decided.get(path) == (deciding[-1] if deciding else None)
        if path.startswith("access.") and deciding:
            assert value_at(effective.settings, path) == tuple(source["access"].get(path[7:], ()))
            continue
        assert value_at(effective.settings, path) == value_at(load({**source, "scopes": {}}), path)


@given(documents)
def test_rules_are_laid_over_rule_by_rule(document):
    effective = resolve(load(document), HERE)
    tools = effective.settings.tools
    rules = {} if tools.profile else {"shell": "ask"}
    for source in (document, *(document["scopes"].get(name, {}) for name in NAMES)):
        rules |= source.get("tools", {}).get("policy", {})
    assert rules_of(tools) == rules


@given(documents, st.randoms(use_true_random=False))
def test_the_order_in_the_file_means_nothing(document, random):
    shuffled = list(document["scopes"].items())
    random.shuffle(shuffled)
    one, other = load(document), load({**document, "scopes": dict(shuffled)})
    assert rows(resolve(one, HERE).settings) == rows(resolve(other, HERE).settings)
    assert resolve(one, HERE).decided == resolve(other, HERE).decided
    assert resolve(one, HERE).day_limits == resolve(other, HERE).day_limits


@given(documents)
def test_resolving_what_is_resolved_changes_nothing(document):
    once = resolve(load(document), HERE)
    assert rows(resolve(once.settings, HERE).settings) == rows(once.settings)


@given(documents)
def test_scopes_of_other_places_mean_nothing(document):
    settings = load(document)
    alone = load({**document, "scopes": {n: s for n, s in document["scopes"].items() if n in NAMES}})
    assert rows(resolve(settings, HERE).settings) == rows(resolve(alone, HERE).settings)


@given(documents)
def test_no_scope_moves_the_walls_around_all(document):
    """The day and the month of everybody, who is an admin, and whether a limit refuses at all."""
    settings = load(document)
    there = resolve(settings, HERE).settings
    for path in ("budget.mode", "budget.limit_usd.day", "budget.limit_usd.month", "access.admins"):
        assert value_at(there, path) == value_at(settings, path)
    assert there.budget.asker_may_grant == settings.budget.asker_may_grant
    assert there.tools.private_hosts == settings.tools.private_hosts


@given(documents)
def test_each_scope_has_a_day_of_its_own_beside_that_of_everybody(document):
    days = {
        name: scope["budget"]["limit_usd"]["day"]
        for name, scope in document["scopes"].items()
        if name in NAMES and written(scope, OWN_DAY) and value_at(scope, OWN_DAY) is not None
    }
    assert resolve(load(document), HERE).day_limits == days


def test_a_key_that_is_written_with_its_default_counts_too():
    settings = load({"max_tokens": 5, "scopes": {"slack:T1": {"max_tokens": 8192, "temperature": None}}})
    effective = resolve(settings, HERE)
    assert effective.settings.max_tokens == 8192
    assert set(effective.decided) == {"max_tokens", "temperature"}


def test_every_key_of_a_scope_is_a_key_for_everybody():
    everybody = Settings()
    for path in scope_keys():
        value_at(everybody, path)


def test_a_scope_may_loosen_a_rule_by_its_name_but_no_other_refusal():
    settings = load(
        {
            "tools": {"policy": {"shell": "ask", "shell(rm*)": "deny"}},
            "scopes": {"slack:T1:C1": {"tools": {"policy": {"shell": "allow"}}}},
        }
    )
    policy = policy_of(resolve(settings, HERE).settings.tools)
    assert policy.verdict("shell", "exec", "ls", tainted=False) == "allow"
    assert policy.verdict("shell", "exec", "rm -r x", tainted=False) == "deny"


def test_a_profile_of_a_scope_is_not_undone_by_a_default_rule():
    settings = load(
        {
            "scopes": {
                "slack:T1": {"tools": {"profile": "trusted"}},
                "slack:T1:C1": {"tools": {"policy": {"web_fetch": "deny"}}},
            }
        }
    )
    policy = policy_of(resolve(settings, HERE).settings.tools)
    assert policy.verdict("shell", "exec", "ls", tainted=False) == "allow"
    assert policy.verdict("web_fetch", "net", "https://x.example", tainted=False) == "deny"


def test_an_override_is_on_top_of_all_scopes():
    settings = load({"scopes": {"user:U1": {"model": "a/one", "system": "Be kind."}}})
    stage = Scope.model_validate_json('{"model": "b/two", "budget": {"limit_usd": {"turn": 0.5}}}')
    effective = resolve(settings, HERE).override(stage, "stage")
    assert (effective.settings.model, effective.settings.system) == ("b/two", "Be kind.")
    assert effective.settings.budget.limit_usd.turn == 0.5
    assert effective.decided["model"] == "stage"
    assert resolve(settings, HERE).settings.model == "a/one"


def test_direct_messages_on_discord_are_a_place_too():
    settings = load({"scopes": {"discord:@me": {"model": "a/one"}}})
    assert covering(settings, Place("discord", "@me", "77", "U9")) == ("discord:@me",)


def test_the_place_of_a_press_is_that_of_its_thread():
    feedback = Feedback("f1", ThreadId("slack", "T1", "C1", "1.0"), Author("U1"), "p1", "up")
    assert Place.of(feedback) == HERE


def test_places_with_the_same_scopes_share_one_object_until_the_settings_change():
    current = CurrentSettings(load({"model": "a/one", "scopes": {"slack:T1:C1": {"model": "b/two"}}}))
    there = current.at(HERE)
    assert current.at(Place("slack", "T1", "C1", "U2")) is there
    assert current.at(Place("slack", "T1", "C9", "U2")) is current.at(Place())
    current.replace(load({"model": "c/three"}))
    assert there.settings.model == "b/two", "who has got them keeps them"
    assert current.at(HERE).settings.model == "c/three"


def test_two_effective_settings_are_not_the_same_unless_they_are_one_object():
    assert Effective(Settings()) != Effective(Settings())


@pytest.mark.parametrize("name", ["C1", "slack:", "slack:T1:", "slack:T1:C1:1.0", "user", "user:", ""])
def test_a_scope_of_another_form_is_a_fault(name):
    with pytest.raises(ValueError, match='must be a transport, as "slack"'):
        load({"scopes": {name: {}}})


def test_who_is_an_admin_is_no_matter_of_scopes():
    with pytest.raises(ValueError, match="admins"):
        load({"scopes": {"slack:T1": {"access": {"admins": ["U1"]}}}})
